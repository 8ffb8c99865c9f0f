"""The fact about copies that nobody can have: a part of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(slots=True, init=False)
class Buried:
    """Which copies of a message are dead letters, and why: the copy at `places[i]` of those that
    share a body, in `lanes[i]`, by the reason and the description at `whys[i]` of the notes.

    Messages of a batch that go the same way share one, and it is packed once.
    """

    places: Final[list[int]]
    lanes: Final[list[int]]
    whys: Final[list[int]]
    reasons: Final[list[str]]
    descriptions: Final[list[str]]

    def __init__(
        self,
        places: list[int],
        lanes: list[int],
        whys: list[int],
        reasons: list[str],
        descriptions: list[str],
    ) -> None:
        self.places = places
        self.lanes = lanes
        self.whys = whys
        self.reasons = reasons
        self.descriptions = descriptions


@final
@dataclass(slots=True, init=False)
class CopiesBuried:
    """Copies of a published message are dead letters from the beginning: one record for all of
    them, beside the one that published them. A copy has the number `first_sequence` and its
    place."""

    at: Final[int]
    first_sequence: Final[int]
    buried: Final[Buried]

    def __init__(self, at: int, first_sequence: int, buried: Buried) -> None:
        self.at = at
        self.first_sequence = first_sequence
        self.buried = buried
