"""What a partition can be asked about claims.

An owner is a text that a reader chose for itself. It claims ready messages of a lane and settles
them later, over other connections if need be, and after a restart of either side. The words are
part of those in `commands`, from where the others import them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.message import NO_DURATION
from peeklock.entity.replies import Origin
from peeklock.entity.settlement import Settlement
from peeklock.entity.tables.command_rows import TOKEN, WALK, CommandRow

NO_EPOCH: Final = 0
"""Whoever asks without an epoch is not fenced, and is not heard of."""

NO_BOUND: Final = (1 << 63) - 1
"""The highest number that may be claimed where any may, and the room where nobody else has any."""


@final
@dataclass(slots=True, init=False)
class ClaimMessages:
    """Take ready messages for an owner: the oldest, up to so many and so many bytes.

    `count_max` is what the owner asked for in all and decides how small a claim with a message
    that failed before must be; `room` is what is left of it for this partition and `taken` what
    other partitions gave. Where the lane has sessions, at most `session_count` of them are claimed.
    """

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    owner: Final[str]
    epoch: Final[int]
    count_max: Final[int]
    bytes_max: Final[int]  # 0: any number of them
    timeout_ms: Final[int]  # NO_DURATION: as it was, or the default
    upto: Final[dict[int, int] | None]  # by partition: the highest number; None: any
    session_count: Final[int]
    room: Final[int]
    taken: Final[int]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        owner: str,
        epoch: int,
        count_max: int,
        bytes_max: int = 0,
        timeout_ms: int = NO_DURATION,
        upto: dict[int, int] | None = None,
        session_count: int = 100,
        room: int = NO_BOUND,
        taken: int = 0,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.owner = owner
        self.epoch = epoch
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.timeout_ms = timeout_ms
        self.upto = upto
        self.session_count = session_count
        self.room = room
        self.taken = taken


@final
@dataclass(slots=True, init=False)
class ListClaims:
    """What an owner has claimed, in the order of the numbers from one on, and how the lane is."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    owner: Final[str]
    epoch: Final[int]
    from_sequence: Final[int]
    count_max: Final[int]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        owner: str,
        epoch: int,
        from_sequence: int,
        count_max: int,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.owner = owner
        self.epoch = epoch
        self.from_sequence = from_sequence
        self.count_max = count_max


@final
@dataclass(slots=True, init=False)
class FetchClaims:
    """Look at messages that an owner has claimed, in the order asked, within so many bytes."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    owner: Final[str]
    sequences: Final[list[int]]
    bytes_max: Final[int]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        owner: str,
        sequences: list[int],
        bytes_max: int,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.owner = owner
        self.sequences = sequences
        self.bytes_max = bytes_max


@final
@dataclass(slots=True, init=False)
class SettleClaims:
    """End claims of an owner with one outcome; numbers that it has not claimed are ignored."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    owner: Final[str]
    epoch: Final[int]
    sequences: Final[list[int]]
    settlement: Final[Settlement]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        lane: int,
        owner: str,
        epoch: int,
        sequences: list[int],
        settlement: Settlement,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.owner = owner
        self.epoch = epoch
        self.sequences = sequences
        self.settlement = settlement


ClaimCommand: TypeAlias = ClaimMessages | ListClaims | FetchClaims | SettleClaims

CLAIM_COMMANDS: Final = (
    CommandRow(ClaimMessages, WALK),
    CommandRow(ListClaims, WALK),
    CommandRow(FetchClaims, WALK),
    CommandRow(SettleClaims, TOKEN),
)
