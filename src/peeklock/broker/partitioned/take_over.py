"""Messages that other partitions forward to an entity of several partitions (R-P8).

A repeat must find the partition that has taken the message already: without a key the source and
the number there decide, so that it is the same one each time.
"""

from __future__ import annotations

from typing import Any, Final, final

from peeklock.broker.partitioned.answer_join import AnswerJoin
from peeklock.broker.partitioned.reach import ReachablePartitions
from peeklock.entity.commands import TakeOver
from peeklock.entity.message import Message
from peeklock.entity.refusals import Refusal
from peeklock.entity.replies import Refused, Reply, SendsAccepted
from peeklock.entity.routing import Routing, partition_of_key


@final
class TakeOvers:
    """Gives forwarded messages to their partitions, and remembers where they went."""

    __slots__ = ("_below", "_late", "_reach", "_went")

    def __init__(self, reach: ReachablePartitions) -> None:
        self._reach: Final[ReachablePartitions] = reach
        # Where the numbers of a source went that it has not told to forget yet. After a restart
        # this is empty; what is to be forgotten is then forgotten everywhere.
        self._went: dict[str, dict[int, int]] = {}
        # What partitions are to forget that could not be asked: index, source, numbers.
        self._late: dict[int, dict[str, list[int]]] = {}
        # Below which number a partition is to forget all of a source, until it has said that it
        # did: index, source, number.
        self._below: dict[int, dict[str, int]] = {}

    def take_over(self, command: TakeOver, routing: Routing) -> None:
        """Each message to its partition; answered when all have theirs.

        Where a partition is out of reach the others take theirs all the same and the whole is
        refused: the source repeats it, and what was taken before is ignored then.
        """
        if command.forget_below:
            self._forget_below(command.source, command.forget_below)
        if command.numbers and self._below:
            self._spare(command.source, min(command.numbers))
        groups: dict[int, tuple[list[int], list[Message]]] = {}
        for number, message in zip(command.numbers, command.messages, strict=True):
            index = self._partition_of(command.source, number, message, routing)
            numbers, messages = groups.setdefault(index, ([], []))
            numbers.append(number)
            messages.append(message)
        for index, numbers in self._forgets(command.source, command.forget).items():
            self._late.setdefault(index, {}).setdefault(command.source, []).extend(numbers)
        asked = [index for index in groups if self._reach.can_ask(index)]
        missing = self._reach.missing(groups)
        answer_join = self._answer_join(command, len(asked), missing)
        went = self._went.setdefault(command.source, {}) if asked else {}
        for at, index in enumerate(asked):
            numbers, messages = groups[index]
            for number in numbers:
                went[number] = index
            part = answer_join.part(at)
            self._reach.ask(index, TakeOver(part, 0, command.source, numbers, messages, []))
        if not asked:
            self._answer_alone(command, missing)
        for index in list(self._late):
            self._tell_late(index)

    def opened(self, index: int) -> None:
        """A partition can be asked: it forgets what it has not been told to."""
        for source in list(self._below.get(index, ())):
            self._tell_below(index, source)
        self._tell_late(index)

    def _tell_late(self, index: int) -> None:
        if index in self._late and self._reach.can_ask(index):
            for source, numbers in self._late.pop(index).items():
                origin = _Forgetting(self, index, source, numbers)
                self._reach.ask(index, TakeOver(origin, 0, source, [], [], numbers))

    def _forget_below(self, source: str, below: int) -> None:
        """Tell all partitions that can be asked; the others are told when they open."""
        went = self._went.get(source, {})
        for number in [number for number in went if number < below]:
            del went[number]
        for index in range(self._reach.count):
            self._below.setdefault(index, {})[source] = below
            self._tell_below(index, source)

    def _tell_below(self, index: int, source: str) -> None:
        if self._reach.can_ask(index):
            below = self._below[index][source]
            origin = _Forgetting(self, index, source, [])
            self._reach.ask(index, TakeOver(origin, 0, source, [], [], [], below))

    def _spare(self, source: str, number: int) -> None:
        """Whoever is told late must not forget what was sent in the meantime."""
        for sources in self._below.values():
            if sources.get(source, 0) > number:
                sources[source] = number

    def forgot_below(self, index: int, source: str) -> None:
        """A partition has done it, and need not be told again."""
        sources = self._below.get(index)
        if sources is not None:
            sources.pop(source, None)
            if not sources:
                del self._below[index]

    def forget_later(self, index: int, source: str, numbers: list[int]) -> None:
        """A partition could not forget now."""
        self._late.setdefault(index, {}).setdefault(source, []).extend(numbers)

    def _partition_of(self, source: str, number: int, message: Message, routing: Routing) -> int:
        key = routing.key_of(message)
        if key is None:
            key = f"{source}|{number}"
        return partition_of_key(key, self._reach.count)

    def _forgets(self, source: str, numbers: list[int]) -> dict[int, list[int]]:
        """Who is to forget which numbers: those who took them, or all where that is not known."""
        went = self._went.get(source, {})
        forgets: dict[int, list[int]] = {}
        for number in numbers:
            index = went.pop(number, None)
            indexes = range(self._reach.count) if index is None else (index,)
            for each in indexes:
                forgets.setdefault(each, []).append(number)
        if not went:
            self._went.pop(source, None)
        return forgets

    def _answer_join(self, command: TakeOver, count: int, missing: Refusal | None) -> AnswerJoin:
        def join(answers: list[Any]) -> Reply | None:
            refused = answer_join.refused(answers)
            if refused is None and missing is not None:
                refused = Refused(command.origin, [command.tag], missing)
            if refused is None:
                return SendsAccepted(command.origin, [command.tag])
            # Whether it is repeated is not known: who has what need not be remembered.
            went = self._went.get(command.source, {})
            for number in command.numbers:
                went.pop(number, None)
            return refused

        answer_join = AnswerJoin(command.origin, command.tag, count, join)
        return answer_join

    def _answer_alone(self, command: TakeOver, missing: Refusal | None) -> None:
        if missing is None:
            self._reach.answer(SendsAccepted(command.origin, [command.tag]))
        else:
            self._reach.refuse(command.origin, [command.tag], missing)


@final
class _Forgetting:
    """The origin of a wish to forget: one that is refused is repeated later."""

    __slots__ = ("_index", "_numbers", "_source", "_take_overs")

    def __init__(self, take_overs: TakeOvers, index: int, source: str, numbers: list[int]) -> None:
        self._take_overs: Final[TakeOvers] = take_overs
        self._index: Final[int] = index
        self._source: Final[str] = source
        self._numbers: Final[list[int]] = numbers

    def replied(self, reply: Reply) -> None:
        """Repeat what was refused when there is an opportunity."""
        if not self._numbers:
            if not isinstance(reply, Refused):
                self._take_overs.forgot_below(self._index, self._source)
        elif isinstance(reply, Refused):
            self._take_overs.forget_later(self._index, self._source, self._numbers)

    def flush(self) -> None:
        """There is nothing to write out."""
