"""The oldest messages of a line or of all sessions, found without looking at all of them in one
decision."""

from __future__ import annotations

import heapq
from typing import Final, final

from peeklock.entity.commands import DeleteMany
from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane
from peeklock.entity.records import READY
from peeklock.entity.sessions.lane_sessions import LaneSessions, MessageSession
from peeklock.entity.stint import Stint

# A look at a message costs less than a move: so many in one step.
LOOKS: Final = 16


@final
class Sweep:
    """A command that deletes of one line, while it looks for those that entered early enough.

    The line is in the order of numbers, and one that entered later does not end the search. What
    came back to it is looked at first, as it was when the search began.
    """

    __slots__ = ("_found", "_next", "_of_line", "_returned", "command", "line")

    def __init__(self, command: DeleteMany, line: Lane) -> None:
        self.command: DeleteMany = command
        self.line: Lane = line
        self._returned: list[tuple[int, Entry]] = line.returned[:]
        self._next: int = 0  # the lowest number that was not looked at
        self._of_line: int = 0  # how many were found that had not come back
        self._found: list[Entry] = []

    def look_on(self, stint: Stint) -> bool:
        """Look at some more; return whether all were looked at, or enough were found."""
        left = looks = LOOKS * max(1, stint.steps_left)
        before = self.command.enqueued_before
        while self._returned and left > 0:
            left -= 1
            entry = self._returned.pop()[1]
            if entry.place == READY and entry.enqueued_at < before:
                self._found.append(entry)
        ready = self.line.ready
        at = self.line.find(self._next)
        while left > 0 and at < len(ready) and self._of_line < self.command.count_max:
            left -= 1
            entry = ready[at]
            at += 1
            self._next = entry.sequence + 1
            if entry.place == READY and entry.enqueued_at < before:
                self._found.append(entry)
                self._of_line += 1
        stint.spend((looks - left) // LOOKS)
        is_enough = at >= len(ready) or self._of_line >= self.command.count_max
        return is_enough and not self._returned

    def oldest(self) -> list[Entry]:
        """Return those with the lowest numbers that are still there, in order."""
        found = [entry for entry in self._found if entry.place == READY]
        found.sort(key=_sequence)
        del found[self.command.count_max :]
        return found


@final
class Purge:
    """A command that deletes of all sessions, while it looks for those that have the oldest.

    The oldest so many messages are in so many sessions at most: those whose first messages are the
    oldest. So only these are kept, however many sessions there are.
    """

    __slots__ = ("_at", "_firsts", "_sessions", "command", "line")

    def __init__(self, command: DeleteMany, lane_sessions: LaneSessions) -> None:
        self.command: DeleteMany = command
        self.line: Lane = lane_sessions.lane
        self._sessions: list[MessageSession] = lane_sessions.by_id.listed()
        self._at: int = 0
        self._firsts: list[tuple[int, Entry, Lane]] = []  # heap of the highest number on top

    def look_on(self, stint: Stint) -> bool:
        """Look at some more sessions; return whether all were looked at."""
        command = self.command
        firsts = self._firsts
        sessions = self._sessions
        end = min(len(sessions), self._at + max(1, stint.steps_left))
        stint.spend(end - self._at)
        for at in range(self._at, end):
            line = sessions[at].line
            if not line.ready_count:
                continue
            for entry in line.oldest(command.enqueued_before, 1):
                if len(firsts) < command.count_max:
                    heapq.heappush(firsts, (-entry.sequence, entry, line))
                elif firsts and -firsts[0][0] > entry.sequence:
                    heapq.heapreplace(firsts, (-entry.sequence, entry, line))
        self._at = end
        return end == len(sessions)

    def oldest(self) -> list[tuple[int, Entry, Lane]]:
        """Return a heap of the first message of each line that was found and still has any."""
        found: list[tuple[int, Entry, Lane]] = []
        for negative, entry, line in self._firsts:
            if entry.place == READY:
                found.append((-negative, entry, line))
            else:  # taken meanwhile: the next one instead, so that not too few are found
                following = line.oldest(self.command.enqueued_before, 1)
                found += [(each.sequence, each, line) for each in following]
        heapq.heapify(found)
        return found


def _sequence(entry: Entry) -> int:
    return entry.sequence
