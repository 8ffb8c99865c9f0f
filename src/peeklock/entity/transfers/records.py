"""The fact about where the messages of a lane went: a part of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(slots=True, init=False)
class DestinationsNoted:
    """Entities that may have messages of a lane which are still here as well: the one that they
    are forwarded to, and those before it until that is known. No path: nobody."""

    at: Final[int]
    lane: Final[int]
    paths: Final[list[str]]

    def __init__(self, at: int, lane: int, paths: list[str]) -> None:
        self.at = at
        self.lane = lane
        self.paths = paths
