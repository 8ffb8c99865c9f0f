"""The names of sessions in their order, a page of them, without looking at all in one decision.

Names are gathered as they were when the list was begun, sorted in parts, and merged up to the end
of the page. One list after the other is made.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, final

from peeklock.entity.commands import ListSessions
from peeklock.entity.refusals import NOT_ALLOWED, Refusal
from peeklock.entity.replies import Named, Refused
from peeklock.entity.sessions.lane_sessions import NO_SESSIONS_TEXT, LaneSessions, MessageSession
from peeklock.entity.state import State
from peeklock.entity.stint import Stint

# Names that are looked at or merged in one step, of which a stint has many.
NAMES: Final = 4

# Names that are sorted at once.
SORTED_AT_ONCE: Final = 1024


@final
class SessionPage:
    """A list that is being made."""

    __slots__ = (
        "_left",
        "_merged",
        "_names",
        "_parts",
        "_sessions",
        "_skipped",
        "command",
        "names",
    )

    def __init__(self, command: ListSessions, lane_sessions: LaneSessions) -> None:
        self.command: ListSessions = command
        self.names: list[str] = []
        self._sessions: list[MessageSession] = lane_sessions.by_id.listed()
        self._names: list[str] = []  # those that are not sorted yet
        self._parts: list[list[str]] = []
        self._merged: Iterator[str] | None = None
        self._skipped: int = 0
        self._left: int = 0  # looks of the stint under way

    def look_on(self, stint: Stint) -> bool:
        """Look at some more; return whether the page is full or there are no others."""
        looks = self._left = NAMES * max(1, stint.steps_left)
        self._gather()
        is_done = not self._sessions and self._fill()
        stint.spend((looks - self._left) // NAMES)
        return is_done

    def _gather(self) -> None:
        command = self.command
        while self._sessions and self._left > 0:
            session = self._sessions.pop()
            self._left -= 1
            if session.is_listed(command.updated_after):
                self._names.append(session.id)
            if len(self._names) >= SORTED_AT_ONCE or not self._sessions:
                self._names.sort()
                self._parts.append(self._names)
                self._names = []

    def _fill(self) -> bool:
        command = self.command
        merged = self._merged
        if merged is None:
            merged = self._merged = heapq.merge(*self._parts)
        while len(self.names) < command.top:
            if self._left <= 0:
                return False
            self._left -= 1
            name = next(merged, None)
            if name is None:
                return True
            if self._skipped < command.skip:
                self._skipped += 1
            else:
                self.names.append(name)
        return True


@final
class Listing:
    """Answers who asks for the names of sessions."""

    __slots__ = ("_page", "_state")

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._page: SessionPage | None = None  # under way, in stints

    def list(self, command: ListSessions) -> bool:
        """Answer with a page; return whether that is done. Where there are very many sessions, the
        command has to be given again."""
        page = self._page
        if page is not None and page.command is command:
            self._page = None  # whatever comes of it now, nobody else waits for it
        elif page is not None:
            return False
        state = self._state
        if state.refuse_closed(command.origin, [command.tag], command.lane):
            return True
        lane_sessions = state.lane(command.lane).sessions
        if lane_sessions is None:
            refusal = Refusal(NOT_ALLOWED, NO_SESSIONS_TEXT)
            state.replies.append(Refused(command.origin, [command.tag], refusal))
            return True
        if page is None:
            page = SessionPage(command, lane_sessions)
        if not page.look_on(state.stint):
            self._page = page
            return False
        state.replies.append(Named(command.origin, command.tag, page.names))
        return True
