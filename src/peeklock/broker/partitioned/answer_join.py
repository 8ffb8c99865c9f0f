"""One wish that several partitions carry out: asked in parts, answered once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

from peeklock.broker.partitioned.reach import ReachablePartitions
from peeklock.entity.commands import PEEK_LOCK, ReceiveDeferred, SettleAll
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.message import NEVER
from peeklock.entity.refusals import too_much_at_once
from peeklock.entity.replies import NOBODY, Found, Origin, Refused, Reply
from peeklock.entity.settlement import PLAIN_COMPLETE, PLAIN_RELEASE, Settlement

Join: TypeAlias = Callable[[list[Any]], Reply | None]
"""Makes one reply of the replies of all parts; None where the answer comes by another way."""


@final
class AnswerJoin:
    """Waits for the answers of all parts."""

    __slots__ = ("_answers", "_is_answered", "_join", "_left", "_origin", "_tag")

    def __init__(self, origin: Origin, tag: int, count: int, join: Join) -> None:
        self._origin: Final[Origin] = origin
        self._tag: Final[int] = tag
        self._join: Final[Join] = join
        self._answers: list[Any] = [None] * count
        self._left: int = count
        self._is_answered: bool = False

    def part(self, at: int) -> AnswerPart:
        """The origin for the part with this number."""
        return AnswerPart(self, at)

    def heard(self, at: int, reply: Reply) -> None:
        """A part is answered; the last one answers the whole."""
        self._answers[at] = reply
        self._left -= 1
        if self._left:
            return
        whole = self._join(self._answers)
        if whole is not None:
            self._is_answered = True
            self._origin.replied(whole)

    def flush(self) -> None:
        """Write out the answer, once it is there."""
        if self._is_answered:
            self._is_answered = False
            self._origin.flush()

    def refused(self, answers: list[Any]) -> Refused | None:
        """The refusal of the whole where one part was refused, else None."""
        for answer in answers:
            if isinstance(answer, Refused):
                return Refused(self._origin, [self._tag], answer.refusal)
        return None


@final
class AnswerPart:
    """The origin of one part."""

    __slots__ = ("_answer_join", "_at")

    def __init__(self, answer_join: AnswerJoin, at: int) -> None:
        self._answer_join: Final[AnswerJoin] = answer_join
        self._at: Final[int] = at

    def replied(self, reply: Reply) -> None:
        """Take the one reply to this part."""
        self._answer_join.heard(self._at, reply)

    def flush(self) -> None:
        """All replies of this round are there."""
        self._answer_join.flush()


@final
class DeferredJoin:
    """Deferred messages of several partitions, all or none (R-S6).

    All of them are locked first. If one is not there, or all are too much for one answer, they go
    back to where they were, uncounted; those to be deleted are deleted only when all are here.
    """

    __slots__ = ("_answer_join", "_command", "_found", "_groups", "_reach")

    def __init__(
        self, command: ReceiveDeferred, groups: dict[int, list[int]], reach: ReachablePartitions
    ) -> None:
        self._command: Final[ReceiveDeferred] = command
        self._groups: Final[dict[int, list[int]]] = groups
        self._reach: Final[ReachablePartitions] = reach
        self._found: list[Delivery] = []
        self._answer_join: AnswerJoin = AnswerJoin(
            command.origin, command.tag, len(groups), self._fetched
        )

    def start(self) -> None:
        """Ask each partition for what is there."""
        command = self._command
        for at, (index, sequences) in enumerate(self._groups.items()):
            origin = self._answer_join.part(at)
            self._reach.ask(
                index,
                ReceiveDeferred(
                    origin,
                    0,
                    command.lane,
                    sequences,
                    PEEK_LOCK,
                    command.session_id,
                    None,
                    command.consumer,
                    command.bytes_max,
                ),
            )

    def _fetched(self, answers: list[Any]) -> Reply | None:
        command = self._command
        refused = self._answer_join.refused(answers)
        if refused is not None:
            self._settle(PLAIN_RELEASE, answers, NOBODY)
            return refused
        by_sequence: dict[int, Delivery] = {}
        size = 0
        for answer in answers:
            for delivery in answer.deliveries:
                by_sequence[delivery.sequence] = delivery
                size += _size_of(delivery)
        if len(by_sequence) > 1 and size > command.bytes_max:
            # Each partition knows its own part only.
            self._settle(PLAIN_RELEASE, answers, NOBODY)
            refusal = too_much_at_once(size, command.bytes_max)
            return Refused(command.origin, [command.tag], refusal)
        # One whose body is damaged was found, and is set apart.
        self._found = [
            by_sequence[sequence]
            for sequence in dict.fromkeys(command.sequences)
            if sequence in by_sequence
        ]
        if command.mode == PEEK_LOCK:
            return Found(command.origin, command.tag, self._found)
        self._answer_join = AnswerJoin(command.origin, command.tag, len(answers), self._deleted)
        self._settle(PLAIN_COMPLETE, answers, None)
        return None

    def _deleted(self, answers: list[Any]) -> Found:
        """Whoever was to get the messages gets them, also where a deletion is in doubt: that
        one may come twice, but it is not lost."""
        del answers
        command = self._command
        return Found(command.origin, command.tag, [_unlocked(each) for each in self._found])

    def _settle(self, settlement: Settlement, answers: list[Any], origin: Origin | None) -> None:
        for at, (index, answer) in enumerate(zip(self._groups, answers, strict=True)):
            if isinstance(answer, Found):
                tokens = [LockToken(each.sequence, each.number) for each in answer.deliveries]
                settler = self._answer_join.part(at) if origin is None else origin
                self._reach.ask(index, SettleAll(settler, 0, settlement, tokens))


def _size_of(delivery: Delivery) -> int:
    size = 0 if delivery.message is None else delivery.message.size
    return size if delivery.details is None else size + delivery.details.size


def _unlocked(delivery: Delivery) -> Delivery:
    """The same message, handed out for good."""
    return Delivery(
        delivery.sequence,
        0,
        NEVER,
        delivery.delivery_count,
        delivery.enqueued_at,
        delivery.expires_at,
        delivery.position,
        delivery.message,
        delivery.details,
        delivery.state,
    )
