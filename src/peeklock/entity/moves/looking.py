"""A look at messages in the order of their numbers, without looking at all of them in one decision.

What a lane keeps in the order of numbers is found by bisection. What it keeps in another order (of
deadlines, or of the instants at which messages were set aside or came back) and what it keeps for
each session is looked through in stints, as it was when the look began; and only the lowest so many
numbers are kept.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from peeklock.entity.commands import Peek
from peeklock.entity.entries import GONE, Entry, Lock
from peeklock.entity.lane import Lane
from peeklock.entity.records import READY
from peeklock.entity.sessions.lane_sessions import MessageSession
from peeklock.entity.stint import Stint

# A look at a number costs less than a move: so many in one step.
NUMBERS: Final = 16


@final
class Look:
    """A peek that is under way."""

    __slots__ = (
        "_count_max",
        "_deferred",
        "_first",
        "_locks",
        "_lowest",
        "_returned",
        "_sessions",
        "command",
        "line",
    )

    def __init__(self, command: Peek, line: Lane) -> None:
        self.command: Peek = command
        self.line: Lane = line
        self._first: int = command.from_sequence
        self._count_max: int = command.count_max
        self._lowest: list[tuple[int, Entry]] = []  # heap of the highest number on top
        self._returned: list[tuple[int, Entry]] = line.returned[:]
        self._deferred: list[Entry] = line.deferred.listed()
        self._locks: list[Lock] = []
        self._sessions: list[MessageSession] = []
        session = line.session
        if session is not None:
            self._locks = session.locks.listed()
        elif line.sessions is not None:
            self._sessions = line.sessions.by_id.listed()
        else:
            self._locks = line.locked.listed()
        self._keep_ready(line)
        for entry in line.set_aside_from(self._first, self._count_max):
            self._keep(entry)

    def look_on(self, stint: Stint) -> bool:
        """Look at some more; return whether all was looked at."""
        left = NUMBERS * max(1, stint.steps_left)
        begun = left
        first = self._first
        returned = self._returned
        while returned and left > 0:
            sequence, entry = returned.pop()
            if sequence >= first and entry.place != GONE:
                self._keep(entry)
            left -= 1
        deferred = self._deferred
        while deferred and left > 0:
            entry = deferred.pop()
            if entry.sequence >= first and entry.place != GONE:
                self._keep(entry)
            left -= 1
        locks = self._locks
        while locks and left > 0:
            entry = locks.pop().entry
            if entry.sequence >= first and entry.place != GONE:
                self._keep(entry)
            left -= 1
        while self._sessions and left > 0:
            left -= self._look_at(self._sessions.pop())
        stint.spend((begun - left) // NUMBERS)
        return left > 0

    @property
    def has_lost_all(self) -> bool:
        """Whether all that was found is gone by now, so that there may be others."""
        return len(self._lowest) > 0 and len(self.found()) == 0

    def found(self) -> list[Entry]:
        """Return the lowest numbers of those that are still there, in order."""
        lowest = [pair[1] for pair in self._lowest if pair[1].place != GONE]
        lowest.sort(key=_sequence)
        return lowest

    def _look_at(self, session: MessageSession) -> int:
        """What a session has, as it is now; return what that cost."""
        first = self._first
        line = session.line
        cost = NUMBERS + self._keep_ready(line)
        for sequence, entry in line.returned:
            if sequence >= first and entry.place == READY:
                self._keep(entry)
        for entry in line.deferred.values():
            if entry.sequence >= first:
                self._keep(entry)
        for lock in session.locks.values():
            if lock.entry.sequence >= first:
                self._keep(lock.entry)
        return cost + len(line.returned) + len(line.deferred) + len(session.locks)

    def _keep_ready(self, line: Lane) -> int:
        """Ready ones in order, until one is too high; return how many were looked at."""
        ready = line.ready
        begin = at = line.find(self._first)
        while at < len(ready):
            entry = ready[at]
            at += 1
            if entry.place == READY and not self._keep(entry):
                break
        return at - begin

    def _keep(self, entry: Entry) -> bool:
        """Keep an entry if it is among the lowest so far; return whether it is."""
        lowest = self._lowest
        if len(lowest) < self._count_max:
            heapq.heappush(lowest, (-entry.sequence, entry))
            return True
        if not lowest or -lowest[0][0] <= entry.sequence:
            return False
        heapq.heapreplace(lowest, (-entry.sequence, entry))
        return True


def _sequence(entry: Entry) -> int:
    return entry.sequence
