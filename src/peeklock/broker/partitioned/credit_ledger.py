"""The credit of one receiver, spread over the partitions of an entity (R-P5).

A receiver grants to the entity, by count and by bytes; the ledger lends slices of both to
partitions which have, as far as it knows, something to give. A partition uses its slice at once or
gives it back (a grant that drains), and tells later when there is something again (a grant that
watches), so that a receiver of an empty queue costs nothing. What is lent and what was delivered is
never more than the receiver granted, but for the last message of each slice, which may exceed its
bytes.

Partitions see slices as their receivers. A slice counts as its partition does: from 0 when it
was opened, and a drained grant counts as used up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from peeklock.broker.partitioned.reach import ReachablePartitions
from peeklock.budgets import Budget
from peeklock.entity.commands import CloseReceiver, Count, Grant, OpenReceiver
from peeklock.entity.refusals import Refusal
from peeklock.entity.replies import Delivered, Drained, Origin, Ready, ReceiverClosed, Reply

# How a slice stands with its partition.
APART: Final = 0  # out of reach; it opens when the partition does
OPENING: Final = 1  # asked to open, and the partition has still to open itself
OPEN: Final = 2

# A slice is at least this large while there is credit: turns are taken per run of messages.
RUN_MIN: Final = 16
# The same in bytes: with fewer slices at once, fewer messages exceed theirs.
RUN_SIZE_MIN: Final = 1 << 20


@final
class CreditSlice:
    """What one partition knows of the receiver; replies of the partition come here."""

    __slots__ = (
        "_is_drained",
        "_ledger",
        "granted",
        "index",
        "is_out",
        "is_ready",
        "lent",
        "recall",
        "size_delivered",
        "size_lent",
        "state",
    )

    def __init__(self, ledger: CreditLedger, index: int) -> None:
        self._ledger: Final[CreditLedger] = ledger
        self.index: Final[int] = index
        self.state: int = APART
        self.granted: int = 0  # the limit that the partition was told last
        self.lent: int = 0  # how much of it may still be delivered
        self.size_delivered: int = 0  # as the partition counts it
        self.size_lent: int = 0
        self.is_out: bool = False  # whether a grant has still to come back
        self._is_drained: bool = False  # whether it comes back with what is being said now
        self.is_ready: bool = False  # whether the partition is believed to have something
        self.recall: Recall | None = None

    def replied(self, reply: Reply) -> None:
        """Take what the partition says; what follows from it is seen when it has said all."""
        if isinstance(reply, Delivered):
            # A message that comes after the end is passed on too: its receiver knows what to do.
            self.lent = max(0, self.lent - len(reply.deliveries))
            self.size_lent = max(0, self.size_lent - reply.size)
            self.size_delivered += reply.size
            self._ledger.delivered(reply)
        elif isinstance(reply, Drained):
            self._is_drained = True
        elif isinstance(reply, Ready):
            self.is_ready = True
        elif isinstance(reply, ReceiverClosed):
            self.part()
            self._ledger.refusal = reply.refusal
        else:
            raise AssertionError(f"a slice is not answered with {reply!r}")

    def flush(self) -> None:
        """The partition has said all it had to say for now.

        Only now is a grant back: whether there is more is said after it.
        """
        if self._is_drained:
            self._is_drained = False
            if self.recall is None:
                self.is_out = False
                self.lent = 0
                self.size_lent = 0
        self._ledger.go_on()
        self._ledger.origin.flush()

    def part(self) -> None:
        """The partition is gone, and with it what was lent."""
        self.state = APART
        self._forget()
        self.is_ready = False
        self.recall = None

    def recalled(self, recall: Recall) -> None:
        """What was lent is back, and the partition counts from 0 again."""
        if self.recall is recall:
            self.recall = None
            self._forget()
            self.is_ready = True
            self._ledger.go_on()
            self._ledger.origin.flush()

    def _forget(self) -> None:
        """The partition knows of no grant any more."""
        self.granted = 0
        self.lent = 0
        self.size_delivered = 0
        self.size_lent = 0
        self.is_out = False
        self._is_drained = False


@final
class Recall:
    """Whoever answers to it has carried out all that was asked of the partition before."""

    __slots__ = ("_slice",)

    def __init__(self, slice: CreditSlice) -> None:
        self._slice: Final[CreditSlice] = slice

    def replied(self, reply: Reply) -> None:
        """The answer itself does not matter: that it has come does."""

    def flush(self) -> None:
        """All that the partition said before was heard."""
        self._slice.recalled(self)


@final
class CreditLedger:
    """Lends the credit of one receiver to partitions, and keeps count."""

    __slots__ = (
        "_budget",
        "_consumer",
        "_delivered",
        "_forget",
        "_is_closed",
        "_is_draining",
        "_is_short",
        "_lane",
        "_limit",
        "_mode",
        "_reach",
        "_size_delivered",
        "_size_limit",
        "_slices",
        "_turn",
        "origin",
        "refusal",
    )

    def __init__(
        self, command: OpenReceiver, reach: ReachablePartitions, forget: Callable[[Origin], None]
    ) -> None:
        self.origin: Final[Origin] = command.origin
        self.refusal: Refusal | None = None  # why a partition was lost last
        self._lane: Final[int] = command.lane
        self._mode: Final[int] = command.mode
        self._consumer: Final[str] = command.consumer
        self._reach: Final[ReachablePartitions] = reach
        self._forget: Final[Callable[[Origin], None]] = forget  # told when it is over by itself
        self._limit: int = 0
        self._delivered: int = 0
        self._size_limit: int = 0
        self._size_delivered: int = 0
        self._budget: Budget | None = None  # shared with other receivers
        self._is_short: bool = False  # it was told that the budget is exhausted
        self._is_draining: bool = False
        self._is_closed: bool = False
        self._slices: list[CreditSlice] = [CreditSlice(self, index) for index in range(reach.count)]
        self._turn: int = reach.in_turn()[0]

    # What the receiver does.

    def open(self) -> None:
        """Take a place at every partition that can be asked."""
        lost: list[int] = []
        for slice in self._slices:
            if self._reach.can_ask(slice.index):
                self._open(slice)
            else:
                lost.append(slice.index)
        if len(lost) == len(self._slices):
            self._end()
            self._reach.answer(ReceiverClosed(self.origin, self._reach.out_of_reach(lost)))

    def grant(self, command: Grant) -> None:
        """The receiver says how far it will take messages."""
        self._limit = command.limit
        self._size_limit = command.size_limit
        self._budget = command.budget
        self._is_short = False
        if command.drain:
            self._is_draining = True
        lent = self._lent()
        if lent and self._delivered + lent > self._limit:
            self._recall()
        answer = self._advance()
        if answer is not None:
            # Nothing is to be asked of anybody; the answer still does not come before its time.
            self._reach.answer(answer)

    def close(self, broken: bool) -> None:
        """The receiver is gone, and its places with it."""
        self._is_closed = True
        for slice in self._slices:
            if slice.state != APART:
                self._reach.ask(slice.index, CloseReceiver(slice, broken))

    # What partitions do.

    def opened(self, index: int) -> None:
        """A partition lives, for the first time or again."""
        slice = self._slices[index]
        if slice.state == APART:
            self._open(slice)
        slice.state = OPEN
        slice.is_ready = True
        answer = self._advance()
        if answer is not None:
            self._reach.answer(answer)

    def delivered(self, reply: Delivered) -> None:
        """Messages of one partition are passed on."""
        self._delivered += len(reply.deliveries)
        self._size_delivered += reply.size
        self.origin.replied(Delivered(self.origin, reply.mode, reply.deliveries, reply.size))

    def go_on(self) -> None:
        """Something has changed: lend again, or end a drain."""
        if self._is_closed:
            return
        if self.refusal is not None:
            refusal = self.refusal
            self.refusal = None
            if all(slice.state == APART for slice in self._slices):
                self._end()
                self.origin.replied(ReceiverClosed(self.origin, refusal))
                return
        answer = self._advance()
        if answer is not None:
            self.origin.replied(answer)

    def _end(self) -> None:
        self._is_closed = True
        self._forget(self.origin)

    # The count.

    def _lent(self) -> int:
        total = 0
        for slice in self._slices:
            total += slice.lent
        return total

    def _open(self, slice: CreditSlice) -> None:
        index = slice.index
        is_open = self._reach.workers[index].is_open
        slice.state = OPEN if is_open else OPENING
        # A partition that has still to open gets nothing yet: credit must not wait for it.
        slice.is_ready = is_open
        self._reach.ask(index, self._opening(slice))

    def _opening(self, slice: CreditSlice) -> OpenReceiver:
        return OpenReceiver(slice, self._lane, self._mode, self._consumer)

    def _recall(self) -> None:
        """The receiver wants less than before: take back what was lent and not used yet.

        The partition closes the slice and opens it anew; what it had decided on before that still
        comes, as it does to the receiver of a single partition.
        """
        for slice in self._slices:
            if slice.is_out and slice.recall is None:
                recall = Recall(slice)
                slice.recall = recall
                self._reach.ask(slice.index, CloseReceiver(slice, False))
                self._reach.ask(slice.index, self._opening(slice))
                self._reach.ask(slice.index, Count(recall, 0, self._lane))

    def _advance(self) -> Drained | Ready | None:
        """Lend what is left to those who are ready; answers when a drain has come to its end, or
        when there is something and the budget is exhausted."""
        left = self._limit - self._delivered - self._lent()
        size_left = self._size_limit - self._size_delivered - self._size_lent()
        is_short = False
        if left > 0 and size_left > 0:
            if self._budget is None or not self._budget.is_exhausted:
                self._lend(left, size_left)
            else:
                is_short = any(_can_borrow(slice) for slice in self._slices)
        if not self._is_draining:
            if not is_short or self._is_short:
                return None
            self._is_short = True
            return Ready(self.origin)
        is_exhausted = self._delivered >= self._limit
        is_cut_short = not is_exhausted and (is_short or self._size_delivered >= self._size_limit)
        has_more = False
        for slice in self._slices:
            if slice.is_out:
                return None
            if slice.state == OPENING and not is_exhausted and not is_cut_short:
                # It may have messages that were acknowledged before the drain was asked for. Who
                # is open and ready has got a slice by now, or there is none left.
                return None
            if is_cut_short and (slice.state == OPENING or _can_borrow(slice)):
                has_more = True
        self._is_draining = False
        self._delivered = max(self._delivered, self._limit)
        return Drained(self.origin, has_more)

    def _size_lent(self) -> int:
        total = 0
        for slice in self._slices:
            total += slice.size_lent
        return total

    def _lend(self, left: int, size_left: int) -> None:
        """Slices for all who are ready, in turns, as even as the smallest run allows."""
        ready = [slice for slice in self._slices if _can_borrow(slice)]
        if not ready:
            return
        first = self._turn
        ready.sort(key=lambda slice: (slice.index - first) % len(self._slices))
        parts = len(ready)
        share = max((left + parts - 1) // parts, min(left, RUN_MIN))
        size_share = max((size_left + parts - 1) // parts, min(size_left, RUN_SIZE_MIN))
        for slice in ready:
            count = min(share, left)
            size = min(size_share, size_left)
            left -= count
            size_left -= size
            slice.granted += count
            slice.lent = count
            slice.size_lent = size
            slice.is_out = True
            slice.is_ready = False  # until it says that there is more
            self._turn = (slice.index + 1) % len(self._slices)
            size_limit = slice.size_delivered + size
            grant = Grant(slice, slice.granted, True, True, size_limit, self._budget)
            self._reach.ask(slice.index, grant)
            if left == 0 or size_left == 0:
                return


def _can_borrow(slice: CreditSlice) -> bool:
    return slice.is_ready and slice.state == OPEN and not slice.is_out
