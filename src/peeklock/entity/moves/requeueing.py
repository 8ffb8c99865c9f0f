"""What receive-and-delete took out of a lane and nobody sent: it goes back (R-S1).

The message is removed when it is handed to a receiver, and its body may be gone from the journal.
A link that ends before it has sent the message returns all of it, and a record of its own puts it
back: with its number, at its place, with its delivery count. A crash in between may lose it.
"""

from __future__ import annotations

from typing import final

from peeklock.entity.blueprint import FIRST_SUBSCRIPTION_LANE
from peeklock.entity.commands import Requeue
from peeklock.entity.deliveries import Delivery
from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane
from peeklock.entity.message import Message
from peeklock.entity.records import Requeued
from peeklock.entity.state import State
from peeklock.entity.upkeep.checkpoint import keep


@final
class Requeueing:
    """Puts messages back that were removed and never sent."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state: State = state

    def requeue(self, command: Requeue, now: int) -> None:
        """Each message goes back into its line; a subscription that is gone takes them with it."""
        number = command.lane
        state = self._state
        if number >= FIRST_SUBSCRIPTION_LANE and number & ~1 not in state.blueprint.lanes:
            return
        lane = state.lane(number)
        # The records take the next positions: no earlier run may grow behind them.
        state.open_enqueued = None
        state.open_scheduled = None
        expired: list[Entry] = []
        there = self._numbers(number) if command.is_repeat else set()
        for each in command.deliveries:
            delivery: Delivery = each
            if delivery.sequence in there:
                continue
            message = delivery.message
            assert message is not None, "who returns a message has all of it"
            entry = self._entry(delivery, message)
            state.runs.append(Requeued(now, number, keep(lane, entry), message))
            if entry.expires_at and entry.expires_at <= now and not lane.is_dead_letter:
                expired.append(entry)
            else:
                self._put_back(lane, entry, message)
        if expired:
            state.expire(lane, expired, now)

    def _numbers(self, number: int) -> set[int]:
        """Return all live numbers of a lane and its dead letters; looked for after a failure
        only."""
        found: set[int] = set()
        for each in (number, number | 1):
            lane = self._state.lanes.get(each)
            if lane is not None:
                found.update([entry.sequence for entry in lane.entries()])
        return found

    def _entry(self, delivery: Delivery, message: Message) -> Entry:
        state = self._state
        entry = Entry(
            delivery.sequence,
            state.next_position,
            delivery.enqueued_at,
            delivery.expires_at,
            message.size,
            None,
        )
        entry.delivery_count = delivery.delivery_count
        entry.details = delivery.details
        entry.session_id = message.session_id
        state.next_position += 1
        state.bodies.add(entry.position, entry.size)
        if entry.details is not None:
            state.bodies.detail_bytes += entry.details.size
        return entry

    def _put_back(self, lane: Lane, entry: Entry, message: Message) -> None:
        state = self._state
        state.keep_body(entry, message)
        line = state.line(lane, entry.session_id)
        line.put_back(entry)
        state.touch(line)
        if entry.expires_at and not lane.is_dead_letter:
            line.expire_later(entry)
            state.watch(lane)
