"""Locks of receivers that are gone, where an entity wants them back at once.

A lock knows whose it is, a receiver does not know its locks: that would cost something for each
message. So they are looked for, in stints, and for all who have gone meanwhile in one walk.
"""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.entries import Lock
from peeklock.entity.lane import Lane
from peeklock.entity.moves.receiver import Receiver
from peeklock.entity.moves.settling import Settling
from peeklock.entity.replies import Origin
from peeklock.entity.state import State
from peeklock.entity.upkeep.journal_facts import RECEIVER_GONE

# A look at a lock costs less than a move: so many in one step.
LOOKS: Final = 16


@final
class Releasing:
    """Gives back, uncounted, what receivers had that are gone."""

    __slots__ = ("_gone", "_lane", "_locks", "_settling", "_sought", "_state")

    def __init__(self, state: State, settling: Settling) -> None:
        self._state: State = state
        self._settling: Settling = settling
        # By lane: whose locks are to be looked for by the next walk.
        self._gone: dict[Lane, dict[Origin, Receiver]] = {}
        # The walk under way: whose locks, in which lane, and those that were not looked at yet.
        self._sought: dict[Origin, Receiver] = {}
        self._lane: Lane | None = None
        self._locks: list[Lock] = []

    @property
    def is_under_way(self) -> bool:
        """Whether there are locks that were not looked at yet."""
        return len(self._gone) > 0 or self._lane is not None

    def add(self, receiver: Receiver) -> None:
        """A receiver is gone: what it has locked goes back."""
        self._gone.setdefault(receiver.lane.whole(), {})[receiver.origin] = receiver

    def go_on(self, now: int) -> None:
        """Look at some more locks: with what the stint has left, and with a quarter of one in any
        case."""
        stint = self._state.stint
        left = LOOKS * max(1, stint.steps_left, stint.steps_max // 4)
        while left > 0 and self.is_under_way:
            lane = self._lane
            if lane is None:
                lane, self._sought = self._gone.popitem()
                self._lane = lane
                self._locks = lane.locked.listed()
            left -= 1 + self._look(lane, left, now)
            if not self._locks:
                self._lane = None

    def _look(self, lane: Lane, looks: int, now: int) -> int:
        """Look at so many of a lane; return what that cost."""
        found: dict[Origin, list[Lock]] = {}
        cost = 0
        while self._locks and cost < looks:
            lock = self._locks.pop()
            cost += 1
            receiver = self._sought.get(lock.origin)
            if receiver is not None and lane.locked.get(lock.entry.sequence) is lock:
                found.setdefault(receiver.origin, []).append(lock)
                cost += LOOKS
        if self._state.lanes.get(lane.number) is not lane:
            self._locks = []  # it was dropped, and its locks with it
            return cost
        for origin, locks in found.items():
            locks.reverse()
            sequences = [lock.entry.sequence for lock in locks]
            consumer = self._sought[origin].consumer
            self._state.notes.released(lane.number, RECEIVER_GONE, consumer, sequences, now)
            self._settling.release(lane, locks, now)
        self._state.stint.spend(cost // LOOKS)
        return cost
