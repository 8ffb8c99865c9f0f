"""The facts about claims: messages that an owner has taken for itself until it settles them.

They are part of the records in `records`; what they say is absolute, as all records are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

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
