"""Who holds which message session: accepting, waiting for one, renewing, losing, state, names."""

from __future__ import annotations

from itertools import islice
from typing import assert_never, final

from peeklock.entity.commands import (
    RECEIVE_AND_DELETE,
    AcceptSession,
    GetSessionState,
    ListSessions,
    RenewSession,
    SessionCommand,
    SetSessionState,
)
from peeklock.entity.lane import Lane
from peeklock.entity.message import NEVER
from peeklock.entity.moves.receiver import Receiver
from peeklock.entity.records import LOCK_EXPIRED
from peeklock.entity.refusals import (
    NOT_ALLOWED,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    SESSION_LOCK_LOST_TEXT,
    TIMED_OUT,
    Refusal,
)
from peeklock.entity.replies import (
    Numbered,
    Origin,
    ReceiverClosed,
    Refused,
    SessionAccepted,
    StateFound,
)
from peeklock.entity.sessions.lane_sessions import NO_SESSIONS_TEXT, LaneSessions, MessageSession
from peeklock.entity.sessions.listing import Listing
from peeklock.entity.sessions.records import SessionStateSet
from peeklock.entity.state import State
from peeklock.entity.upkeep.journal_facts import (
    RECONFIGURED,
    SESSION_CLOSED,
    SESSION_LOST,
    SESSION_RENEWED,
    SESSION_TAKEN_BACK,
)
from peeklock.large_dict import LargeDict

BEING_TAKEN_BACK_TEXT = (
    "The requested session cannot be accepted yet: what its last receiver had is being returned."
)


@final
class Accepting:
    """Gives sessions to receivers and takes them back."""

    __slots__ = ("_listing", "_state")

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._listing: Listing = Listing(state)

    def decide(self, command: SessionCommand, now: int) -> bool:
        """Carry out what is asked about sessions; False where it is to be asked again."""
        if isinstance(command, AcceptSession):
            self.accept(command, now)
        elif isinstance(command, RenewSession):
            self.renew(command, now)
        elif isinstance(command, GetSessionState):
            self.get_state(command, now)
        elif isinstance(command, SetSessionState):
            self.set_state(command, now)
        elif isinstance(command, ListSessions):
            return self._listing.list(command)
        else:
            assert_never(command)
        return True

    def accept(self, command: AcceptSession, now: int) -> None:
        """A named session at once or not at all; the next one now, or as soon as there is one."""
        if self._state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        lane_sessions = self._state.lane(command.lane).sessions
        if lane_sessions is None:
            self._refuse(command.origin, command.tag, Refusal(NOT_ALLOWED, NO_SESSIONS_TEXT))
            return
        if command.session_id is None:
            session = lane_sessions.next_available()
            if session is None:
                lane_sessions.wait(command)
                self._state.watch(lane_sessions.lane)
                return
        else:
            session = lane_sessions.session(command.session_id)
            is_held = session.holder is not None and session.until > now
            if is_held or session.claimant is not None:
                text = (
                    f"The requested session '{command.session_id}' cannot be accepted. "
                    "It may be locked by another receiver."
                )
                refusal = Refusal(SESSION_CANNOT_BE_LOCKED, text)
                self._refuse(command.origin, command.tag, refusal)
                return
            if session.holder is not None and not self._lose(lane_sessions, session, now):
                refusal = Refusal(SESSION_CANNOT_BE_LOCKED, BEING_TAKEN_BACK_TEXT)
                self._refuse(command.origin, command.tag, refusal)
                return
        self._give(lane_sessions, session, command, now)

    def serve_waiting(self, lane: Lane, now: int) -> None:
        """Sessions that became free go to those who wait longest."""
        lane_sessions = lane.sessions
        if lane_sessions is None or not self._state.is_open(lane.number):
            return
        while lane_sessions.waiting:
            session = lane_sessions.next_available()
            if session is None:
                return
            _, waiting = lane_sessions.waiting.popitem(last=False)
            self._give(lane_sessions, session, waiting, now)

    def close(self, receiver: Receiver, now: int) -> None:
        """A receiver lets its session go: what it held returns in order, uncounted."""
        session = receiver.lane.session
        lane_sessions = receiver.lane.whole().sessions
        if session is None or lane_sessions is None or session.holder is not receiver:
            return
        self._return_all(lane_sessions, session, SESSION_CLOSED, now)
        self._free(lane_sessions, session)

    def take_some_back(self, lane: Lane, now: int) -> bool:
        """Return the sessions of a lane are taken from their holders, who are told, a stint of
        them; nothing is counted. Return whether those were all."""
        lane_sessions = lane.sessions
        if lane_sessions is None:
            return True
        stint = self._state.stint
        is_first = True
        for receiver in list(self._state.receivers.values()):
            session = receiver.lane.session
            if session is None or receiver.lane.whole() is not lane:
                continue
            if stint.is_over and not is_first:
                return False
            is_first = False
            stint.spend(1 + len(session.locks))
            self._return_all(lane_sessions, session, RECONFIGURED, now)
            self._note(lane_sessions, session, SESSION_TAKEN_BACK, now)
            self._dismiss(session)
            self._free(lane_sessions, session)
        return True

    def _return_all(
        self, lane_sessions: LaneSessions, session: MessageSession, why: int, now: int
    ) -> None:
        """What the holder has of the session goes back to where it was, uncounted."""
        locks = session.locks.listed()
        holder = session.holder
        if locks and holder is not None:
            sequences = [lock.entry.sequence for lock in locks]
            notes = self._state.notes
            notes.released(lane_sessions.lane.number, why, holder.consumer, sequences, now)
        for lock in locks:
            del lane_sessions.lane.locked[lock.entry.sequence]
        self._state.restore_places(lane_sessions.lane, locks, now)
        session.locks = LargeDict()

    def stop_waiting(self, origin: Origin) -> None:
        """Somebody who waited for a session is gone."""
        for lane in self._state.lanes.values():
            if lane.sessions is not None:
                lane.sessions.waiting.pop(origin, None)

    def tick(self, lane: Lane, now: int) -> None:
        """Locks that are over are lost, waits that are over are refused, a stint of them."""
        lane_sessions = lane.sessions
        if lane_sessions is None:
            return
        stint = self._state.stint
        while not stint.is_over:
            session = lane_sessions.next_expired(now)
            if session is None:
                break
            if _still_receives(session):
                stint.spend(1)
                lane_sessions.look_again(
                    session, now + self._state.policy(lane.number).lock_duration_ms
                )
                self._state.watch(lane)
            else:
                self._lose(lane_sessions, session, now)
        late = lane_sessions.timed_out(now, stint.steps_left)
        stint.spend(len(late))
        for waiting in late:
            text = (
                "The operation did not complete within the allotted timeout. "
                "No session was available."
            )
            self._refuse(waiting.origin, waiting.tag, Refusal(TIMED_OUT, text))

    def renew(self, command: RenewSession, now: int) -> None:
        """A whole duration from now for the holder."""
        if self._state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        held = self._held(command.lane, command.session_id, command.holder, now)
        if held is None:
            self._refuse_lost(command.origin, command.tag)
            return
        until = now + self._state.policy(command.lane).lock_duration_ms
        lane_sessions = self._state.lane(command.lane).sessions
        assert lane_sessions is not None, "a session that is held is in a book"
        lane_sessions.renew(held, until)
        self._state.watch(lane_sessions.lane)
        self._note(lane_sessions, held, SESSION_RENEWED, now)
        self._state.replies.append(Numbered(command.origin, command.tag, [until]))

    def get_state(self, command: GetSessionState, now: int) -> None:
        """What was stored with the session."""
        if self._state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        held = self._held(command.lane, command.session_id, command.holder, now)
        if held is None:
            self._refuse_lost(command.origin, command.tag)
            return
        self._state.replies.append(StateFound(command.origin, command.tag, held.state))

    def set_state(self, command: SetSessionState, now: int) -> None:
        """Store some bytes with the session, or clear them."""
        if self._state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        held = self._held(command.lane, command.session_id, command.holder, now)
        if held is None:
            self._refuse_lost(command.origin, command.tag)
            return
        lane_sessions = held.line.whole().sessions
        assert lane_sessions is not None, "a session is in a book"
        lane_sessions.set_state(held, command.state, now)
        self._state.records.append(
            SessionStateSet(now, command.lane, command.session_id, command.state)
        )
        self._state.replies.append(Numbered(command.origin, command.tag, []))

    def _give(
        self, lane_sessions: LaneSessions, session: MessageSession, command: AcceptSession, now: int
    ) -> None:
        receiver = Receiver(command.origin, session.line, command.mode, command.consumer)
        self._state.receivers[command.origin] = receiver
        until = now + self._state.policy(command.lane).lock_duration_ms
        lane_sessions.hold(session, receiver, until)
        self._state.watch(lane_sessions.lane)
        self._state.replies.append(SessionAccepted(command.origin, command.tag, session.id, until))

    def _lose(self, lane_sessions: LaneSessions, session: MessageSession, now: int) -> bool:
        """The session's lock is over: the deliveries count, the holder is told. What it had goes
        back in stints, and until all of it is back nobody gets the session; return whether it is
        free."""
        stint = self._state.stint
        locks = list(islice(session.locks.values(), max(1, stint.steps_left)))
        stint.spend(1 + len(locks))
        for lock in locks:
            del session.locks[lock.entry.sequence]
            del lane_sessions.lane.locked[lock.entry.sequence]
        if locks:
            self._state.give_back(lane_sessions.lane, locks, LOCK_EXPIRED, now)
        holder = session.holder
        if holder is not None and not holder.closed:
            self._note(lane_sessions, session, SESSION_LOST, now)
            self._dismiss(session)
        if session.locks:
            lane_sessions.look_again(session, session.until)
            self._state.watch(lane_sessions.lane)
            return False
        self._free(lane_sessions, session)
        return True

    def _note(
        self, lane_sessions: LaneSessions, session: MessageSession, why: int, now: int
    ) -> None:
        """For the journal: what became of the lock of a session."""
        holder = session.holder
        if holder is not None:
            notes = self._state.notes
            notes.session(lane_sessions.lane.number, why, holder.consumer, session.id, now)

    def _dismiss(self, session: MessageSession) -> None:
        """The holder of a session is one no longer, and is told so."""
        receiver = session.holder
        if receiver is not None:
            receiver.closed = True
            self._state.receivers.pop(receiver.origin, None)
            refusal = Refusal(SESSION_LOCK_LOST, SESSION_LOCK_LOST_TEXT)
            self._state.replies.append(ReceiverClosed(receiver.origin, refusal))

    def _free(self, lane_sessions: LaneSessions, session: MessageSession) -> None:
        session.holder = None
        session.until = NEVER
        session.line.waiting.clear()
        session.line.watchers = None
        if session.is_empty:
            lane_sessions.forget_if_empty(session)
        else:
            lane_sessions.offer(session)
            self._state.touch(session.line)

    def _held(
        self, lane_number: int, session_id: str, holder: Origin | None, now: int
    ) -> MessageSession | None:
        lane_sessions = self._state.lane(lane_number).sessions
        return None if lane_sessions is None else lane_sessions.held(session_id, holder, now)

    def _refuse_lost(self, origin: Origin, tag: int) -> None:
        self._refuse(origin, tag, Refusal(SESSION_LOCK_LOST, SESSION_LOCK_LOST_TEXT))

    def _refuse(self, origin: Origin, tag: int, refusal: Refusal) -> None:
        self._state.replies.append(Refused(origin, [tag], refusal))


def _still_receives(session: MessageSession) -> bool:
    """Return whether the holder of a session whose lock is over can still be given messages: it
    keeps no lock on any, and no client renews for it, so that nobody is wronged until another one
    wants the session."""
    holder = session.holder
    return holder is not None and holder.mode == RECEIVE_AND_DELETE and holder.has_credit()
