"""Wishes that go from partition to partition: looking at messages, and deleting many."""

from __future__ import annotations

from typing import Final, final

from peeklock.broker.partitioned.reach import ReachablePartitions
from peeklock.entity.commands import DeleteMany, Peek
from peeklock.entity.deliveries import Delivery
from peeklock.entity.refusals import UNAVAILABLE, Refusal
from peeklock.entity.replies import Found, Numbered, Refused, Reply
from peeklock.entity.routing import PARTITION_BITS, partition_of_sequence


@final
class PeekWalk:
    """Looks at messages in ascending order of their numbers, over all partitions (R-P6).

    A partition that gave something is asked once more from there on, because it may have stopped
    for the size of the answer: only one that has nothing left is left behind.
    """

    __slots__ = ("_command", "_found", "_has_answer", "_index", "_is_done", "_left", "_reach")

    def __init__(self, command: Peek, reach: ReachablePartitions) -> None:
        self._command: Final[Peek] = command
        self._reach: Final[ReachablePartitions] = reach
        self._found: list[Delivery] = []
        self._left: int = command.bytes_max
        self._index: int = partition_of_sequence(max(0, command.from_sequence))
        self._has_answer: bool = False  # whether any partition could be asked at all
        self._is_done: bool = False

    def start(self) -> None:
        """Ask the first partition that can be asked."""
        if not self._reach.has(self._index):
            self._reach.answer(Found(self._command.origin, self._command.tag, []))
        elif not self._ask(self._command.from_sequence):
            self._reach.answer(self._result())

    def replied(self, reply: Reply) -> None:
        """Add what was found, and go on where there is room for more."""
        goes_on = False
        if isinstance(reply, Found):
            self._has_answer = True
            goes_on = self._take(reply.deliveries)
        elif isinstance(reply, Refused):
            if reply.refusal.kind != UNAVAILABLE:
                self._answer(Refused(self._command.origin, [self._command.tag], reply.refusal))
                return
            goes_on = self._ask_next()
        if not goes_on:
            self._answer(self._result())

    def flush(self) -> None:
        """Write out the answer, once it is there."""
        if self._is_done:
            self._is_done = False
            self._command.origin.flush()

    def _take(self, deliveries: list[Delivery]) -> bool:
        """Take what fits; answers whether somebody was asked for more."""
        command = self._command
        for delivery in deliveries:
            size = 0 if delivery.message is None else delivery.message.size
            if self._found and size > self._left:
                return False
            self._left -= size
            self._found.append(delivery)
        if len(self._found) >= command.count_max or self._left <= 0:
            return False
        if deliveries:
            return self._ask(deliveries[-1].sequence + 1)
        return self._ask_next()

    def _ask_next(self) -> bool:
        self._index += 1
        return self._ask(self._index << PARTITION_BITS)

    def _ask(self, from_sequence: int) -> bool:
        """Ask the partition that is next and can be asked; answers whether there is one."""
        command = self._command
        while self._reach.has(self._index):
            if self._reach.can_ask(self._index):
                count_max = command.count_max - len(self._found)
                peek = Peek(self, 0, command.lane, from_sequence, count_max, max(1, self._left))
                self._reach.ask(self._index, peek)
                return True
            self._index += 1
            from_sequence = self._index << PARTITION_BITS
        return False

    def _result(self) -> Found | Refused:
        command = self._command
        if self._has_answer:
            return Found(command.origin, command.tag, self._found)
        first = partition_of_sequence(max(0, command.from_sequence))
        refusal = self._reach.out_of_reach(list(range(first, self._reach.count)))
        return Refused(command.origin, [command.tag], refusal)

    def _answer(self, reply: Found | Refused) -> None:
        self._is_done = True
        self._command.origin.replied(reply)


@final
class DeleteWalk:
    """Deletes messages of one partition after the other until so many are gone."""

    __slots__ = ("_command", "_deleted", "_index", "_is_done", "_reach")

    def __init__(self, command: DeleteMany, reach: ReachablePartitions) -> None:
        self._command: Final[DeleteMany] = command
        self._reach: Final[ReachablePartitions] = reach
        self._index: int = 0
        self._deleted: int = 0
        self._is_done: bool = False

    def start(self) -> None:
        """Ask the first partition; none is asked where one is missing."""
        refusal = self._reach.missing(range(self._reach.count))
        if refusal is None:
            self._ask()
        else:
            self._reach.refuse(self._command.origin, [self._command.tag], refusal)

    def replied(self, reply: Reply) -> None:
        """Add what was deleted, and go on where there is more to do."""
        command = self._command
        if isinstance(reply, Refused):
            self._answer(Refused(command.origin, [command.tag], self._why(reply.refusal)))
            return
        assert isinstance(reply, Numbered)
        self._deleted += reply.numbers[0]
        self._index += 1
        if self._deleted < command.count_max and self._reach.has(self._index):
            self._ask()
        else:
            self._answer(Numbered(command.origin, command.tag, [self._deleted]))

    def flush(self) -> None:
        """Write out the answer, once it is there."""
        if self._is_done:
            self._is_done = False
            self._command.origin.flush()

    def _ask(self) -> None:
        command = self._command
        count_max = command.count_max - self._deleted
        self._reach.ask(
            self._index, DeleteMany(self, 0, command.lane, count_max, command.enqueued_before)
        )

    def _why(self, refusal: Refusal) -> Refusal:
        """What is deleted stays deleted: say how many, where some are."""
        if not self._deleted:
            return refusal
        text = f"{refusal.text} {self._deleted} messages of other partitions were deleted."
        return Refusal(refusal.kind, text)

    def _answer(self, reply: Numbered | Refused) -> None:
        self._is_done = True
        self._command.origin.replied(reply)
