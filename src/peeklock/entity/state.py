"""The living state of a partition and the few moves that change it.

Each move changes memory and writes down what it did; the machines around it (entering, settling,
delivering, sessions, browsing) only choose which move to make. Records that contain messages come
first in a decision, so that their positions are known while it is still being made.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Final, final

from peeklock.entity.blueprint import Blueprint, LanePolicy
from peeklock.entity.commands import MAIN, TRANSFER
from peeklock.entity.definition import DISABLED, RECEIVE_DISABLED, SEND_DISABLED
from peeklock.entity.entries import GONE, Entry, Lock
from peeklock.entity.lane import Lane
from peeklock.entity.message import NEVER, BodyBudget, Message
from peeklock.entity.moves.duplicate_detection import SeenIds, seen_as
from peeklock.entity.moves.receiver import Receiver
from peeklock.entity.records import (
    ABANDONED,
    COMPLETED,
    DELETED,
    EXPIRED,
    Changed,
    DeadLettered,
    Deferred,
    DuplicatesDropped,
    Enqueued,
    Record,
    Remembered,
    Removed,
    Returned,
    Scheduled,
)
from peeklock.entity.refusals import ENTITY_DISABLED, ENTITY_NOT_FOUND, Refusal
from peeklock.entity.replies import Origin, ReceiverClosed, Refused, Reply
from peeklock.entity.routing import PARTITION_BITS
from peeklock.entity.sessions.lane_sessions import LaneSessions
from peeklock.entity.stages.partition_stages import PartitionStages
from peeklock.entity.stint import Stint
from peeklock.entity.topics.dropped import Dropped
from peeklock.entity.topics.records import LaneDropped
from peeklock.entity.upkeep.journal_facts import NOT_COUNTED, RAN_OUT
from peeklock.entity.upkeep.live_bodies import LiveBodies
from peeklock.entity.upkeep.notebook import Notebook

MAX_DELIVERY_COUNT_EXCEEDED: Final = "MaxDeliveryCountExceeded"
TTL_EXPIRED: Final = "TTLExpiredException"
TTL_EXPIRED_TEXT: Final = "The message expired and was dead lettered."


@final
class State:
    """Lanes, receivers and counters of one partition, and what is to be written down next."""

    __slots__ = (
        "_completed",
        "_deleted",
        "_watched",
        "blueprint",
        "bodies",
        "budget",
        "dropped",
        "duplicates",
        "index",
        "kept_bytes",
        "lanes",
        "latest_at",
        "moved",
        "next_position",
        "next_sequence",
        "notes",
        "open_enqueued",
        "open_scheduled",
        "random_source",
        "receivers",
        "records",
        "remembered",
        "replies",
        "runs",
        "seen",
        "stages",
        "stint",
        "taken",
        "touched",
        "ways",
    )

    def __init__(
        self,
        blueprint: Blueprint,
        index: int,
        budget: BodyBudget,
        random_source: Callable[[], int],
        stint: Stint,
    ) -> None:
        self.blueprint: Blueprint = blueprint
        self.stint: Stint = stint
        self.index: int = index
        self.budget: BodyBudget = budget
        self.kept_bytes: int = 0  # what bodies here have taken of the budget
        self.random_source: Callable[[], int] = random_source
        self.lanes: dict[int, Lane] = {}
        self.receivers: dict[Origin, Receiver] = {}
        self.next_sequence: int = (index << PARTITION_BITS) + 1
        self.next_position: int = 0
        self.latest_at: int = NEVER  # of what was restored
        self.bodies: LiveBodies = LiveBodies()
        self.seen: SeenIds = SeenIds(blueprint.duplicate_window_ms)
        self.stages: PartitionStages = PartitionStages()
        self.dropped: Dropped = Dropped()
        # Numbers that came from other partitions and may come again, by source.
        self.taken: dict[str, dict[int, bool]] = {}
        # By lane: entities that may have messages which are still here.
        self.ways: dict[int, list[str]] = {}
        self.runs: list[Record] = []
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.duplicates: list[str] = []
        self.remembered: list[str] = []
        # While a checkpoint walks over the live messages: those that changed lanes meanwhile, or
        # were claimed out of a session.
        self.moved: list[tuple[int, Entry]] | None = None
        # The runs that the next message may join.
        self.open_enqueued: Enqueued | None = None
        self.open_scheduled: Scheduled | None = None
        # Lines that the decision under way has changed: where messages may meet receivers.
        self.touched: list[Lane] = []
        self._watched: list[tuple[int, int]] = []  # heap of (deadline, lane number)
        self._completed: dict[int, list[int]] = {}
        self._deleted: dict[int, list[int]] = {}
        self.notes: Notebook = Notebook()

    # Lanes.

    def lane(self, number: int) -> Lane:
        """Return the lane with this number; it exists from the first time it is used."""
        lane = self.lanes.get(number)
        if lane is None:
            lane = Lane(number)
            self.lanes[number] = lane
            if self.has_sessions(number):
                lane.sessions = LaneSessions(lane, self.bodies)
        return lane

    def has_sessions(self, number: int) -> bool:
        """Return whether a lane hands out its messages by sessions; dead letters and transfers
        never."""
        return number & 1 == 0 and number != TRANSFER and self.policy(number).requires_session

    def policy(self, number: int) -> LanePolicy:
        """Return how a lane hands out its messages; transfers follow the entity's own lane."""
        policies = self.blueprint.lanes
        policy = policies.get(number & ~1)
        return policies[MAIN] if policy is None else policy

    def is_open(self, number: int) -> bool:
        """Return whether a lane hands out its messages now. What a transaction left for another
        entity goes there, whatever becomes of this one."""
        status = self.policy(number).status
        return number == TRANSFER or status not in (DISABLED, RECEIVE_DISABLED)

    def why_closed(self, number: int) -> Refusal | None:
        """Return why nothing can be received, settled or looked at in a lane, or None."""
        if self.is_open(number):
            return None
        return _disabled(self.policy(number).path)

    def refuse_closed(self, origin: Origin, tags: list[int], number: int) -> bool:
        """Refuse what is asked of a lane that is closed; return whether it is."""
        refusal = self.why_closed(number)
        if refusal is None:
            return False
        self.replies.append(Refused(origin, tags, refusal))
        return True

    def why_closed_to_senders(self) -> Refusal | None:
        """Return why nothing can be sent or published here, or None."""
        blueprint = self.blueprint
        if blueprint.status not in (DISABLED, SEND_DISABLED):
            return None
        return _disabled(blueprint.path)

    def line(self, lane: Lane, session_id: str | None) -> Lane:
        """Return where a message with that session id stands in a lane."""
        lane_sessions = lane.sessions
        if lane_sessions is None or session_id is None:
            return lane
        return lane_sessions.session(session_id).line

    def touch(self, line: Lane) -> None:
        """Messages or receivers of this line changed."""
        if not line.is_touched:
            line.is_touched = True
            self.touched.append(line)

    def watch(self, lane: Lane) -> None:
        """The lane's next deadline may have come closer."""
        deadline = lane.next_deadline()
        if deadline and (lane.timer_at == NEVER or deadline < lane.timer_at):
            lane.timer_at = deadline
            heapq.heappush(self._watched, (deadline, lane.number))

    def next_deadline(self) -> int:
        """Return the earliest deadline of all lanes and stages; 0 when there is none. It may be too
        early."""
        deadline = self._next_of_lanes()
        if self.stages.lines:
            stale_at = self.stages.next_deadline()
            if deadline == NEVER or stale_at < deadline:
                deadline = stale_at
        notes_due = self.notes.due_at
        if notes_due != NEVER and (deadline == NEVER or notes_due < deadline):
            return notes_due
        return deadline

    def _next_of_lanes(self) -> int:
        while self._watched:
            deadline, number = self._watched[0]
            lane = self.lanes.get(number)
            if lane is not None and lane.timer_at == deadline:
                if lane.next_deadline() == deadline:
                    return deadline
                lane.timer_at = NEVER  # what was due then is settled: look when it is due now
                heapq.heappop(self._watched)
                self.watch(lane)
            else:
                heapq.heappop(self._watched)
        return NEVER

    def next_due_lane(self, now: int) -> Lane | None:
        """Return a lane whose deadline has come; it must be watched again afterwards."""
        while self._watched and self._watched[0][0] <= now:
            deadline, number = heapq.heappop(self._watched)
            lane = self.lanes.get(number)
            if lane is not None and lane.timer_at == deadline:
                lane.timer_at = NEVER
                return lane
        return None

    def is_any_lane_due(self, now: int) -> bool:
        """Return whether a deadline has come that was not served yet."""
        deadline = self._next_of_lanes()
        return deadline != NEVER and deadline <= now

    def lengthening(self, duration_ms: int) -> Iterator[int]:
        """The clock was set forward: whatever lasts for a duration ends so much later. There may be
        a million of that: it is done in parts, and nothing is decided in between."""
        for lane in self.lanes.values():
            yield from lane.lengthening(duration_ms)
            self.watch(lane)
        self.stages.lengthen(duration_ms)
        yield len(self.stages.lines)

    def drop_lane(self, number: int, now: int) -> None:
        """A subscription is gone: its messages with it, which are forgotten in stints, and whoever
        waits for them is told."""
        for each in (number, number | 1):
            lane = self.lanes.pop(each, None)
            if lane is not None:
                if lane.sessions is not None:
                    self.bodies.state_bytes -= lane.sessions.state_bytes
                self.dropped.add_lane(lane)
            # What was settled a moment ago must be told before the lane is gone.
            completed = self._completed.pop(each, None)
            if completed is not None:
                self.records.append(Removed(now, each, COMPLETED, completed))
            deleted = self._deleted.pop(each, None)
            if deleted is not None:
                self.records.append(Removed(now, each, DELETED, deleted))
            self.ways.pop(each, None)
            if lane is not None:
                self._turn_away(lane)
        self.records.append(LaneDropped(now, number))

    def forget_dropped(self) -> None:
        """Go on with what was in lanes and stages that are gone: with what the stint has left, and
        with a quarter of one in any case, so that it ends while there is always something to do."""
        stint = self.stint
        for entry in self.dropped.take(max(1, stint.steps_left, stint.steps_max // 4)):
            self.forget(entry)

    def _turn_away(self, lane: Lane) -> None:
        of = f"of a subscription of '{self.blueprint.path}'"
        text = f"The messaging entity {of} could not be found: it was deleted."
        refusal = Refusal(ENTITY_NOT_FOUND, text)
        for receiver in list(self.receivers.values()):
            if receiver.lane.whole() is lane:
                receiver.closed = True
                receiver.lane.waiting.clear()
                del self.receivers[receiver.origin]
                self.replies.append(ReceiverClosed(receiver.origin, refusal))
        if lane.sessions is not None:
            for waiting in lane.sessions.waiting.values():
                self.replies.append(Refused(waiting.origin, [waiting.tag], refusal))
            lane.sessions.waiting.clear()

    # Entering a line.

    def put(self, line: Lane, entry: Entry) -> None:
        """Make an entry ready that was not before."""
        line.put(entry)
        self.touch(line)
        if entry.expires_at and not line.is_dead_letter:
            line.expire_later(entry)
            self.watch(line.whole())

    def seen_of(self, message: Message) -> str:
        """What a message is remembered by; nothing where nobody looks for duplicates, or where it
        has no id and so is nobody's."""
        if self.seen.window_ms == 0 or message.message_id == "":
            return ""
        return seen_as(message, self.blueprint.is_partitioned)

    def keep_body(self, entry: Entry, message: Message) -> None:
        """Let the body rest in memory while the budget allows."""
        if self.budget.left >= entry.size:
            self.budget.left -= entry.size
            self.kept_bytes += entry.size
            entry.message = message

    # Leaving.

    def complete_many(self, lane_number: int, entries: list[Entry]) -> None:
        """Messages of one lane are done with; the numbers are written down together."""
        if not entries:
            return
        numbers = self._completed.get(lane_number)
        if numbers is None:
            numbers = self._completed[lane_number] = []
        bodies = self.bodies
        for entry in entries:
            numbers.append(entry.sequence)
            entry.place = GONE
            bodies.remove(entry.position, entry.size)
            if entry.details is not None:
                bodies.detail_bytes -= entry.details.size
            if entry.message is not None:
                self.release_body(entry)

    def delete(self, lane_number: int, entry: Entry) -> None:
        """A message was handed out for good."""
        numbers = self._deleted.get(lane_number)
        if numbers is None:
            numbers = self._deleted[lane_number] = []
        numbers.append(entry.sequence)
        self.forget(entry)

    def forget(self, entry: Entry) -> None:
        """The entry is gone for good; its body's place may be freed."""
        entry.place = GONE
        self.bodies.remove(entry.position, entry.size)
        if entry.details is not None:
            self.bodies.detail_bytes -= entry.details.size
        self.release_body(entry)

    def release_body(self, entry: Entry) -> None:
        """Keep the body no longer in memory."""
        if entry.message is not None:
            entry.message = None
            self.budget.left += entry.size
            self.kept_bytes -= entry.size

    def expire(self, lane: Lane, entries: list[Entry], now: int) -> None:
        """The life of these entries is over (they are out of the line already)."""
        if self.policy(lane.number).dead_letter_on_expiration:
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
        dead = self.lane(lane.number | 1)
        for entry in entries:
            moved = entry.moved()
            details = moved.detailed()
            details.reason = reason
            details.description = description
            self.bodies.detail_bytes -= details.size
            self.bodies.detail_bytes += details.weigh()
            dead.put(moved)
            if self.moved is not None:
                self.moved.append((dead.number, moved))
        self.touch(dead)
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
        count_max = self.policy(lane.number).delivery_count_max
        spent: list[Entry] = []
        returned: list[Lock] = []
        counted = not lane.is_dead_letter
        for lock in locks:
            entry = lock.entry
            if counted:
                entry.delivery_count += 1
                if entry.delivery_count >= count_max:
                    spent.append(entry)
                    continue
            returned.append(lock)
        if returned:
            if counted:
                self.records.append(
                    Returned(
                        now,
                        lane.number,
                        why,
                        [lock.entry.sequence for lock in returned],
                        [lock.entry.delivery_count for lock in returned],
                    )
                )
            else:
                self.note_released(
                    lane, returned, NOT_COUNTED if why == ABANDONED else RAN_OUT, now
                )
            self.restore_places(lane, returned, now)
        if spent:
            text = f"Message could not be consumed after {count_max} delivery attempts."
            self.dead_letter(lane, spent, MAX_DELIVERY_COUNT_EXCEEDED, text, now)

    def consumer_of(self, origin: Origin) -> str:
        """Return how a receiver is called; nothing where it is gone or was never one."""
        receiver = self.receivers.get(origin)
        return "" if receiver is None else receiver.consumer

    def note_released(self, lane: Lane, locks: list[Lock], why: int, now: int) -> None:
        """For the journal: locks ended, and nothing else tells of it."""
        by_origin: dict[Origin, list[int]] = {}
        for lock in locks:
            by_origin.setdefault(lock.origin, []).append(lock.entry.sequence)
        for origin, sequences in by_origin.items():
            self.notes.released(lane.number, why, self.consumer_of(origin), sequences, now)

    def restore_places(self, lane: Lane, locks: list[Lock], now: int) -> None:
        """Messages of a lane go back to where they were locked from, except for those whose lives
        ended meanwhile."""
        expired: list[Entry] = []
        for lock in locks:
            entry = lock.entry
            # What was to be forwarded out of a session is locked by the lane.
            line = lock.line if lane.sessions is None else self.line(lane, entry.session_id)
            if lock.deferred:
                line.defer(entry)
                continue
            if entry.expires_at and not line.is_dead_letter:
                if entry.expires_at <= now:
                    expired.append(entry)
                    continue
                line.put_back(entry)
                line.expire_later(entry)
                self.watch(lane)
            else:
                line.put_back(entry)
            self.touch(line)
        if expired:
            self.expire(lane, expired, now)

    def change(self, entry: Entry, changes: dict[str, bytes], now: int) -> None:
        """Set properties on a message, over those that were changed before."""
        details = entry.detailed()
        details.changes = {**details.changes, **changes} if details.changes else dict(changes)
        self.bodies.detail_bytes -= details.size
        self.bodies.detail_bytes += details.weigh()
        self.records.append(Changed(now, entry.sequence, details.changes))

    def defer(self, lane: Lane, locks: list[Lock], now: int) -> None:
        """Set messages aside; the delivery counts."""
        for lock in locks:
            if not lane.is_dead_letter:
                lock.entry.delivery_count += 1
            lock.line.defer(lock.entry)
        self.records.append(
            Deferred(
                now,
                lane.number,
                [lock.entry.sequence for lock in locks],
                [lock.entry.delivery_count for lock in locks],
            )
        )

    # Writing down.

    def take_records(self, now: int) -> list[Record]:
        """Return everything to be stored since the last call, in order."""
        self.open_enqueued = None
        self.open_scheduled = None
        records = self.records
        if self._completed:
            for number, sequences in self._completed.items():
                records.append(Removed(now, number, COMPLETED, sequences))
            self._completed = {}
        if self.remembered:
            instants = [now] * len(self.remembered)
            records.append(Remembered(now, self.remembered, instants))
            self.remembered = []
        if self.duplicates:
            records.append(DuplicatesDropped(now, self.duplicates))
            self.duplicates = []
        notes = self.notes
        if notes.due_at != NEVER and (records or self.runs or self._deleted or notes.is_due(now)):
            before, after = notes.take()
            records = before + records + after if before else records + after
        if self._deleted:
            # After the deliveries that removed them.
            for number, sequences in self._deleted.items():
                records.append(Removed(now, number, DELETED, sequences))
            self._deleted = {}
        self.next_position += len(records)
        if self.runs:
            records = self.runs + records
            self.runs = []
        self.records = []
        return records

    def take_replies(self) -> list[Reply]:
        """Return everything to be answered since the last call, in order."""
        replies = self.replies
        self.replies = []
        return replies


def _disabled(path: str) -> Refusal:
    return Refusal(ENTITY_DISABLED, f"Messaging entity '{path}' is currently disabled.")
