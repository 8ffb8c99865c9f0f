"""Messages whose bodies were damaged on disk: each is set apart by itself, and the rest goes on.

What is known of such a message is whole: its number, its instants, its counts. It goes to the dead
letters with a reason and with an empty body, written anew, in place of the one that is lost. A
topic itself has no dead letters; what was scheduled or staged there goes to those of its transfers.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from peeklock.entity.claims.claiming import Claiming
from peeklock.entity.commands import MAIN, RECEIVE_AND_DELETE, TRANSFER, Requeue
from peeklock.entity.deliveries import Delivery
from peeklock.entity.entries import Entry, Lock
from peeklock.entity.lane import Lane
from peeklock.entity.message import Message, Traits
from peeklock.entity.moves.requeueing import Requeueing
from peeklock.entity.records import READY, STAGED
from peeklock.entity.replies import NO_LANE, ClaimsFetched, Delivered, Drained, Found, Origin, Reply
from peeklock.entity.state import State
from peeklock.entity.upkeep.relocating import write_again

DAMAGED_BODY: Final = "DamagedBody"
DAMAGED_TEXT: Final = "The body of this message was damaged on disk and is lost."


@final
class Quarantining:
    """Takes damaged messages out of wherever they are."""

    __slots__ = ("_claiming", "_requeueing", "_state")

    def __init__(self, state: State, claiming: Claiming, requeueing: Requeueing) -> None:
        self._state: State = state
        self._claiming: Claiming = claiming
        self._requeueing: Requeueing = requeueing

    def undeliver(
        self, replies: list[Reply], positions: frozenset[int], content: bytes, now: int
    ) -> list[int]:
        """Take deliveries out of replies that nobody has seen yet, and quarantine their messages.

        Whoever was to get them gets its bytes back, and its credit unless it was drained. Answers
        the numbers.
        """
        drained = [reply.origin for reply in replies if isinstance(reply, Drained)]
        damaged: list[int] = []
        for at, reply in enumerate(replies):
            if not isinstance(reply, (Delivered, Found, ClaimsFetched)):
                continue
            lost = [each for each in reply.deliveries if _is_lost(each, positions)]
            if not lost:
                continue
            whole = [each for each in reply.deliveries if not _is_lost(each, positions)]
            damaged += [each.sequence for each in lost]
            size = 0
            lane = self._removed_from(reply)
            if lane != NO_LANE:
                self._put_back(lane, lost, content, now)
            else:
                for each in lost:
                    size += self._let_go(each, reply.origin)
            self._count_back(reply, lost, size, any(each is reply.origin for each in drained))
            if isinstance(reply, Delivered):
                replies[at] = Delivered(reply.origin, reply.mode, whole, reply.size - size)
            elif isinstance(reply, Found):
                first_lost = min([each.sequence for each in lost])
                replies[at] = Found(reply.origin, reply.tag, whole, reply.removed_from, first_lost)
            else:
                replies[at] = ClaimsFetched(reply.origin, reply.tag, whole, reply.looked_at)
        self.quarantine(damaged, content, now)
        return damaged

    def quarantine(self, sequences: list[int], content: bytes, now: int) -> None:
        """Set messages apart, wherever they are; what a receiver holds is left to it, because it
        has the body."""
        state = self._state
        wanted = set(sequences)
        for lane in list(state.lanes.values()):
            entries = self._take_out(lane, wanted)
            if entries:
                self._move(lane, entries, content, now)
        staged: list[Entry] = []
        for line in list(state.stages.lines.values()):
            found = [entry for entry in line.entries if entry.sequence in wanted]
            if found:
                line.entries = [entry for entry in line.entries if entry.sequence not in wanted]
                state.stages.count -= len(found)
                state.stages.forget_if_empty(line)
                staged += found
        if staged:
            self._move(state.lane(MAIN), staged, content, now)

    # What was on its way out.

    def _removed_from(self, reply: Delivered | Found | ClaimsFetched) -> int:
        """Return the lane that receive-and-delete has taken the messages of a reply out of; or
        NO_LANE."""
        if isinstance(reply, Found):
            return reply.removed_from
        if isinstance(reply, Delivered) and reply.mode == RECEIVE_AND_DELETE:
            receiver = self._state.receivers.get(reply.origin)
            if receiver is not None:
                return receiver.lane.number
        return NO_LANE

    def _put_back(self, lane: int, lost: list[Delivery], content: bytes, now: int) -> None:
        """Receive-and-delete has removed them: they come back with what is left of them."""
        for each in lost:
            each.message = _marker(content, None)
        self._requeueing.requeue(Requeue(lane, list(lost)), now)

    def _let_go(self, delivery: Delivery, origin: Origin) -> int:
        """End the lock that was to go out with a delivery; return the bytes of its message."""
        if not delivery.number:
            return 0  # it was only looked at
        for lane in self._state.lanes.values():
            lock = lane.locked.get(delivery.sequence)
            if lock is not None and lock.number == delivery.number and lock.origin is origin:
                del lane.locked[delivery.sequence]
                session = lock.line.session
                if session is not None:
                    del session.locks[delivery.sequence]
                self._return(lock)
                return lock.entry.size
        return 0

    def _return(self, lock: Lock) -> None:
        lock.entry.place = READY
        if lock.deferred:
            lock.line.defer(lock.entry)
        else:
            lock.line.put_back(lock.entry)

    def _count_back(
        self,
        reply: Delivered | Found | ClaimsFetched,
        lost: list[Delivery],
        size: int,
        is_drained: bool,
    ) -> None:
        receiver = self._state.receivers.get(reply.origin)
        if receiver is None or not isinstance(reply, Delivered):
            return
        # Its owner counts the bytes of what it was told, drained or not. Whoever was closed and
        # opened again since counts from 0.
        receiver.size_delivered = max(0, receiver.size_delivered - size)
        if is_drained:
            return  # by count its grant is used up
        receiver.delivered = max(0, receiver.delivered - len(lost))
        if receiver.has_credit() and not receiver.waiting:
            receiver.waiting = True
            receiver.lane.waiting.append(receiver)
            self._state.touch(receiver.lane)

    # Taking out.

    def _take_out(self, lane: Lane, wanted: set[int]) -> list[Entry]:
        found: list[Entry] = []
        lines = [lane]
        if lane.sessions is not None:
            lines += [session.line for session in lane.sessions.by_id.values()]
        for sequence in sorted(wanted):
            entry = lane.unschedule(sequence)
            for line in lines:
                if entry is None:
                    entry = line.undefer(sequence) or _drop_ready(line, sequence)
            if entry is not None:
                found.append(entry)
                wanted.discard(sequence)
        if lane.claims is not None and wanted:
            claimed = self._claiming.take_out(lane, sorted(wanted))
            wanted.difference_update([entry.sequence for entry in claimed])
            found += claimed
        if found and lane.sessions is not None:
            for session in lane.sessions.by_id.listed():
                lane.sessions.forget_if_empty(session)
        return found

    def _move(self, lane: Lane, entries: list[Entry], content: bytes, now: int) -> None:
        state = self._state
        if lane.number == MAIN and state.blueprint.router is not None:
            lane = state.lane(TRANSFER)
        for entry in entries:
            state.release_body(entry)
            if entry.place == STAGED:
                entry.place = READY
        # An empty body for each alone: copies that share the lost one may be elsewhere.
        write_again(
            state, [[entry] for entry in entries], [_marker(content, each) for each in entries], now
        )
        if not lane.is_dead_letter:
            state.dead_letter(lane, entries, DAMAGED_BODY, DAMAGED_TEXT, now)
            return
        for entry in entries:
            before = "" if entry.details is None else entry.details.reason or ""
            text = (
                f"{DAMAGED_TEXT} It was dead-lettered before: {before}." if before else DAMAGED_TEXT
            )
            state.dead_letter(lane, [entry], DAMAGED_BODY, text, now)


def _marker(content: bytes, entry: Entry | None) -> Message:
    session_id = None if entry is None else entry.session_id
    return Message(b"", content, None if session_id is None else Traits(session_id=session_id))


def _is_lost(delivery: Delivery, positions: frozenset[int]) -> bool:
    return delivery.message is None and delivery.position in positions


def _drop_ready(line: Lane, sequence: int) -> Entry | None:
    """Take a ready entry out of a line, if it is there."""
    at = bisect_left(line.ready, sequence, line.head, key=_sequence)
    if at < len(line.ready):
        entry = line.ready[at]
        if entry.sequence == sequence and entry.place == READY:
            return line.drop_ready(entry)
    for _, entry in line.returned:
        if entry.sequence == sequence and entry.place == READY:
            return line.drop_ready(entry)
    return None


def _sequence(entry: Entry) -> int:
    return entry.sequence
