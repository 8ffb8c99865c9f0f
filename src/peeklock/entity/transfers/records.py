"""The facts about messages on their way between entities: a part of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.message import Message
from peeklock.entity.tables.record_rows import BY_HAND, SEEN, UNSEEN, RecordRow


@final
@dataclass(slots=True, init=False)
class Transferring:
    """A message waits in the transfer lane to be forwarded to another entity."""

    at: Final[int]
    first_sequence: Final[int]
    message: Final[Message]
    destination: Final[str]

    def __init__(self, at: int, first_sequence: int, message: Message, destination: str) -> None:
        self.at = at
        self.first_sequence = first_sequence
        self.message = message
        self.destination = destination


@final
@dataclass(slots=True, init=False)
class TakenOver:
    """Messages came from another partition under these numbers; `forget` will not come again."""

    at: Final[int]
    source: Final[str]
    numbers: Final[list[int]]
    forget: Final[list[int]]

    def __init__(self, at: int, source: str, numbers: list[int], forget: list[int]) -> None:
        self.at = at
        self.source = source
        self.numbers = numbers
        self.forget = forget


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


TransferRecord: TypeAlias = Transferring | TakenOver | DestinationsNoted

TRANSFER_RECORDS: Final = (
    RecordRow(Transferring, 15, BY_HAND, SEEN),
    RecordRow(TakenOver, 19, "at=q 0=Q source=name numbers=sequences forget=sequences", SEEN),
    RecordRow(DestinationsNoted, 27, "at=q lane=I 0=B paths=texts", UNSEEN),
)
