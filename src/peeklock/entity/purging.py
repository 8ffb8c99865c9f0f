"""The oldest messages of all sessions, found without looking at every session in one decision."""

from __future__ import annotations

import heapq
from typing import final

from peeklock.entity.commands import DeleteMany
from peeklock.entity.lane import Entry, Lane
from peeklock.entity.records import READY
from peeklock.entity.session import MessageSession, SessionBook
from peeklock.entity.stint import Stint


@final
class Purge:
    """A command that deletes of all sessions, while it looks for those that have the oldest.

    The oldest so many messages are in so many sessions at most: those whose first messages are the
    oldest. So only these are kept, however many sessions there are.
    """

    __slots__ = ("_at", "_firsts", "_sessions", "book", "command")

    def __init__(self, command: DeleteMany, book: SessionBook) -> None:
        self.command: DeleteMany = command
        self.book: SessionBook = book
        self._sessions: list[MessageSession] = list(book.sessions.values())
        self._at: int = 0
        self._firsts: list[tuple[int, Entry, Lane]] = []  # heap of the highest number on top

    def look_on(self, stint: Stint) -> bool:
        """Look at some more sessions; tells whether all were looked at."""
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
        """A heap of the first message of each line that was found and still has any."""
        found: list[tuple[int, Entry, Lane]] = []
        for negative, entry, line in self._firsts:
            if entry.place == READY:
                found.append((-negative, entry, line))
            else:  # taken meanwhile: the next one instead, so that not too few are found
                following = line.oldest(self.command.enqueued_before, 1)
                found += [(each.sequence, each, line) for each in following]
        heapq.heapify(found)
        return found
