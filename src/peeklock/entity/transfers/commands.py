"""What a partition can be asked in the course of transactions and forwarding.

The words are part of those in `commands`, from where the others import them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from peeklock.entity.message import Message
from peeklock.entity.replies import Numbered, Origin
from peeklock.entity.tables.command_rows import ALL, INSIDE, KEY, CommandRow

if TYPE_CHECKING:  # most of it is defined where these are gathered
    from peeklock.entity.commands import TransactionWork


@final
@dataclass(slots=True, init=False)
class Reserve:
    """Sequence numbers to be told before they are used; they are given to nobody else.

    `message` says whose numbers they are where an entity has several partitions: those of the one
    that it goes to. A partition does not look at it.
    """

    origin: Final[Origin]
    tag: Final[int]
    count: Final[int]
    message: Final[Message | None]

    def __init__(
        self, origin: Origin, tag: int, count: int, message: Message | None = None
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.count = count
        self.message = message


@final
@dataclass(slots=True, init=False)
class TakeOver:
    """Messages that another partition forwards, with the numbers they had there.

    A number that was taken over from that source before is ignored, so that a crash between the
    two neither loses nor doubles. `forget` are numbers that the source will not send again; below
    `forget_below` it will send none that it sent before.
    """

    origin: Final[Origin]
    tag: Final[int]
    source: Final[str]
    numbers: Final[list[int]]
    messages: Final[list[Message]]
    forget: Final[list[int]]
    forget_below: Final[int]

    def __init__(
        self,
        origin: Origin,
        tag: int,
        source: str,
        numbers: list[int],
        messages: list[Message],
        forget: list[int],
        forget_below: int = 0,
    ) -> None:
        self.origin = origin
        self.tag = tag
        self.source = source
        self.numbers = numbers
        self.messages = messages
        self.forget = forget
        self.forget_below = forget_below


@final
@dataclass(slots=True, init=False)
class TransferMessage:
    """Inside a transaction: a message for another entity, which rests here until it is forwarded.

    `way` is the key that says in which partition it rests, where there are several and nothing
    else says it; None where the message's own key does. A partition does not look at it.
    """

    destination: Final[str]
    message: Final[Message]
    way: Final[str | None]

    def __init__(self, destination: str, message: Message, way: str | None = None) -> None:
        self.destination = destination
        self.message = message
        self.way = way


@final
@dataclass(slots=True, init=False)
class Commit:
    """All operations of a transaction, carried out together or not at all; answered once.

    The origins and tags of its work are not answered.
    """

    origin: Final[Origin]
    tag: Final[int]
    work: Final[list[TransactionWork]]

    def __init__(self, origin: Origin, tag: int, work: list[TransactionWork]) -> None:
        self.origin = origin
        self.tag = tag
        self.work = work


@final
@dataclass(slots=True, init=False)
class NoteDestination:
    """Messages of a lane will go to this entity: known over restarts before the first one goes, so
    that a change of the destination is noticed. Answered with all entities that may have some of
    them (`Named`); with `is_only`, the others have none that is still here."""

    origin: Final[Origin]
    tag: Final[int]
    lane: Final[int]
    path: Final[str]
    is_only: Final[bool]

    def __init__(self, origin: Origin, tag: int, lane: int, path: str, is_only: bool) -> None:
        self.origin = origin
        self.tag = tag
        self.lane = lane
        self.path = path
        self.is_only = is_only


@final
@dataclass(slots=True, init=False)
class TellTaken:
    """Which numbers of a source were taken over and not forgotten yet; answered by `Numbered`."""

    origin: Final[Origin]
    tag: Final[int]
    source: Final[str]

    def __init__(self, origin: Origin, tag: int, source: str) -> None:
        self.origin = origin
        self.tag = tag
        self.source = source


def _join_numbers(command: TellTaken, answers: list[Any]) -> Numbered:
    numbers = [number for each in answers for number in each.numbers]
    return Numbered(command.origin, command.tag, numbers)


TransferCommand: TypeAlias = Reserve | TakeOver | NoteDestination | TellTaken | Commit

TRANSFER_COMMANDS: Final = (
    CommandRow(Reserve, KEY),
    CommandRow(TakeOver, KEY),
    CommandRow(NoteDestination, INSIDE),
    CommandRow(TellTaken, ALL, _join_numbers),
    CommandRow(Commit, KEY),
)
