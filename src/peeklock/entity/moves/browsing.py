"""Reaching messages by number or age instead of by turn: peek, deferred, batch delete, counts."""

from __future__ import annotations

import heapq
from typing import final

from peeklock.entity.commands import (
    MAIN,
    PEEK_LOCK,
    TRANSFER,
    TRANSFER_DEAD,
    Count,
    DeleteMany,
    Peek,
    ReceiveDeferred,
)
from peeklock.entity.deliveries import (
    STATE_ACTIVE,
    STATE_CLAIMED,
    STATE_DEFERRED,
    STATE_SCHEDULED,
    Delivery,
)
from peeklock.entity.entries import LOCKED, WITH_SESSION, Entry, Lock
from peeklock.entity.lane import Lane
from peeklock.entity.moves.delivering import Delivering, look_at
from peeklock.entity.moves.looking import Look
from peeklock.entity.moves.purging import Purge, Sweep
from peeklock.entity.records import CLAIMED, DEFERRED, PURGED, SCHEDULED, Removed
from peeklock.entity.refusals import (
    MESSAGE_NOT_FOUND,
    SESSION_LOCK_LOST,
    SESSION_LOCK_LOST_TEXT,
    Refusal,
    too_much_at_once,
)
from peeklock.entity.replies import NO_LANE, Counted, Found, Numbered, Refused
from peeklock.entity.state import State
from peeklock.large_dict import LargeDict


@final
class Browsing:
    """Looks at and fetches messages out of turn."""

    __slots__ = ("_delivering", "_look", "_purge", "_state")

    def __init__(self, state: State, delivering: Delivering) -> None:
        self._state: State = state
        self._delivering: Delivering = delivering
        # Under way, in stints.
        self._look: Look | None = None
        self._purge: Purge | Sweep | None = None

    def peek(self, command: Peek) -> bool:
        """Return messages in the order of their numbers, within the limits, at least one if any.
        Return whether that is done; where there is very much to look at, the command has to be
        given again."""
        look = self._look
        if look is not None and look.command is command:
            self._look = None  # whatever comes of it now, nobody else waits for it
        else:
            look = None
        if self._state.refuse_closed(command.origin, [command.tag], command.lane):
            return True
        found = self._browse(command, look)
        if found is None:
            return False
        locked = self._state.lane(command.lane).locked
        shown: list[Delivery] = []
        size = 0
        for entry in found:
            size += entry.size
            if shown and size > command.bytes_max:
                break
            shown.append(look_at(entry, _seen_as(entry, locked)))
        self._state.replies.append(Found(command.origin, command.tag, shown))
        return True

    def _browse(self, command: Peek, look: Look | None) -> list[Entry] | None:
        """Return what a peek finds, or None while it is under way; one after the other."""
        line = self._line(command.lane, command.session_id)
        if line is None:
            # A session that has nothing but scheduled messages does not exist yet.
            lane = self._state.lane(command.lane)
            first = command.from_sequence
            scheduled = lane.scheduled_of(command.session_id or "", first, command.count_max)
            return heapq.nsmallest(command.count_max, scheduled, key=_sequence)
        if self._look is not None:
            return None
        if look is None or look.line is not line:
            look = Look(command, line)
        if not look.look_on(self._state.stint):
            self._look = look
            return None
        if look.has_lost_all:
            self._look = Look(command, line)
            return None
        return look.found()

    def receive_deferred(self, command: ReceiveDeferred, now: int) -> None:
        """Deferred messages by number, all or none."""
        if self._state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        state = self._state
        lane_sessions = state.lane(command.lane).sessions
        if (
            lane_sessions is not None
            and lane_sessions.held(command.session_id, command.holder, now) is None
        ):
            # Deferred messages of a session need the session's lock, like all others.
            refusal = Refusal(SESSION_LOCK_LOST, SESSION_LOCK_LOST_TEXT)
            state.replies.append(Refused(command.origin, [command.tag], refusal))
            return
        line = self._line(command.lane, command.session_id)
        # Keyed by numbers that are known to be ours: a client's own could be made to collide.
        wanted: dict[int, Entry] = {}
        for sequence in command.sequences:
            entry = None if line is None else line.deferred.get(sequence)
            if entry is None:
                text = f"No deferred message has the sequence number {sequence}."
                refusal = Refusal(MESSAGE_NOT_FOUND, text)
                state.replies.append(Refused(command.origin, [command.tag], refusal))
                return
            wanted[entry.sequence] = entry
        size = _size_together(wanted)
        if len(wanted) > 1 and size > command.bytes_max:
            refusal = too_much_at_once(size, command.bytes_max)
            state.replies.append(Refused(command.origin, [command.tag], refusal))
            return
        found: list[Delivery] = []
        if line is not None and wanted:
            until = now + state.policy(line.number).lock_duration_ms
            for entry in wanted.values():
                line.undefer(entry.sequence)
                if command.mode == PEEK_LOCK:
                    lasts = until if line.session is None else WITH_SESSION
                    found.append(self._delivering.lock(line, entry, command.origin, lasts, True))
                else:
                    found.append(self._delivering.remove(line, entry, STATE_DEFERRED))
            state.notes.delivered(line.number, command.consumer, found, now)
        removed_from = NO_LANE if command.mode == PEEK_LOCK else command.lane
        state.replies.append(Found(command.origin, command.tag, found, removed_from))

    def delete_many(self, command: DeleteMany, now: int) -> bool:
        """Return the oldest ready messages that entered before an instant are deleted, of one
        session or of all. Return whether that is done; where there are very many sessions to look
        at, the command has to be given again."""
        under_way = self._purge
        if under_way is not None and under_way.command is command:
            self._purge = None  # whatever comes of it now, nobody else waits for it
        else:
            under_way = None
        if self._state.refuse_closed(command.origin, [command.tag], command.lane):
            return True
        state = self._state
        line = self._line(command.lane, command.session_id)
        old: list[Entry] = []
        if line is not None:
            purge = self._look_for(line, command, under_way)
            if purge is None:
                return False
            old = self._delete_oldest(purge)
        if old:
            deleted = [entry.sequence for entry in old]
            state.records.append(Removed(now, command.lane, PURGED, deleted))
        state.replies.append(Numbered(command.origin, command.tag, [len(old)]))
        return True

    def _look_for(
        self, line: Lane, command: DeleteMany, under_way: Purge | Sweep | None
    ) -> Purge | Sweep | None:
        """Return what a command deletes, once all was looked at; one command after the other."""
        if self._purge is not None:
            return None
        purge = under_way
        if purge is None or purge.line is not line:
            purge = Sweep(command, line) if line.sessions is None else Purge(command, line.sessions)
        if not purge.look_on(self._state.stint):
            self._purge = purge
            return None
        return purge

    def _delete_oldest(self, purge: Purge | Sweep) -> list[Entry]:
        """Delete the oldest of a line; of all sessions the first of each, and then the next one of
        those that lost theirs."""
        if isinstance(purge, Sweep):
            old = purge.oldest()
            for entry in old:
                self._state.forget(purge.line.drop_ready(entry))
            self._tidy(purge.line)
            return old
        before = purge.command.enqueued_before
        firsts = purge.oldest()
        deleted: list[Entry] = []
        while firsts and len(deleted) < purge.command.count_max:
            _, entry, line = heapq.heappop(firsts)
            self._state.forget(line.drop_ready(entry))
            deleted.append(entry)
            line.pass_gone()
            following = line.oldest(before, 1)
            if following:
                heapq.heappush(firsts, (following[0].sequence, following[0], line))
            else:
                self._tidy(line)
        for _, _, line in firsts:
            self._tidy(line)
        return deleted

    def _tidy(self, line: Lane) -> None:
        """After some of a line were deleted: leave nothing behind that nobody needs."""
        line.pass_gone()
        session = line.session
        lane_sessions = line.whole().sessions
        if session is not None and lane_sessions is not None:
            lane_sessions.forget_if_empty(session)

    def count(self, command: Count) -> None:
        """How many messages are in which state."""
        main = self._state.lane(command.lane)
        locked = len(main.locked)
        # A partition has one pair of transfer lanes; they are shown with its main lane.
        is_main = command.lane == MAIN
        self._state.replies.append(
            Counted(
                command.origin,
                command.tag,
                active=main.total_ready() + locked,
                dead_letter=self._all_of(command.lane | 1),
                scheduled=len(main.scheduled),
                deferred=main.total_deferred(),
                locked=locked,
                bytes=self._state.bodies.size,
                transfer=self._all_of(TRANSFER) if is_main else 0,
                transfer_dead_letter=self._all_of(TRANSFER_DEAD) if is_main else 0,
                claimed=main.total_claimed(),
            )
        )

    def _all_of(self, lane_number: int) -> int:
        lane = self._state.lanes.get(lane_number)
        if lane is None:
            return 0
        return lane.ready_count + len(lane.locked) + len(lane.deferred) + lane.total_claimed()

    def _line(self, lane_number: int, session_id: str | None) -> Lane | None:
        """Return the lane, or the line of one of its sessions if there is such a one."""
        lane = self._state.lane(lane_number)
        if session_id is None or lane.sessions is None:
            return lane
        session = lane.sessions.by_id.get(session_id)
        return None if session is None else session.line


def _sequence(entry: Entry) -> int:
    return entry.sequence


def _size_together(entries: dict[int, Entry]) -> int:
    size = 0
    for entry in entries.values():
        size += entry.size
        if entry.details is not None:
            size += entry.details.size
    return size


def _seen_as(entry: Entry, locked: LargeDict[int, Lock]) -> int:
    if entry.place == DEFERRED:
        return STATE_DEFERRED
    if entry.place == LOCKED:
        return STATE_DEFERRED if locked[entry.sequence].deferred else STATE_ACTIVE
    if entry.place == SCHEDULED:
        return STATE_SCHEDULED
    if entry.place == CLAIMED:
        return STATE_CLAIMED
    return STATE_ACTIVE
