"""Who gets the next message: credit, turns, locks."""

from __future__ import annotations

from typing import Any, final

from peeklock.entity.commands import PEEK_LOCK, CloseReceiver, Grant, OpenReceiver
from peeklock.entity.definition import DISABLED, RECEIVE_DISABLED
from peeklock.entity.lane import Entry, Lane, Lock, Receiver
from peeklock.entity.message import NEVER
from peeklock.entity.replies import STATE_ACTIVE, STATE_DEFERRED, Delivered, Delivery, Drained
from peeklock.entity.settling import CHANCE_MASK, LANE_BITS
from peeklock.entity.state import State


@final
class Delivering:
    """Hands ready messages to receivers that have credit, in turns."""

    __slots__ = ("_draining", "_state")

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._draining: list[Receiver] = []

    def open(self, command: OpenReceiver) -> None:
        """A receiver takes its place; it gets nothing before it grants."""
        lane = self._state.lanes[command.lane]
        self._state.receivers[command.origin] = Receiver(command.origin, lane, command.mode)

    def grant(self, command: Grant) -> None:
        """A receiver says how far it will take messages; unknown ones are gone already."""
        receiver = self._state.receivers.get(command.origin)
        if receiver is None:
            return
        receiver.limit = command.limit
        if command.drain:
            receiver.drain = True
            self._draining.append(receiver)
        if receiver.limit > receiver.delivered and not receiver.waiting:
            receiver.waiting = True
            receiver.lane.waiting.append(receiver)

    def close(self, command: CloseReceiver) -> bool:
        """A receiver is gone; answers whether it was known."""
        receiver = self._state.receivers.pop(command.origin, None)
        if receiver is None:
            return False
        receiver.closed = True
        if receiver.waiting:
            receiver.lane.waiting.remove(receiver)
        return True

    def deliver(self, now: int) -> None:
        """One pass at the end of a decision: every lane that has both messages and credit."""
        if self._state.definition.status not in (DISABLED, RECEIVE_DISABLED):
            for lane in self._state.lanes:
                if lane.waiting and lane.ready_count:
                    self._deliver_lane(lane, now)
        if self._draining:
            for receiver in self._draining:
                if not receiver.closed:
                    receiver.drain = False
                    receiver.delivered = max(receiver.limit, receiver.delivered)
                    self._state.replies.append(Drained(receiver.origin))
            self._draining.clear()

    def _deliver_lane(self, lane: Lane, now: int) -> None:
        """Rotate over the waiting receivers, a run of messages each."""
        waiting = lane.waiting
        while waiting and lane.ready_count:
            # The same share for each who waits, so that the first does not take all; what some
            # have no credit for goes round once more.
            share = (lane.ready_count + len(waiting) - 1) // len(waiting)
            for _ in range(len(waiting)):
                self._serve(lane, waiting.popleft(), share, now)
                if not lane.ready_count:
                    break

    def _serve(self, lane: Lane, receiver: Receiver, share: int, now: int) -> None:
        """Give one receiver its turn; it goes to the end of the line if it has credit left."""
        credit = receiver.limit - receiver.delivered
        if receiver.closed or credit <= 0:
            receiver.waiting = False
            return
        deliveries = self._run(lane, receiver, min(credit, share), now)
        if deliveries:
            receiver.delivered += len(deliveries)
            self._state.replies.append(Delivered(receiver.origin, receiver.mode, deliveries))
        if receiver.limit > receiver.delivered:
            lane.waiting.append(receiver)
        else:
            receiver.waiting = False

    def _run(self, lane: Lane, receiver: Receiver, count: int, now: int) -> list[Delivery]:
        """Up to so many messages for one receiver, locked or removed as it receives."""
        state = self._state
        deliveries: list[Delivery] = []
        locking = receiver.mode == PEEK_LOCK
        until = now + state.definition.lock_duration_ms if locking else NEVER
        expires = not lane.is_dead_letter
        notes = lane.handed_out
        while len(deliveries) < count:
            entry = lane.take()
            if entry is None:
                break
            if expires and entry.expires_at and entry.expires_at <= now:
                state.expire(lane, [entry], now)  # checked when the server sends (R-F4)
                continue
            if locking:
                deliveries.append(self.lock(lane, entry, receiver.origin, until, False))
            else:
                deliveries.append(self.remove(lane, entry, STATE_ACTIVE))
            notes.append(entry.sequence)
        return deliveries

    def lock(self, lane: Lane, entry: Entry, origin: Any, until: int, deferred: bool) -> Delivery:
        """Hand an entry out under a new lock."""
        # Chance brings 64 bits and the lane takes the upper ones; no lock has the number 0.
        number = (lane.number << LANE_BITS) | ((self._state.chance() & CHANCE_MASK) or 1)
        lane.lock(Lock(entry, number, until, origin, deferred))
        state = STATE_DEFERRED if deferred else STATE_ACTIVE
        delivery = Delivery(
            entry.sequence,
            number,
            until,
            entry.delivery_count,
            entry.enqueued_at,
            entry.expires_at,
            entry.position,
            entry.message,
            entry.details,
            state,
        )
        self._state.release_body(entry)
        return delivery

    def remove(self, lane: Lane, entry: Entry, state: int) -> Delivery:
        """Hand an entry out for good (R-S1)."""
        delivery = look_at(entry, state)
        lane.deleted.append(entry.sequence)
        self._state.forget(entry)
        return delivery


def look_at(entry: Entry, state: int) -> Delivery:
    """A delivery that locks nothing."""
    return Delivery(
        entry.sequence,
        0,
        NEVER,
        entry.delivery_count,
        entry.enqueued_at,
        entry.expires_at,
        entry.position,
        entry.message,
        entry.details,
        state,
    )
