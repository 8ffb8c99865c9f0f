"""Wishes that name messages of several partitions, or concern all of them.

They are asked in parts and answered once, in the order asked; one refused part refuses the whole.
That is not atomic over partitions: what the other parts did stays done (a lock renewed, a message
settled or cancelled), and only fetched messages are given back. Where it can be known before that
a part must fail, none is carried out.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import fields
from typing import Any, Final, cast, final

from peeklock.broker.partitioned.answer_join import AnswerJoin, DeferredJoin
from peeklock.broker.partitioned.reach import ReachablePartitions
from peeklock.entity.commands import (
    CancelScheduled,
    Command,
    ListSessions,
    ReceiveDeferred,
    RenewLocks,
    SettleAll,
)
from peeklock.entity.deliveries import LockToken
from peeklock.entity.refusals import LOCK_LOST, LOCK_LOST_TEXT, MESSAGE_NOT_FOUND, Refusal
from peeklock.entity.replies import Named, Numbered, Origin, Reply
from peeklock.entity.routing import partition_of_sequence
from peeklock.entity.tables.command_rows import Join


@final
class SplitCommands:
    """Asks in parts and puts the answers together."""

    __slots__ = ("_reach",)

    def __init__(self, reach: ReachablePartitions) -> None:
        self._reach: Final[ReachablePartitions] = reach

    def settle_all(self, command: SettleAll) -> None:
        """Settlements of one call, partition by partition."""
        by_partition = self._by_partition([token.sequence for token in command.tokens])
        refusal = Refusal(LOCK_LOST, LOCK_LOST_TEXT)
        if self._goes_to_one(by_partition, command, refusal):
            return

        def join(answers: list[Any]) -> Reply | None:
            refused = answer_join.refused(answers)
            return Numbered(command.origin, command.tag, []) if refused is None else refused

        answer_join = AnswerJoin(command.origin, command.tag, len(by_partition), join)
        for at, (partition_index, places) in enumerate(by_partition.items()):
            tokens = _tokens(command.tokens, places)
            part = SettleAll(answer_join.part(at), 0, command.settlement, tokens, command.consumer)
            self._reach.ask(partition_index, part)

    def renew(self, command: RenewLocks) -> None:
        """New ends of locks, in the order of the tokens."""
        by_partition = self._by_partition([token.sequence for token in command.tokens])
        refusal = Refusal(LOCK_LOST, LOCK_LOST_TEXT)
        if self._goes_to_one(by_partition, command, refusal):
            return

        def join(answers: list[Any]) -> Reply | None:
            refused = answer_join.refused(answers)
            if refused is not None:
                return refused
            untils = [0] * len(command.tokens)
            for places, answer in zip(by_partition.values(), answers, strict=True):
                for place, until in zip(places, answer.numbers, strict=True):
                    untils[place] = until
            return Numbered(command.origin, command.tag, untils)

        answer_join = AnswerJoin(command.origin, command.tag, len(by_partition), join)
        for at, (partition_index, places) in enumerate(by_partition.items()):
            tokens = _tokens(command.tokens, places)
            self._reach.ask(
                partition_index, RenewLocks(answer_join.part(at), 0, tokens, command.consumer)
            )

    def cancel(self, command: CancelScheduled) -> None:
        """Scheduled messages are taken back, partition by partition."""
        by_partition = self._by_partition(command.sequences)
        refusal = self._not_found("scheduled", command.sequences)
        if self._goes_to_one(by_partition, command, refusal):
            return

        def join(answers: list[Any]) -> Reply | None:
            refused = answer_join.refused(answers)
            return Numbered(command.origin, command.tag, []) if refused is None else refused

        answer_join = AnswerJoin(command.origin, command.tag, len(by_partition), join)
        for at, (partition_index, places) in enumerate(by_partition.items()):
            sequences = [command.sequences[place] for place in places]
            self._reach.ask(partition_index, CancelScheduled(answer_join.part(at), 0, sequences))

    def receive_deferred(self, command: ReceiveDeferred) -> None:
        """Deferred messages by number, all or none."""
        by_partition = self._by_partition(command.sequences)
        refusal = self._not_found("deferred", command.sequences)
        if self._goes_to_one(by_partition, command, refusal):
            return
        groups = {
            partition_index: [command.sequences[place] for place in places]
            for partition_index, places in by_partition.items()
        }
        DeferredJoin(command, groups, self._reach).start()

    def ask_all(self, command: Any, join: Join) -> None:
        """Ask all partitions the same, none of which may be missing, and join their answers."""

        def join_all(answers: list[Any]) -> Reply:
            refused = answer_join.refused(answers)
            return join(command, answers) if refused is None else refused

        answer_join = AnswerJoin(command.origin, command.tag, self._reach.count, join_all)
        if self._reaches_all(command.origin, command.tag):
            for index in range(self._reach.count):
                self._reach.ask(index, part_of(command, answer_join.part(index)))

    def list_sessions(self, command: ListSessions) -> None:
        """A page of the names of all partitions' sessions; none may be missing."""
        end = command.skip + command.top

        def join(answers: list[Any]) -> Reply | None:
            refused = answer_join.refused(answers)
            if refused is not None:
                return refused
            names = page_of([each.names for each in answers], command.skip, command.top)
            return Named(command.origin, command.tag, names)

        answer_join = AnswerJoin(command.origin, command.tag, self._reach.count, join)
        if self._reaches_all(command.origin, command.tag):
            for index in range(self._reach.count):
                part = answer_join.part(index)
                after = command.updated_after
                self._reach.ask(index, ListSessions(part, 0, command.lane, after, 0, end))

    def _by_partition(self, sequences: list[int]) -> dict[int, list[int]]:
        """Which partitions have the numbers at which places of the list."""
        by_partition: dict[int, list[int]] = {}
        for place, sequence in enumerate(sequences):
            by_partition.setdefault(partition_of_sequence(sequence), []).append(place)
        return by_partition or {0: []}

    def _goes_to_one(
        self,
        by_partition: dict[int, list[int]],
        command: SettleAll | RenewLocks | CancelScheduled | ReceiveDeferred,
        unknown: Refusal,
    ) -> bool:
        """Refuse what cannot be, and pass on as it is what concerns one partition alone."""
        refusal: Refusal | None = None
        if all(self._reach.has(partition_index) for partition_index in by_partition):
            refusal = self._reach.missing(by_partition)
        else:
            refusal = unknown
        if refusal is not None:
            self._reach.refuse(command.origin, [command.tag], refusal)
            return True
        if len(by_partition) == 1:
            whole: Command = command
            for partition_index in by_partition:
                self._reach.ask(partition_index, whole)
            return True
        return False

    def _not_found(self, state: str, sequences: list[int]) -> Refusal:
        unknown = 0
        for sequence in sequences:
            if not self._reach.has(partition_of_sequence(sequence)):
                unknown = sequence
                break
        text = f"No {state} message has the sequence number {unknown}."
        return Refusal(MESSAGE_NOT_FOUND, text)

    def _reaches_all(self, origin: Origin, tag: int) -> bool:
        refusal = self._reach.missing(range(self._reach.count))
        if refusal is not None:
            self._reach.refuse(origin, [tag], refusal)
        return refusal is None


def part_of(command: Any, origin: Origin) -> Command:
    """Return the same command, asked for by the origin of a part."""
    values = {field.name: getattr(command, field.name) for field in fields(command)}
    values.update(origin=origin, tag=0)
    return cast(Command, type(command)(**values))


def page_of(lists: list[list[str]], skip: int, top: int) -> list[str]:
    """Some names of several sorted lists, as if they were one, from a place on. That place is
    found by halves: what lies before it is not looked at."""
    begins = [0] * len(lists)
    ends = [len(names) for names in lists]
    while sum(begins) < skip and begins != ends:
        widest = max(range(len(lists)), key=lambda at: ends[at] - begins[at])
        middle = (begins[widest] + ends[widest]) // 2
        name = lists[widest][middle]
        before = [
            bisect_left(names, name, begin, end)
            for names, begin, end in zip(lists, begins, ends, strict=True)
        ]
        if sum(before) < skip:
            before[widest] += 1  # that name is before the place, too
            begins = before
        else:
            ends = before
    found: list[str] = []
    for names, begin in zip(lists, begins, strict=True):
        found += names[begin : begin + top]
    return sorted(found)[:top]


def _tokens(tokens: list[LockToken], places: list[int]) -> list[LockToken]:
    return [tokens[place] for place in places]
