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
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from peeklock.entity.entries import LOCKED, TAKEN, WITH_SESSION, Entry, Lock
from peeklock.entity.message import NEVER
from peeklock.entity.numbers import Numbers
from peeklock.entity.records import DEFERRED, READY, SCHEDULED
from peeklock.large_dict import LargeDict

if TYPE_CHECKING:
    from peeklock.entity.claims.lane_claims import LaneClaims
    from peeklock.entity.moves.receiver import Receiver
    from peeklock.entity.sessions.lane_sessions import LaneSessions, MessageSession

# The head of a ready list is cut off when it has grown to this and to half of the list.
HEAD_MAX: Final = 4096

# Places of a line that are passed over in one go where nobody stands there any more, and those that
# are looked at in one go where few are left.
PASSED_MAX: Final = 16_384

# What is put right before one of many is taken out of the middle of a line costs no more than that.
PASSED_WITH_ONE: Final = 4

# Heaps of deadlines keep entries that have moved on; they are cleaned when they have doubled.
STALE_MIN: Final = 1024

# Deadlines that are moved in one go when the clock was set forward.
LENGTHENED_AT_ONCE: Final = 8192

# What most lanes have of some kinds of numbers; never written to.
NO_NUMBERS: Final = Numbers()


# What lines of sessions have instead of what belongs to their lane; never written to.
NO_LOCKS: Final[LargeDict[int, Lock]] = LargeDict()
NO_ENTRIES: Final[LargeDict[int, Entry]] = LargeDict()


@final
class Lane:
    """The main line of an entity, its dead-letter line, or the line of one message session.

    `locked`, `scheduled` and `claims` belong to whole lanes: a session's messages are in those of
    its `parent`.
    """

    __slots__ = (
        "_expirations_max",
        "claims",
        "deferred",
        "expirations",
        "head",
        "is_touched",
        "lock_deadline",
        "locked",
        "number",
        "parent",
        "ready",
        "ready_count",
        "returned",
        "scheduled",
        "scheduled_numbers",
        "schedules",
        "session",
        "session_schedules",
        "sessions",
        "sessions_deferred",
        "sessions_ready",
        "timer_at",
        "waiting",
        "watchers",
    )

    def __init__(self, number: int, parent: Lane | None = None) -> None:
        self.number: int = number
        self.ready: list[Entry] = []
        self.head: int = 0
        self.returned: list[tuple[int, Entry]] = []
        self.ready_count: int = 0
        # How many are ready and deferred in the sessions of the lane.
        self.sessions_ready: int = 0
        self.sessions_deferred: int = 0
        # Of a session's line these two are never written to.
        self.locked: LargeDict[int, Lock] = NO_LOCKS if parent is not None else LargeDict()
        # A lower bound, exact only after `expired_locks`; NEVER where no lock ends by itself.
        self.lock_deadline: int = NEVER
        self.scheduled: LargeDict[int, Entry] = NO_ENTRIES if parent is not None else LargeDict()
        self.deferred: LargeDict[int, Entry] = LargeDict()
        # Their numbers in order, and those of each session where the lane has sessions.
        self.scheduled_numbers: Numbers = NO_NUMBERS
        self.session_schedules: dict[str | None, Numbers] = {}
        self.schedules: list[tuple[int, int]] = []  # heap of (due, sequence)
        # Heap of (instant, sequence, entry, its line); entries may have moved on.
        self.expirations: list[tuple[int, int, Entry, Lane]] = []
        self._expirations_max: int = STALE_MIN
        self.waiting: deque[Receiver] = deque()
        # Who waits without credit, to be told once; None most of the time, which costs least.
        self.watchers: dict[Receiver, bool] | None = None
        self.sessions: LaneSessions | None = None  # the sessions of a lane that requires them
        self.claims: LaneClaims | None = None  # who has claimed messages, once somebody has
        self.session: MessageSession | None = None  # whose line this is
        self.parent: Lane | None = parent  # the lane that a session's line is part of
        self.is_touched: bool = False  # by the decision under way
        self.timer_at: int = NEVER  # the deadline for which this lane is on watch

    @property
    def is_dead_letter(self) -> bool:
        """Whether this is a dead-letter line: no expiry, no delivery limit, no way further."""
        return self.number & 1 == 1

    def whole(self) -> Lane:
        """Return the lane that this line is, or is part of."""
        return self if self.parent is None else self.parent

    def put(self, entry: Entry) -> None:
        """Make an entry ready at its place in the order of numbers."""
        entry.place = READY
        self.count_ready(1)
        ready = self.ready
        if len(ready) > self.head and ready[-1].sequence > entry.sequence:
            heapq.heappush(self.returned, (entry.sequence, entry))
        else:
            ready.append(entry)

    def count_ready(self, change: int) -> None:
        """So many more are ready here, and in the lane that this line is part of."""
        self.ready_count += change
        if self.parent is not None:
            self.parent.sessions_ready += change

    def put_new(self, entries: list[Entry]) -> None:
        """Make entries ready whose numbers are higher than all that were given before."""
        self.count_ready(len(entries))
        self.ready += entries

    def put_back(self, entry: Entry) -> None:
        """Make an entry ready again that had been taken: it goes ahead of what came later. Where
        all were taken and come back in order, they are a line again, and not a heap."""
        self.put(entry)

    def first_sequence(self) -> int:
        """Return the lowest ready number; 0 when nothing is ready."""
        if not self.ready_count:
            return 0
        while self.head < len(self.ready) and self.ready[self.head].place != READY:
            self._advance_head()
        returned = self.returned
        while returned and returned[0][1].place != READY:
            heapq.heappop(returned)
        lowest = returned[0][0] if returned else 0
        if self.head < len(self.ready):
            sequence = self.ready[self.head].sequence
            if lowest == 0 or sequence < lowest:
                return sequence
        return lowest

    def take(self) -> Entry | None:
        """Return the ready entry with the lowest number, taken out of the line."""
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
                self.count_ready(-1)
                return entry

    def _advance_head(self) -> None:
        self.ready[self.head] = TAKEN
        self.head += 1
        self._cut_head()

    def _cut_head(self) -> None:
        if self.head >= HEAD_MAX and self.head * 2 >= len(self.ready):
            del self.ready[: self.head]
            self.head = 0

    def take_ready(self, count: int, size_max: int, now: int) -> list[Entry]:
        """Up to so many ready entries in the order of their numbers, taken out of the line in one
        loop; that by which the bytes end is the last. It ends before the first that needs a closer
        look: one that came back, or whose life may be over."""
        taken: list[Entry] = []
        if self.returned:
            return taken
        ready = self.ready
        begin = head = self.head
        end = min(len(ready), begin + PASSED_MAX)
        left = size_max
        while head < end and left > 0 and len(taken) < count:
            entry = ready[head]
            if entry.place == READY:
                if entry.expires_at and entry.expires_at <= now:
                    break
                taken.append(entry)
                left -= entry.size
            head += 1
        ready[begin:head] = [TAKEN] * (head - begin)
        self.head = head
        self.count_ready(-len(taken))
        self._cut_head()
        return taken

    def forget_watcher(self, receiver: Receiver) -> None:
        """A receiver watches no longer, if it did."""
        receiver.watch = False
        watchers = self.watchers
        if watchers is not None and watchers.pop(receiver, False) and not watchers:
            self.watchers = None

    def expire_later(self, entry: Entry) -> None:
        """Remember when the entry's life ends."""
        lane = self.whole()
        heapq.heappush(lane.expirations, (entry.expires_at, entry.sequence, entry, self))
        if len(lane.expirations) > lane._expirations_max:
            # Most messages are settled long before they expire: forget those.
            lane.expirations = [due for due in lane.expirations if due[2].place == READY]
            heapq.heapify(lane.expirations)
            lane._expirations_max = max(STALE_MIN, 2 * len(lane.expirations))

    def drop_ready(self, entry: Entry) -> Entry:
        """Take a ready entry out of the middle: the line skips it when its turn comes."""
        self.count_ready(-1)
        moved = entry.moved()
        self.pass_gone(PASSED_WITH_ONE)
        return moved

    def lock(self, lock: Lock) -> None:
        """Hold an entry until the lock's deadline."""
        if not self.locked or self.lock_deadline == NEVER:
            self.lock_deadline = NEVER if lock.until == WITH_SESSION else lock.until
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

    def lengthening(self, duration_ms: int) -> Iterator[int]:
        """Let locks, sessions and claims end so much later, a part at a time; their order stays.
        Return how many each part had; nobody may look before all of them were."""
        done = 0
        for lock in self.locked.values():
            if lock.until != WITH_SESSION:
                lock.until += duration_ms
            done += 1
            if done == LENGTHENED_AT_ONCE:
                yield done
                done = 0
        if self.lock_deadline != NEVER:
            self.lock_deadline += duration_ms
        if self.sessions is not None:
            yield from self.sessions.lengthening(duration_ms)
        if self.claims is not None:
            self.claims.lengthen(duration_ms)
            done += len(self.claims.owners)
        yield done

    def expired_locks(self, now: int, count_max: int) -> list[Lock]:
        """Locks that are over, so many at most, taken out; sets the next deadline."""
        expired: list[Lock] = []
        self.lock_deadline = NEVER
        for lock in self.locked.values():
            if lock.until == WITH_SESSION:
                continue
            if lock.until > now or len(expired) >= count_max:
                self.lock_deadline = lock.until
                break
            expired.append(lock)
        for lock in expired:
            del self.locked[lock.entry.sequence]
        return expired

    def schedule(self, entry: Entry, due: int) -> None:
        """Set an entry aside until its instant."""
        self.set_aside(entry)
        heapq.heappush(self.schedules, (due, entry.sequence))
        if len(self.schedules) > 2 * len(self.scheduled) + STALE_MIN:
            self.schedules = [pair for pair in self.schedules if pair[1] in self.scheduled]
            heapq.heapify(self.schedules)

    def set_aside(self, entry: Entry) -> None:
        """Keep an entry among the scheduled ones."""
        sequence = entry.sequence
        entry.place = SCHEDULED
        self.scheduled[sequence] = entry
        if self.scheduled_numbers is NO_NUMBERS:
            self.scheduled_numbers = Numbers()
        self.scheduled_numbers.add(sequence)
        if self.sessions is not None:
            numbers = self.session_schedules.get(entry.session_id)
            if numbers is None:
                numbers = self.session_schedules[entry.session_id] = Numbers()
            numbers.add(sequence)

    def unschedule(self, sequence: int) -> Entry | None:
        """Take an entry out of the scheduled ones, if it is there."""
        entry = self.scheduled.pop(sequence)
        if entry is None:
            return None
        self.scheduled_numbers.remove(sequence)
        numbers = self.session_schedules.get(entry.session_id)
        if numbers is not None:
            numbers.remove(sequence)
            if numbers.is_empty:
                del self.session_schedules[entry.session_id]
        return entry

    def next_due(self, now: int) -> Entry | None:
        """Return the scheduled entry whose instant has come before all others; it stays
        scheduled."""
        schedules = self.schedules
        while schedules and schedules[0][0] <= now:
            entry = self.scheduled.get(schedules[0][1])
            if entry is not None:
                return entry
            heapq.heappop(schedules)  # cancelled meanwhile
        return None

    def take_due(self) -> None:
        """Take out what `next_due` has found."""
        self.unschedule(heapq.heappop(self.schedules)[1])

    def scheduled_of(self, session_id: str, from_sequence: int, count_max: int) -> list[Entry]:
        """Return the first scheduled entries of one session, from one number on."""
        if self.sessions is not None:
            numbers = self.session_schedules.get(session_id, NO_NUMBERS)
            return [self.scheduled[each] for each in numbers.first(from_sequence, count_max)]
        found = [each for each in self.scheduled.listed() if each.sequence >= from_sequence]
        return [entry for entry in found if entry.session_id == session_id]

    def defer(self, entry: Entry) -> None:
        """Set an entry aside until it is asked for by number."""
        entry.place = DEFERRED
        self.deferred[entry.sequence] = entry
        if self.parent is not None:
            self.parent.sessions_deferred += 1

    def undefer(self, sequence: int) -> Entry | None:
        """Take an entry out of the deferred ones, if it is there."""
        entry = self.deferred.pop(sequence)
        if entry is not None and self.parent is not None:
            self.parent.sessions_deferred -= 1
        return entry

    def next_deadline(self) -> int:
        """Return the earliest instant at which something may be due here; 0 when there is none."""
        deadline = NEVER
        if self.sessions is not None:
            deadline = self.sessions.next_deadline()  # sessions are locked, not their messages
        elif self.locked:
            deadline = self.lock_deadline
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
        if self.claims is not None:
            silence = self.claims.next_deadline()
            if silence and (deadline == NEVER or silence < deadline):
                deadline = silence
        return deadline

    def set_aside_from(self, from_sequence: int, count_max: int) -> list[Entry]:
        """What is scheduled or claimed, from one number on, in no order: of each kind the first so
        many, of a session's claims all."""
        claims = self.whole().claims
        session = self.session
        if session is not None:
            found = self.whole().scheduled_of(session.id, from_sequence, count_max)
            if claims is not None:
                found += claims.entries_of(session.id, from_sequence)
            return found
        numbers = self.scheduled_numbers.first(from_sequence, count_max)
        found = [self.scheduled[number] for number in numbers]
        if claims is not None:
            found += claims.entries(from_sequence, count_max)
        return found

    def oldest(self, before: int, count_max: int) -> list[Entry]:
        """Ready entries that entered before an instant, in the order of their numbers.

        One that entered later does not end the search: a schedule that the timer served late has an
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

    def pass_gone(self, count_max: int = PASSED_MAX) -> int:
        """Leave behind what was taken out at the front, so that nobody looks at it again, so many
        at most; return how many."""
        passed = 0
        ready = self.ready
        while passed < count_max and self.head < len(ready) and ready[self.head].place != READY:
            self._advance_head()
            passed += 1
        returned = self.returned
        while passed < count_max and returned and returned[0][1].place != READY:
            heapq.heappop(returned)
            passed += 1
        return passed

    def find(self, sequence: int) -> int:
        """Return where in `ready` the first number at or above the given one stands."""
        low = self.head
        high = len(self.ready)
        while low < high:
            middle = (low + high) // 2
            if self.ready[middle].sequence < sequence:
                low = middle + 1
            else:
                high = middle
        return low

    def entries(self) -> list[Entry]:
        """Return every live entry of the whole lane, in no order."""
        found = self._line_entries()
        found += [lock.entry for lock in self.locked.listed()]
        found += self.scheduled.listed()
        if self.claims is not None:
            found += self.claims.entries()
        if self.sessions is not None:
            for session in self.sessions.by_id.values():
                found += session.line._line_entries()
        return found

    def _line_entries(self) -> list[Entry]:
        found = [entry for entry in self.ready[self.head :] if entry.place == READY]
        found += [pair[1] for pair in self.returned if pair[1].place == READY]
        found += self.deferred.listed()
        return found

    def total_ready(self) -> int:
        """Return how many are ready, in all sessions."""
        return self.ready_count + self.sessions_ready

    def total_deferred(self) -> int:
        """Return how many are deferred, in all sessions."""
        return len(self.deferred) + self.sessions_deferred

    def total_claimed(self) -> int:
        """Return how many are claimed, in all sessions."""
        return 0 if self.claims is None else self.claims.count()

    def first_enqueued_at(self) -> int:
        """Return when the ready message with the lowest number entered; 0 when nothing is ready."""
        lowest = self.first_sequence()
        if lowest and self.returned and self.returned[0][0] == lowest:
            return self.returned[0][1].enqueued_at
        return self.ready[self.head].enqueued_at if lowest else NEVER


def _sequence(entry: Entry) -> int:
    return entry.sequence


def _is_older(entry: Entry, before: int) -> bool:
    return entry.place == READY and entry.enqueued_at < before
