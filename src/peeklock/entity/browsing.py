"""Reaching messages by number or age instead of by turn: peek, deferred, batch delete, counts."""

from __future__ import annotations

from typing import Any, final

from peeklock.entity.commands import (
    PEEK_LOCK,
    Count,
    DeleteMany,
    Peek,
    ReceiveDeferred,
)
from peeklock.entity.definition import DISABLED, RECEIVE_DISABLED
from peeklock.entity.delivering import Delivering, look_at
from peeklock.entity.lane import WITH_SESSION, Entry, Lane
from peeklock.entity.records import DEFERRED, PURGED, SCHEDULED, Removed
from peeklock.entity.refusals import (
    ENTITY_DISABLED,
    MESSAGE_NOT_FOUND,
    SESSION_LOCK_LOST,
    SESSION_LOCK_LOST_TEXT,
    Refusal,
)
from peeklock.entity.replies import (
    STATE_ACTIVE,
    STATE_DEFERRED,
    STATE_SCHEDULED,
    Counted,
    Delivery,
    Found,
    Numbered,
    Refused,
)
from peeklock.entity.session import MessageSession
from peeklock.entity.state import State


@final
class Browsing:
    """Looks at and fetches messages out of turn."""

    __slots__ = ("_delivering", "_state")

    def __init__(self, state: State, delivering: Delivering) -> None:
        self._state: State = state
        self._delivering: Delivering = delivering

    def peek(self, command: Peek) -> None:
        """Messages in the order of their numbers, within the limits, at least one if any."""
        if self._refuse_disabled(command.origin, command.tag, command.lane):
            return
        line = self._line(command.lane, command.session_id)
        found: list[Delivery] = []
        size = 0
        entries = line.browse(command.from_sequence, command.count_max) if line else []
        for entry in entries:
            size += entry.size
            if found and size > command.bytes_max:
                break
            found.append(look_at(entry, _seen_as(entry)))
        self._state.replies.append(Found(command.origin, command.tag, found))

    def receive_deferred(self, command: ReceiveDeferred, now: int) -> None:
        """Deferred messages by number, all or none."""
        if self._refuse_disabled(command.origin, command.tag, command.lane):
            return
        state = self._state
        line = self._line(command.lane, command.session_id)
        entries: list[Entry] = []
        for sequence in dict.fromkeys(command.sequences):
            entry = None if line is None else line.deferred.get(sequence)
            if entry is None:
                text = f"No deferred message has the sequence number {sequence}."
                refusal = Refusal(MESSAGE_NOT_FOUND, text)
                state.replies.append(Refused(command.origin, [command.tag], refusal))
                return
            entries.append(entry)
        found: list[Delivery] = []
        if line is not None and entries:
            session = line.session
            if session is not None and (session.holder is None or session.until <= now):
                # Deferred messages of a session need the session's lock, like all others.
                refusal = Refusal(SESSION_LOCK_LOST, SESSION_LOCK_LOST_TEXT)
                state.replies.append(Refused(command.origin, [command.tag], refusal))
                return
            until = now + state.policy(line.number).lock_duration_ms
            for entry in entries:
                del line.deferred[entry.sequence]
                if command.mode == PEEK_LOCK:
                    lasts = until if session is None else WITH_SESSION
                    found.append(self._delivering.lock(line, entry, command.origin, lasts, True))
                else:
                    found.append(self._delivering.remove(line, entry, STATE_DEFERRED))
                state.note_delivery(line.number, entry.sequence)
        state.replies.append(Found(command.origin, command.tag, found))

    def delete_many(self, command: DeleteMany, now: int) -> None:
        """The oldest ready messages that entered before an instant are deleted."""
        if self._refuse_disabled(command.origin, command.tag, command.lane):
            return
        state = self._state
        line = self._line(command.lane, command.session_id)
        deleted: list[int] = []
        lines = [] if line is None else [line]
        if line is not None and line.book is not None:
            sessions = sorted(line.book.sessions.values(), key=_first_sequence)
            lines = [session.line for session in sessions]
        for each in lines:
            self._delete_from(each, command, deleted)
        if deleted:
            state.records.append(Removed(now, command.lane, PURGED, deleted))
        state.replies.append(Numbered(command.origin, command.tag, [len(deleted)]))

    def _delete_from(self, line: Lane, command: DeleteMany, deleted: list[int]) -> None:
        left = command.count_max - len(deleted)
        for entry in line.oldest(command.enqueued_before, left):
            deleted.append(entry.sequence)
            self._state.forget(line.drop_ready(entry))
        line.skip_gone()
        session = line.session
        book = line.whole().book
        if session is not None and book is not None:
            book.forget_if_empty(session)

    def count(self, command: Count) -> None:
        """How many messages are in which state."""
        main = self._state.lane(command.lane)
        dead = self._state.lane(command.lane | 1)
        locked = len(main.locked)
        self._state.replies.append(
            Counted(
                command.origin,
                command.tag,
                active=main.total_ready() + locked,
                dead_letter=dead.ready_count + len(dead.locked) + len(dead.deferred),
                scheduled=len(main.scheduled),
                deferred=main.total_deferred(),
                locked=locked,
                bytes=self._state.bodies.size,
            )
        )

    def _line(self, lane_number: int, session_id: str | None) -> Lane | None:
        """The lane, or the line of one of its sessions if there is such a one."""
        lane = self._state.lane(lane_number)
        if session_id is None or lane.book is None:
            return lane
        session = lane.book.sessions.get(session_id)
        return None if session is None else session.line

    def _refuse_disabled(self, origin: Any, tag: int, lane: int) -> bool:
        policy = self._state.policy(lane)
        if policy.status not in (DISABLED, RECEIVE_DISABLED):
            return False
        text = f"Messaging entity '{policy.path}' is currently disabled."
        self._state.replies.append(Refused(origin, [tag], Refusal(ENTITY_DISABLED, text)))
        return True


def _first_sequence(session: MessageSession) -> int:
    return session.line.first_sequence()


def _seen_as(entry: Entry) -> int:
    if entry.place == DEFERRED:
        return STATE_DEFERRED
    if entry.place == SCHEDULED:
        return STATE_SCHEDULED
    return STATE_ACTIVE
