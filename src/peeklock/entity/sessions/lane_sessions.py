"""Message sessions: ordered groups of messages, each locked as a whole by one receiver.

A lane that requires sessions has a `LaneSessions`. Each session has a line of its own, a `Lane`
like any other; what differs is who may receive from it (its holder), and that its messages are
locked as long as the session is, not each for itself.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, final

from peeklock.entity.commands import AcceptSession
from peeklock.entity.entries import Lock
from peeklock.entity.lane import LENGTHENED_AT_ONCE, Lane
from peeklock.entity.message import NEVER
from peeklock.entity.moves.receiver import Receiver
from peeklock.entity.replies import Origin
from peeklock.entity.upkeep.live_bodies import LiveBodies
from peeklock.large_dict import LargeDict

# So many waits that are over may lie in the heap of their deadlines before it is built anew.
_STALE_WAITS_MAX: Final = 256


NO_SESSIONS_TEXT = (
    "It is not possible for an entity that does not require sessions to create a sessionful "
    "message receiver."
)


@final
class MessageSession:
    """One session: its messages, its holder, and what was stored with it."""

    __slots__ = (
        "claimant",
        "holder",
        "id",
        "line",
        "locks",
        "offered",
        "state",
        "state_set_at",
        "until",
    )

    def __init__(self, id: str, lane: Lane) -> None:
        self.id: str = id
        self.line: Lane = Lane(lane.number, lane)
        self.line.session = self
        self.holder: Receiver | None = None
        self.until: int = NEVER  # when the holder's lock ends
        self.claimant: str | None = None  # the owner that has claimed messages of it
        self.offered: int = 0  # the number under which it waits to be accepted; 0: it does not
        self.locks: LargeDict[int, Lock] = LargeDict()  # of messages that the holder has
        self.state: bytes | None = None
        self.state_set_at: int = NEVER

    @property
    def is_free(self) -> bool:
        """Whether somebody can have it: no receiver holds it, and no owner has claimed of it."""
        return self.holder is None and self.claimant is None

    def is_listed(self, updated_after: int | None) -> bool:
        """Return whether it has messages or a state; after an instant, whether its state was set
        later."""
        if updated_after is not None:
            return self.state is not None and self.state_set_at > updated_after
        line = self.line
        has_messages = line.ready_count > 0 or len(self.locks) > 0 or len(line.deferred) > 0
        return has_messages or self.state is not None or self.claimant is not None

    @property
    def is_empty(self) -> bool:
        """Whether nobody would miss it: no message, no state, no holder, no claim."""
        return (
            self.holder is None
            and self.claimant is None
            and self.state is None
            and not self.locks
            and self.line.ready_count == 0
            and not self.line.deferred
        )


@final
class LaneSessions:
    """The sessions of one lane, and those who wait for the next one that is free."""

    __slots__ = (
        "_available",
        "_bodies",
        "_deadlines",
        "_wait_number",
        "_waits",
        "by_id",
        "lane",
        "state_bytes",
        "waiting",
    )

    def __init__(self, lane: Lane, bodies: LiveBodies) -> None:
        self.lane: Lane = lane
        self._bodies: LiveBodies = bodies
        self.by_id: LargeDict[str, MessageSession] = LargeDict()
        self.state_bytes: int = 0  # of all of them
        # By origin, who waits longest first.
        self.waiting: OrderedDict[Origin, AcceptSession] = OrderedDict()
        # Heaps whose entries may be out of date; each is checked when its turn comes.
        self._available: list[tuple[int, str]] = []
        self._deadlines: list[tuple[int, str]] = []
        self._waits: list[tuple[int, int, AcceptSession]] = []
        self._wait_number: int = 0

    def session(self, id: str) -> MessageSession:
        """Return the session with this name; it exists from the first time it is named."""
        session = self.by_id.get(id)
        if session is None:
            session = MessageSession(id, self.lane)
            self.by_id[id] = session
            self._bodies.session_count += 1
        return session

    def set_state(self, session: MessageSession, state: bytes | None, at: int) -> None:
        """Keep some bytes with a session, or none any more."""
        before = session.state
        grown = (len(state) if state else 0) - (len(before) if before else 0)
        self.state_bytes += grown
        self._bodies.state_bytes += grown
        session.state = state
        session.state_set_at = NEVER if state is None else at

    def forget_if_empty(self, session: MessageSession) -> None:
        """A session without messages, state and holder does not exist."""
        if session.is_empty and self.by_id.pop(session.id) is not None:
            self.forgot_one()

    def forgot_one(self) -> None:
        """A session is forgotten."""
        self._bodies.session_count -= 1

    def offer(self, session: MessageSession) -> None:
        """A session may have become free or got something to give."""
        if session.is_free and session.line.ready_count:
            first = session.line.first_sequence()
            if session.offered == 0 or first < session.offered:
                session.offered = first
                heapq.heappush(self._available, (first, session.id))

    def next_available(self) -> MessageSession | None:
        """Return the free session with the oldest message."""
        while self._available:
            sequence, id = heapq.heappop(self._available)
            session = self.by_id.get(id)
            if session is None or session.offered != sequence:
                continue
            session.offered = 0
            if not session.is_free or not session.line.ready_count:
                continue
            if session.line.first_sequence() == sequence:
                return session
            self.offer(session)
        return None

    def held(self, id: str | None, holder: Origin | None, now: int) -> MessageSession | None:
        """Return the session with this name if it is held: by this origin, or by any (None)."""
        session = None if id is None else self.by_id.get(id)
        if session is None or session.holder is None or session.until <= now:
            return None
        if holder is not None and session.holder.origin is not holder:
            return None
        return session

    def hold(self, session: MessageSession, receiver: Receiver, until: int) -> None:
        """Give the session to a receiver."""
        session.holder = receiver
        self.renew(session, until)

    def renew(self, session: MessageSession, until: int) -> None:
        """Move the end of the session's lock."""
        session.until = until
        heapq.heappush(self._deadlines, (until, session.id))

    def lengthening(self, duration_ms: int) -> Iterator[int]:
        """Let all locks and waits end so much later, a part at a time; their order stays. Return
        how many each part had."""
        done = 0
        for session in self.by_id.values():
            if session.holder is not None:
                session.until += duration_ms
            done += 1
            if done == LENGTHENED_AT_ONCE:
                yield done
                done = 0
        for place, (until, id) in enumerate(self._deadlines):
            self._deadlines[place] = (until + duration_ms, id)
            done += 1
            if done == LENGTHENED_AT_ONCE:
                yield done
                done = 0
        for place, (until, at, wait) in enumerate(self._waits):
            self._waits[place] = (until + duration_ms, at, wait)
        yield done + len(self._waits)

    def look_again(self, session: MessageSession, at: int) -> None:
        """Have a session whose lock is over be found once more, from that instant on."""
        heapq.heappush(self._deadlines, (at, session.id))

    def next_expired(self, now: int) -> MessageSession | None:
        """Return a session whose lock is over; who does not end it now must `look_again`."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, id = heapq.heappop(self._deadlines)
            session = self.by_id.get(id)
            if session is not None and session.holder is not None and session.until <= now:
                return session
        return None

    def wait(self, command: AcceptSession) -> None:
        """Somebody waits for the next session that is free."""
        self.waiting[command.origin] = command
        self._wait_number += 1
        heapq.heappush(self._waits, (command.wait_until, self._wait_number, command))
        if len(self._waits) > 2 * len(self.waiting) + _STALE_WAITS_MAX:
            self._waits = [wait for wait in self._waits if self._is_waiting(wait[2])]
            heapq.heapify(self._waits)

    def timed_out(self, now: int, count_max: int) -> list[AcceptSession]:
        """Return some who waited long enough, taken out of the line, in the order in which they
        came."""
        late: list[tuple[int, AcceptSession]] = []
        while self._waits and self._waits[0][0] <= now and len(late) < count_max:
            _, number, command = heapq.heappop(self._waits)
            if self._is_waiting(command):
                del self.waiting[command.origin]
                late.append((number, command))
        late.sort(key=_number)
        return [command for _, command in late]

    def _is_waiting(self, command: AcceptSession) -> bool:
        return self.waiting.get(command.origin) is command

    def next_deadline(self) -> int:
        """Return the earliest instant at which a lock or a wait ends; 0 when there is none."""
        deadlines = self._deadlines
        while deadlines:
            until, id = deadlines[0]
            session = self.by_id.get(id)
            if session is not None and session.holder is not None and session.until <= until:
                break
            heapq.heappop(deadlines)
        deadline = deadlines[0][0] if deadlines else NEVER
        waits = self._waits
        while waits and not self._is_waiting(waits[0][2]):
            heapq.heappop(waits)
        if waits and (deadline == NEVER or waits[0][0] < deadline):
            deadline = waits[0][0]
        return deadline


def _number(wait: tuple[int, AcceptSession]) -> int:
    return wait[0]
