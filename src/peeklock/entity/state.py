"""The living state of a partition and the few moves that change it.

Each move changes memory and writes down what it did; the machines around it (sending, settling,
delivering, looking) only choose which move to make. Records that carry messages come first in a
decision, so that their positions are known while it is still being made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from peeklock.entity.bodies import LiveBodies
from peeklock.entity.commands import DEAD, MAIN
from peeklock.entity.definition import FOREVER_MS, QueueDefinition
from peeklock.entity.lane import GONE, Entry, Lane, Lock, Receiver
from peeklock.entity.message import NEVER, NO_DURATION, BodyBudget, Message
from peeklock.entity.records import (
    CANCELLED,
    COMPLETED,
    DELETED,
    EXPIRED,
    Activated,
    Carried,
    Changed,
    DeadLettered,
    Deferred,
    Enqueued,
    HandedOut,
    Record,
    Removed,
    Returned,
    Scheduled,
)
from peeklock.entity.replies import Reply

PARTITION_BITS: Final = 48
"""The upper 16 bits of a sequence number name the partition, the lower 48 count in it."""

# Deliveries noted for the journal wait for a record that must rest anyway, up to this many.
NOTES_MAX: Final = 4096

# The service's longest duration. A sender may name an end of life so late that the instant would
# not fit into a record's 64 bits.
ENDLESS_MS: Final = 922_337_203_685_477

MAX_DELIVERY_COUNT_EXCEEDED: Final = "MaxDeliveryCountExceeded"
TTL_EXPIRED: Final = "TTLExpiredException"
TTL_EXPIRED_TEXT: Final = "The message expired and was dead lettered."


@final
class State:
    """Lanes, receivers and counters of one partition, and what is to be written down next."""

    __slots__ = (
        "_enqueued",
        "_scheduled",
        "bodies",
        "budget",
        "chance",
        "definition",
        "index",
        "lanes",
        "moved",
        "next_position",
        "next_sequence",
        "receivers",
        "records",
        "replies",
        "runs",
    )

    def __init__(
        self,
        definition: QueueDefinition,
        index: int,
        budget: BodyBudget,
        chance: Callable[[], int],
    ) -> None:
        self.definition: QueueDefinition = definition
        self.index: int = index
        self.budget: BodyBudget = budget
        self.chance: Callable[[], int] = chance
        self.lanes: list[Lane] = [Lane(MAIN), Lane(DEAD)]
        self.receivers: dict[Any, Receiver] = {}
        self.next_sequence: int = (index << PARTITION_BITS) + 1
        self.next_position: int = 0
        self.bodies: LiveBodies = LiveBodies()
        self.runs: list[Record] = []
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        # While a checkpoint walks over the live messages: those that changed lanes meanwhile.
        self.moved: list[tuple[int, Entry]] | None = None
        self._enqueued: Enqueued | None = None  # the run that the next message may join
        self._scheduled: Scheduled | None = None

    # Entering.

    def enqueue(self, message: Message, now: int) -> int:
        """Take a message into the main lane; answers its number."""
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        expires_at = NEVER
        if message.time_to_live_ms >= 0 or self.definition.time_to_live_ms >= 0:
            expires_at = self._end_of_life(message.time_to_live_ms, now)
        message.expires_at = expires_at
        run = self._enqueued
        if run is not None and run.first_sequence + len(run.messages) == sequence:
            run.messages.append(message)
        else:
            run = Enqueued(now, sequence, [message])
            self._enqueued = run
            self._scheduled = None
            self.runs.append(run)
        position = self.next_position
        self.next_position = position + 1
        size = message.size
        self.bodies.add(position, size)
        budget = self.budget
        if budget.left >= size:
            budget.left -= size
            entry = Entry(sequence, position, now, expires_at, size, message)
        else:
            entry = Entry(sequence, position, now, expires_at, size, None)
        lane = self.lanes[MAIN]
        lane.put(entry)
        if expires_at:
            lane.expire_later(entry)
        return sequence

    def _end_of_life(self, time_to_live_ms: int, born_at: int) -> int:
        """When the shorter of the message's and the queue's time to live is over."""
        life_ms = time_to_live_ms
        queue_ms = self.definition.time_to_live_ms
        if life_ms == NO_DURATION or (queue_ms != FOREVER_MS and queue_ms < life_ms):
            life_ms = queue_ms
        return born_at + life_ms if life_ms < ENDLESS_MS else NEVER

    def schedule(self, message: Message, now: int) -> int:
        """Take a message for later; answers the number by which it can be cancelled."""
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        run = self._scheduled
        if run is not None and run.first_sequence + len(run.messages) == sequence:
            run.messages.append(message)
        else:
            run = Scheduled(now, sequence, [message])
            self._scheduled = run
            self._enqueued = None
            self.runs.append(run)
        position = self.next_position
        self.next_position = position + 1
        self.bodies.add(position, message.size)
        entry = Entry(sequence, position, now, NEVER, message.size, None)
        details = entry.detailed()
        details.scheduled_at = message.scheduled_at
        details.time_to_live_ms = message.time_to_live_ms
        self.lanes[MAIN].schedule(entry, message.scheduled_at)
        return sequence

    def activate(self, entries: list[Entry], now: int) -> None:
        """Scheduled entries fell due: they enter the line under new numbers."""
        first_sequence = self.next_sequence
        lane = self.lanes[MAIN]
        olds = [entry.sequence for entry in entries]
        for entry in entries:
            del lane.scheduled[entry.sequence]
            entry.sequence = self.next_sequence
            self.next_sequence += 1
            details = entry.detailed()
            # The service shows the scheduled instant as the time of entry.
            entry.enqueued_at = details.scheduled_at
            if details.time_to_live_ms >= 0 or self.definition.time_to_live_ms >= 0:
                ends_at = self._end_of_life(details.time_to_live_ms, details.scheduled_at)
                entry.expires_at = ends_at
                if ends_at:
                    lane.expire_later(entry)
            lane.put(entry)
        expirations = [entry.expires_at for entry in entries]
        self.records.append(Activated(now, first_sequence, olds, expirations))

    # Leaving.

    def forget(self, entry: Entry) -> None:
        """The entry is gone for good; its body's place may be freed."""
        entry.place = GONE
        self.bodies.remove(entry.position, entry.size)
        self.release_body(entry)

    def release_body(self, entry: Entry) -> None:
        """Keep the body no longer in memory."""
        if entry.message is not None:
            entry.message = None
            self.budget.left += entry.size

    def cancel(self, sequences: list[int], now: int) -> None:
        """Scheduled messages are taken back."""
        lane = self.lanes[MAIN]
        for sequence in sequences:
            self.forget(lane.scheduled.pop(sequence))
        self.records.append(Removed(now, MAIN, CANCELLED, sequences))

    def expire(self, lane: Lane, entries: list[Entry], now: int) -> None:
        """The life of these ready entries is over (they are out of the line already)."""
        if self.definition.dead_letter_on_expiration:
            self.dead_letter(lane, entries, TTL_EXPIRED, TTL_EXPIRED_TEXT, now)
            return
        for entry in entries:
            self.forget(entry)
        sequences = [entry.sequence for entry in entries]
        self.records.append(Removed(now, lane.number, EXPIRED, sequences))

    # Moving.

    def dead_letter(
        self,
        lane: Lane,
        entries: list[Entry],
        reason: str | None,
        description: str | None,
        now: int,
    ) -> None:
        """Move entries, which are in no container now, to the lane's dead-letter lane."""
        dead = self.lanes[lane.number | 1]
        for entry in entries:
            moved = entry.moved()
            details = moved.detailed()
            details.reason = reason
            details.description = description
            dead.put(moved)
            if self.moved is not None:
                self.moved.append((dead.number, moved))
        self.records.append(
            DeadLettered(
                now,
                lane.number,
                [entry.sequence for entry in entries],
                [entry.delivery_count for entry in entries],
                reason,
                description,
            )
        )

    def give_back(self, lane: Lane, locks: list[Lock], why: int, now: int) -> None:
        """Locks ended without success: count the deliveries, return the messages or, where they
        were tried often enough, dead-letter them (R-S7)."""
        count_max = self.definition.delivery_count_max
        spent: list[Entry] = []
        returned: list[Entry] = []
        counted = not lane.is_dead_letter
        for lock in locks:
            entry = lock.entry
            if counted:
                entry.delivery_count += 1
                if entry.delivery_count >= count_max:
                    spent.append(entry)
                    continue
            returned.append(entry)
        if returned:
            if counted:
                self.records.append(
                    Returned(
                        now,
                        lane.number,
                        why,
                        [entry.sequence for entry in returned],
                        [entry.delivery_count for entry in returned],
                    )
                )
            deferred = {lock.entry.sequence for lock in locks if lock.deferred}
            for entry in returned:
                if entry.sequence in deferred:
                    lane.defer(entry)
                else:
                    self.restore_place(lane, entry, now)
        if spent:
            text = f"Message could not be consumed after {count_max} delivery attempts."
            self.dead_letter(lane, spent, MAX_DELIVERY_COUNT_EXCEEDED, text, now)

    def restore_place(self, lane: Lane, entry: Entry, now: int) -> None:
        """An entry is ready again, unless its life ended while it was held."""
        if entry.expires_at and not lane.is_dead_letter:
            if entry.expires_at <= now:
                self.expire(lane, [entry], now)
                return
            lane.expire_later(entry)
        lane.put_back(entry)

    def change(self, entry: Entry, changes: dict[str, bytes], now: int) -> None:
        """Set properties on a message, over those that were changed before."""
        details = entry.detailed()
        details.changes = {**details.changes, **changes} if details.changes else dict(changes)
        self.records.append(Changed(now, entry.sequence, details.changes))

    def defer(self, lane: Lane, entries: list[Entry], now: int) -> None:
        """Set entries aside; the delivery counts."""
        for entry in entries:
            if not lane.is_dead_letter:
                entry.delivery_count += 1
            lane.defer(entry)
        self.records.append(
            Deferred(
                now,
                lane.number,
                [entry.sequence for entry in entries],
                [entry.delivery_count for entry in entries],
            )
        )

    def carry(self, entries: list[Entry], messages: list[Message], now: int) -> None:
        """Write bodies again at the tail, so that the blocks they lay in can go."""
        for entry in entries:
            self.bodies.remove(entry.position, entry.size)
            entry.position = self.next_position
            self.next_position += 1
            self.bodies.add(entry.position, entry.size)
        self.runs.append(Carried(now, [entry.sequence for entry in entries], messages))

    # Writing down.

    def take_records(self, now: int) -> list[Record]:
        """Everything to be stored since the last call, in order."""
        self._enqueued = None
        self._scheduled = None
        records = self.records
        for lane in self.lanes:
            if lane.completed:
                records.append(Removed(now, lane.number, COMPLETED, lane.completed))
                lane.completed = []
            if lane.deleted:
                records.append(Removed(now, lane.number, DELETED, lane.deleted))
                lane.deleted = []
        for lane in self.lanes:
            notes = lane.handed_out
            if notes and (records or self.runs or len(notes) >= NOTES_MAX):
                records.insert(0, HandedOut(now, lane.number, notes))
                lane.handed_out = []
        self.next_position += len(records)
        if self.runs:
            records = self.runs + records
            self.runs = []
        self.records = []
        return records

    def take_replies(self) -> list[Reply]:
        """Everything to be answered since the last call, in order."""
        replies = self.replies
        self.replies = []
        return replies
