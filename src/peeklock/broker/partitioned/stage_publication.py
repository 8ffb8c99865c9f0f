"""Stages of an entity with several partitions: one of them decides which stages a batch has.

The partition of the writer's name publishes first. With that the batch is decided: the others
publish the same stages, now or, where one of them is lost on the way, when the batch comes again -
even if it was done again under other names meanwhile, which is then dropped everywhere. Else a
message could be in one partition at the first try, in another one at the second, and seen twice or
never (R-D1).
"""

from __future__ import annotations

from typing import Any, Final, final

from peeklock.broker.partitioned.answer_join import AnswerJoin
from peeklock.broker.partitioned.reach import ReachablePartitions
from peeklock.entity.commands import (
    Command,
    DropStages,
    FindPublished,
    PublishStages,
    TellStages,
)
from peeklock.entity.replies import (
    NOBODY,
    BatchPublished,
    Named,
    Numbered,
    Refused,
    Reply,
    StagesTold,
)
from peeklock.entity.routing import partition_of_key


@final
class StagesUnderWay:
    """The stages of an entity that are being published just now. One partition may have done so
    and others not yet: nobody may drop them then."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # how many publications name them

    def add(self, names: list[str]) -> None:
        """A publication begins, or has found which stages it is about."""
        for name in names:
            self._counts[name] = self._counts.get(name, 0) + 1

    def remove(self, names: list[str]) -> None:
        """A publication has ended, one way or the other."""
        for name in names:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    def names(self) -> list[str]:
        """All that are being published."""
        return list(self._counts)


@final
class StagePublication:
    """Publishes a batch: in the partition that decides, then in all others."""

    __slots__ = ("_command", "_is_answered", "_names", "_partition_index", "_reach", "_under_way")

    def __init__(
        self, command: PublishStages, reach: ReachablePartitions, under_way: StagesUnderWay
    ) -> None:
        self._command: Final[PublishStages] = command
        self._reach: Final[ReachablePartitions] = reach
        self._under_way: Final[StagesUnderWay] = under_way
        self._names: list[str] = []  # what is said to be under way
        self._partition_index: Final[int] = partition_of_key(command.writer, reach.count)
        self._is_answered: bool = False

    def start(self) -> None:
        """Ask the partition that decides, if all can be asked."""
        command = self._command
        refusal = self._reach.missing(range(self._reach.count))
        if refusal is not None:
            self._reach.refuse(command.origin, [command.tag], refusal)
            return
        self._begins(command.stages)
        first = PublishStages(self, 0, command.writer, command.batch, command.stages)
        self._reach.ask(self._partition_index, first)

    def replied(self, reply: Reply) -> None:
        """The batch is decided: the others follow."""
        command = self._command
        if isinstance(reply, Refused):
            self._answer(Refused(command.origin, [command.tag], reply.refusal))
            return
        assert isinstance(reply, BatchPublished)
        count = reply.count
        stages = reply.stages
        vain = _without(command.stages, stages)
        self._begins(stages)

        def join(answers: list[Any]) -> Reply | None:
            self._ends()
            refused = answer_join.refused(answers)
            if refused is not None:
                return refused
            published = sum(each.count for each in answers if isinstance(each, BatchPublished))
            return BatchPublished(command.origin, command.tag, count + published, stages)

        others = [index for index in range(self._reach.count) if index != self._partition_index]
        kinds = (1 if stages else 0) + (1 if vain else 0)
        if not kinds or not others:
            self._answer(BatchPublished(command.origin, command.tag, count, stages))
            return
        answer_join = AnswerJoin(command.origin, command.tag, kinds * len(others), join)
        at = 0
        for index in others:
            if stages:
                part = answer_join.part(at)
                same = PublishStages(part, 0, command.writer, command.batch, stages)
                self._reach.ask(index, same)
                at += 1
            if vain:
                self._reach.ask(index, DropStages(answer_join.part(at), 0, vain, None, []))
                at += 1

    def flush(self) -> None:
        """Write out the answer, if it is here."""
        if self._is_answered:
            self._is_answered = False
            self._command.origin.flush()

    def _begins(self, names: list[str]) -> None:
        self._under_way.add(names)
        self._names = self._names + names

    def _ends(self) -> None:
        self._under_way.remove(self._names)
        self._names = []

    def _answer(self, reply: Reply) -> None:
        self._ends()
        self._is_answered = True
        self._command.origin.replied(reply)


@final
class PublicationCompletion:
    """A partition has opened: what was decided while it or another one was away is published now,
    although nobody comes again for it. Its stages would be dropped one day, and the batch with them
    if it was staged again: a part of it was published, so that nothing else of it ever would be."""

    __slots__ = ("_index", "_reach")

    def __init__(self, index: int, reach: ReachablePartitions) -> None:
        self._index: Final[int] = index
        self._reach: Final[ReachablePartitions] = reach

    def start(self) -> None:
        """Ask the one that has opened whether it has to do with stages at all."""
        self._reach.ask(self._index, TellStages(self, 0))

    def replied(self, reply: Reply) -> None:
        """Ask all that are open; the others do the same when they are."""
        if not isinstance(reply, StagesTold) or not (reply.names or reply.batches):
            return
        reach = self._reach
        asked = [index for index in range(reach.count) if reach.workers[index].is_open]

        def join(answers: list[Any]) -> Reply | None:
            told: dict[int, StagesTold] = {}
            for at, answer in enumerate(answers):
                if isinstance(answer, StagesTold):
                    told[asked[at]] = answer
            self._carry_on(told)
            return None

        if len(asked) > 1:
            answer_join = AnswerJoin(NOBODY, 0, len(asked), join)
            for at, index in enumerate(asked):
                reach.ask(index, TellStages(answer_join.part(at), 0))

    def flush(self) -> None:
        """Nobody waits for it."""

    def _carry_on(self, told: dict[int, StagesTold]) -> None:
        count = self._reach.count
        waiting = {index: set(each.names) for index, each in told.items() if each.names}
        if not waiting:
            return
        last = {
            index: {writer: batch for writer, batch, _ in told[index].batches} for index in waiting
        }
        for partition_index, each in told.items():
            for writer, batch, stages in each.batches:
                if partition_of_key(writer, count) != partition_index:
                    continue  # it was not this one that decided
                for index, names in waiting.items():
                    is_behind = last[index].get(writer, batch - 1) < batch
                    if is_behind and not names.isdisjoint(stages):
                        late = PublishStages(NOBODY, 0, writer, batch, stages, 0, False)
                        self._reach.ask(index, late)


def drop_stages(command: DropStages, reach: ReachablePartitions, under_way: StagesUnderWay) -> None:
    """Drop stages everywhere, but for those of a batch that is decided, or may be just now: other
    partitions have yet to publish them."""

    def found(answers: list[Any]) -> Reply | None:
        refused = finding.refused(answers)
        if refused is not None:
            return refused
        decided = {name for each in answers if isinstance(each, Named) for name in each.names}
        keep = sorted(decided.union(command.keep, under_way.names()))
        for index in range(reach.count):
            part = dropping.part(index)
            reach.ask(index, DropStages(part, 0, command.stages, command.prefix, keep))
        return None

    def dropped(answers: list[Any]) -> Reply | None:
        refused = dropping.refused(answers)
        if refused is not None:
            return refused
        count = sum(number for each in answers for number in each.numbers)
        return Numbered(command.origin, command.tag, [count])

    finding = AnswerJoin(command.origin, command.tag, reach.count, found)
    dropping = AnswerJoin(command.origin, command.tag, reach.count, dropped)
    refusal = reach.missing(range(reach.count))
    if refusal is not None:
        reach.refuse(command.origin, [command.tag], refusal)
        return
    for index in range(reach.count):
        ask: Command = FindPublished(finding.part(index), 0, command.stages, command.prefix)
        reach.ask(index, ask)


def _without(names: list[str], others: list[str]) -> list[str]:
    """Those that are not among the others."""
    among = set(others)
    return [name for name in names if name not in among]
