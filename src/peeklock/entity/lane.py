"""One line of messages: what is ready, locked, deferred and scheduled, and who waits for it.

The container a message is in is its state. `ready` is a list with a moving head, in sequence
order, so that a look from any number finds its place by bisection; what comes back out of order
rests in the heap `returned` and is handed out first where its number is lower. `locked` is a
dictionary in the order of its deadlines: all locks of a lane last equally long, and renewing
means leaving and entering again at the end.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, final

from peeklock.entity.message import NEVER, Message
from peeklock.entity.records import DEFERRED, READY, SCHEDULED
from peeklock.entity.replies import Details

# Places beyond those that a record can name (records.READY, DEFERRED, SCHEDULED).
LOCKED: Final = 3
GONE: Final = 4

# The head of a ready list is cut off when it has grown to this and to half of the list.
HEAD_MAX: Final = 4096

# Heaps of deadlines keep entries that have moved on; they are cleaned when they have doubled.
STALE_MIN: Final = 1024


@final
class Entry:
    """One live message as its lane knows it; the body is here only while the budget allows."""

    __slots__ = (
        "delivery_count",
        "details",
        "enqueued_at",
        "expires_at",
        "message",
        "place",
        "position",
        "sequence",
        "size",
    )

    def __init__(
        self,
        sequence: int,
        position: int,
        enqueued_at: int,
        expires_at: int,
        size: int,
        message: Message | None,
    ) -> None:
        self.sequence: int = sequence
        self.position: int = position
        self.enqueued_at: int = enqueued_at
        self.expires_at: int = expires_at
        self.size: int = size
        self.delivery_count: int = 0
        self.place: int = READY
        self.message: Message | None = message
        self.details: Details | None = None

    def moved(self) -> Entry:
        """The same message under a new object, for another line; this one is gone.

        What still points here (a heap of deadlines, a line that skips lazily) must not mistake
        the message in its new place for the one it knew.
        """
        other = Entry(
            self.sequence,
            self.position,
            self.enqueued_at,
            self.expires_at,
            self.size,
            self.message,
        )
        other.delivery_count = self.delivery_count
        other.details = self.details
        self.message = None
        self.place = GONE
        return other

    def detailed(self) -> Details:
        """A copy of the details that may be changed: earlier ones may be on their way out."""
        details = Details() if self.details is None else self.details.copy()
        self.details = details
        return details


@final
class Lock:
    """The timed right of one receiver to settle one message."""

    __slots__ = ("deferred", "entry", "number", "origin", "until")

    def __init__(self, entry: Entry, number: int, until: int, origin: Any, deferred: bool) -> None:
        self.entry: Entry = entry
        self.number: int = number
        self.until: int = until
        self.origin: Any = origin
        self.deferred: bool = deferred  # locked out of deferral, and returns there


@final
class Receiver:
    """Who waits for messages of a lane, and for how many more."""

    __slots__ = ("closed", "delivered", "drain", "lane", "limit", "mode", "origin", "waiting")

    def __init__(self, origin: Any, lane: Lane, mode: int) -> None:
        self.origin: Any = origin
        self.lane: Lane = lane
        self.mode: int = mode
        self.limit: int = 0
        self.delivered: int = 0
        self.drain: bool = False
        self.waiting: bool = False  # in the lane's line of receivers with credit
        self.closed: bool = False


@final
class Lane:
    """The main line of a queue, or its dead-letter line."""

    __slots__ = (
        "_expirations_max",
        "completed",
        "deferred",
        "deleted",
        "expirations",
        "handed_out",
        "head",
        "lock_deadline",
        "locked",
        "number",
        "ready",
        "ready_count",
        "returned",
        "scheduled",
        "schedules",
        "waiting",
    )

    def __init__(self, number: int) -> None:
        self.number: int = number
        self.ready: list[Entry] = []
        self.head: int = 0
        self.returned: list[tuple[int, Entry]] = []
        self.ready_count: int = 0
        self.locked: dict[int, Lock] = {}
        self.lock_deadline: int = NEVER  # a lower bound; exact only after `expired_locks`
        self.deferred: dict[int, Entry] = {}
        self.scheduled: dict[int, Entry] = {}
        self.schedules: list[tuple[int, int]] = []  # heap of (due, sequence)
        self.expirations: list[tuple[int, int, Entry]] = []  # heap, entries may have moved on
        self._expirations_max: int = STALE_MIN
        self.waiting: deque[Receiver] = deque()
        # What the decision under way has to write down about this lane.
        self.completed: list[int] = []
        self.deleted: list[int] = []
        self.handed_out: list[int] = []

    @property
    def is_dead_letter(self) -> bool:
        """Whether this is a dead-letter line: no expiry, no delivery limit, no way further."""
        return self.number & 1 == 1

    def put(self, entry: Entry) -> None:
        """Make an entry ready at its place in the order of numbers."""
        entry.place = READY
        self.ready_count += 1
        ready = self.ready
        if len(ready) > self.head and ready[-1].sequence > entry.sequence:
            heapq.heappush(self.returned, (entry.sequence, entry))
        else:
            ready.append(entry)

    def put_back(self, entry: Entry) -> None:
        """Make an entry ready again that had been taken: it goes ahead of what came later."""
        entry.place = READY
        self.ready_count += 1
        heapq.heappush(self.returned, (entry.sequence, entry))

    def take(self) -> Entry | None:
        """The ready entry with the lowest number, taken out of the line."""
        while True:
            returned = self.returned
            head = self.head
            ready = self.ready
            if head < len(ready):
                entry = ready[head]
                if returned and returned[0][0] < entry.sequence:
                    entry = heapq.heappop(returned)[1]
                else:
                    self._advance_head()
            elif returned:
                entry = heapq.heappop(returned)[1]
            else:
                return None
            if entry.place == READY:
                self.ready_count -= 1
                return entry

    def _advance_head(self) -> None:
        self.head += 1
        if self.head >= HEAD_MAX and self.head * 2 >= len(self.ready):
            del self.ready[: self.head]
            self.head = 0

    def expire_later(self, entry: Entry) -> None:
        """Remember when the entry's life ends."""
        heapq.heappush(self.expirations, (entry.expires_at, entry.sequence, entry))
        if len(self.expirations) > self._expirations_max:
            # Most messages are settled long before they expire: forget those.
            self.expirations = [due for due in self.expirations if due[2].place == READY]
            heapq.heapify(self.expirations)
            self._expirations_max = max(STALE_MIN, 2 * len(self.expirations))

    def drop_ready(self, entry: Entry) -> Entry:
        """Take a ready entry out of the middle: the line skips it when its turn comes."""
        self.ready_count -= 1
        return entry.moved()

    def lock(self, lock: Lock) -> None:
        """Hold an entry until the lock's deadline."""
        if not self.locked:
            self.lock_deadline = lock.until
        lock.entry.place = LOCKED
        self.locked[lock.entry.sequence] = lock

    def renew(self, lock: Lock, until: int) -> None:
        """Give the lock a new deadline; it goes to the end of the line of deadlines."""
        sequence = lock.entry.sequence
        del self.locked[sequence]
        lock.until = until
        if not self.locked:
            self.lock_deadline = until
        self.locked[sequence] = lock

    def expired_locks(self, now: int) -> list[Lock]:
        """The locks that are over, taken out; sets the next deadline."""
        expired: list[Lock] = []
        self.lock_deadline = NEVER
        for lock in self.locked.values():
            if lock.until > now:
                self.lock_deadline = lock.until
                break
            expired.append(lock)
        for lock in expired:
            del self.locked[lock.entry.sequence]
        return expired

    def schedule(self, entry: Entry, due: int) -> None:
        """Set an entry aside until its instant."""
        entry.place = SCHEDULED
        self.scheduled[entry.sequence] = entry
        heapq.heappush(self.schedules, (due, entry.sequence))
        if len(self.schedules) > 2 * len(self.scheduled) + STALE_MIN:
            self.schedules = [pair for pair in self.schedules if pair[1] in self.scheduled]
            heapq.heapify(self.schedules)

    def defer(self, entry: Entry) -> None:
        """Set an entry aside until it is asked for by number."""
        entry.place = DEFERRED
        self.deferred[entry.sequence] = entry

    def next_deadline(self) -> int:
        """The earliest instant at which something may be due here; 0 when there is none."""
        deadline = self.lock_deadline if self.locked else NEVER
        schedules = self.schedules
        while schedules and schedules[0][1] not in self.scheduled:
            heapq.heappop(schedules)  # cancelled meanwhile
        if schedules and (deadline == NEVER or schedules[0][0] < deadline):
            deadline = schedules[0][0]
        expirations = self.expirations
        while expirations and expirations[0][2].place != READY:
            heapq.heappop(expirations)  # settled or locked meanwhile; a return looks again
        if expirations and (deadline == NEVER or expirations[0][0] < deadline):
            deadline = expirations[0][0]
        return deadline

    def browse(self, from_sequence: int, count_max: int) -> list[Entry]:
        """Live entries in the order of their numbers, from one number on."""
        found: list[Entry] = []
        ready = self.ready
        at = self._find(from_sequence)
        while at < len(ready) and len(found) < count_max:
            entry = ready[at]
            if entry.place == READY:
                found.append(entry)
            at += 1
        others: list[Entry] = [
            pair[1] for pair in self.returned if pair[0] >= from_sequence and pair[1].place == READY
        ]
        others += [
            lock.entry for sequence, lock in self.locked.items() if sequence >= from_sequence
        ]
        others += _at_least(self.deferred, from_sequence)
        others += _at_least(self.scheduled, from_sequence)
        if others:
            found += heapq.nsmallest(count_max, others, key=_sequence)
            found.sort(key=_sequence)
            del found[count_max:]
        return found

    def oldest(self, before: int, count_max: int) -> list[Entry]:
        """Ready entries that entered before an instant, in the order of their numbers.

        One that entered later does not end the search: a schedule that the alarm served late has an
        earlier instant than those before it, and dead letters come in any order of instants.
        """
        found: list[Entry] = []
        at = self.head
        while at < len(self.ready) and len(found) < count_max:
            if _is_older(self.ready[at], before):
                found.append(self.ready[at])
            at += 1
        returned = [pair[1] for pair in self.returned if _is_older(pair[1], before)]
        if returned:
            found += returned
            found.sort(key=_sequence)
            del found[count_max:]
        return found

    def skip_gone(self) -> None:
        """Leave behind what was taken out at the front, so that nobody looks at it again."""
        while self.head < len(self.ready) and self.ready[self.head].place == GONE:
            self._advance_head()

    def _find(self, sequence: int) -> int:
        """Where in `ready` the first number at or above the given one stands."""
        low = self.head
        high = len(self.ready)
        while low < high:
            middle = (low + high) // 2
            if self.ready[middle].sequence < sequence:
                low = middle + 1
            else:
                high = middle
        return low

    def entries(self) -> Iterable[Entry]:
        """Every live entry, in no order; for checks."""
        yield from (entry for entry in self.ready[self.head :] if entry.place == READY)
        yield from (pair[1] for pair in self.returned if pair[1].place == READY)
        yield from (lock.entry for lock in self.locked.values())
        yield from self.deferred.values()
        yield from self.scheduled.values()

    def check(self) -> None:
        """The laws of a lane; breaks when one does not hold."""
        live = list(self.entries())
        numbers = {entry.sequence for entry in live}
        assert len(numbers) == len(live), "a message is in one place, never in two"
        places = [entry.place for entry in live]
        assert places.count(READY) == self.ready_count, "the ready are counted rightly"
        assert places.count(LOCKED) == len(self.locked), "what is locked is marked so"
        assert places.count(DEFERRED) == len(self.deferred), "what is deferred is marked so"
        assert places.count(SCHEDULED) == len(self.scheduled), "what is scheduled is marked so"
        line = [entry.sequence for entry in self.ready[self.head :]]
        assert line == sorted(line), "the ready line is in order"
        deadlines = [lock.until for lock in self.locked.values()]
        assert deadlines == sorted(deadlines), "locks are in the order of their deadlines"
        assert not deadlines or self.lock_deadline <= deadlines[0], "no lock is forgotten"


def _sequence(entry: Entry) -> int:
    return entry.sequence


def _is_older(entry: Entry, before: int) -> bool:
    return entry.place == READY and entry.enqueued_at < before


def _at_least(entries: dict[int, Entry], from_sequence: int) -> list[Entry]:
    return [entry for sequence, entry in entries.items() if sequence >= from_sequence]
