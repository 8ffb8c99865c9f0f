"""The facts about claims: messages that an owner has taken for itself until it settles them.

They are part of the records in `records`; what they say is absolute, as all records are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.tables.record_rows import UNSEEN, JournalRows, RecordRow

# Why claims ended without the message being settled.
UNCLAIMED_RELEASED: Final = 0
UNCLAIMED_ABANDONED: Final = 1
UNCLAIMED_TIMED_OUT: Final = 2  # the owner was not heard of for too long


@final
@dataclass(slots=True, init=False)
class Claimed:
    """Ready messages of a lane are an owner's from now on, and nobody else's."""

    at: Final[int]
    lane: Final[int]
    owner: Final[str]
    sequences: Final[list[int]]

    def __init__(self, at: int, lane: int, owner: str, sequences: list[int]) -> None:
        self.at = at
        self.lane = lane
        self.owner = owner
        self.sequences = sequences


@final
@dataclass(slots=True, init=False)
class Unclaimed:
    """Claimed messages are ready again, and why. Those that were abandoned are told by `Returned`
    as well, with their counts, where deliveries are counted."""

    at: Final[int]
    lane: Final[int]
    why: Final[int]
    owner: Final[str]
    sequences: Final[list[int]]

    def __init__(self, at: int, lane: int, why: int, owner: str, sequences: list[int]) -> None:
        self.at = at
        self.lane = lane
        self.why = why
        self.owner = owner
        self.sequences = sequences


@final
@dataclass(slots=True, init=False)
class OwnerHeard:
    """An owner was heard of at this instant: the epoch that it has, and how long its claims last
    without a further word of it."""

    at: Final[int]
    lane: Final[int]
    owner: Final[str]
    epoch: Final[int]
    timeout_ms: Final[int]

    def __init__(self, at: int, lane: int, owner: str, epoch: int, timeout_ms: int) -> None:
        self.at = at
        self.lane = lane
        self.owner = owner
        self.epoch = epoch
        self.timeout_ms = timeout_ms


ClaimRecord: TypeAlias = Claimed | Unclaimed | OwnerHeard

CLAIM_RECORDS: Final = (
    RecordRow(
        Claimed,
        23,
        "at=q lane=I 0=B owner=name sequences=sequences",
        JournalRows("claim", consumer="owner"),
    ),
    RecordRow(
        Unclaimed,
        24,
        "at=q lane=I why=B owner=name sequences=sequences",
        JournalRows(
            {
                UNCLAIMED_RELEASED: ("unclaim", "Released"),
                UNCLAIMED_ABANDONED: ("unclaim", "Abandoned"),
                UNCLAIMED_TIMED_OUT: ("unclaim", "OwnerTimedOut"),
            },
            consumer="owner",
        ),
    ),
    RecordRow(OwnerHeard, 25, "at=q lane=I 0=B owner=name epoch=q timeout_ms=q", UNSEEN),
)
