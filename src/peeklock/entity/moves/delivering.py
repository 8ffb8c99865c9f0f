"""Who gets the next message: credit, turns, locks."""

from __future__ import annotations

from typing import Final, final

from peeklock.budgets import Budget
from peeklock.entity.commands import (
    FORWARD,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    CloseReceiver,
    Grant,
    OpenReceiver,
)
from peeklock.entity.deliveries import STATE_ACTIVE, STATE_DEFERRED, Delivery
from peeklock.entity.entries import LOCKED, WITH_SESSION, Entry, Lock
from peeklock.entity.lane import Lane
from peeklock.entity.message import NEVER
from peeklock.entity.moves.receiver import Receiver
from peeklock.entity.moves.settling import CHANCE_MASK, LANE_BITS
from peeklock.entity.replies import Delivered, Drained, Origin, Ready
from peeklock.entity.state import State

DELIVERED_AT_ONCE: Final = 2048
"""Messages that one decision hands out, whatever the credit is: the receivers' part of the work is
done in one step as well."""

# What is passed over because it is gone costs less than a delivery: so much in one step.
PASSED: Final = 8


@final
class Delivering:
    """Hands ready messages to receivers that have credit, in turns."""

    __slots__ = ("_budget", "_charged", "_draining", "_left", "_state", "_told", "is_cut")

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._draining: list[Receiver] = []
        self._left: int = 0  # how many messages this decision may still hand out
        self.is_cut: bool = False  # whether the next one goes on where the last has stopped
        # What was taken from the budget of receivers: in this decision, and in those that are told.
        self._budget: Budget | None = None
        self._charged: int = 0
        self._told: int = 0

    def open(self, command: OpenReceiver) -> None:
        """A receiver takes its place; it gets nothing before it grants."""
        lane = self._state.lane(command.lane)
        self._state.receivers[command.origin] = Receiver(
            command.origin, lane, command.mode, command.consumer
        )

    def grant(self, command: Grant) -> None:
        """A receiver says how far it will take messages; unknown ones are gone already."""
        receiver = self._state.receivers.get(command.origin)
        if receiver is None:
            return
        receiver.limit = command.limit
        receiver.size_limit = command.size_limit
        receiver.budget = command.budget
        if receiver.watch or command.watch:
            # A new grant ends the watch of the one before; its own begins when it is drained.
            receiver.lane.forget_watcher(receiver)
            receiver.watch = command.watch and command.drain
        if command.drain:
            receiver.drain = True
            self._draining.append(receiver)
        if receiver.has_credit() and not receiver.waiting:
            receiver.waiting = True
            receiver.lane.waiting.append(receiver)
            self._state.touch(receiver.lane)

    def close(self, command: CloseReceiver) -> Receiver | None:
        """A receiver is gone; return it if it was known."""
        receiver = self._state.receivers.pop(command.origin, None)
        if receiver is not None:
            receiver.closed = True
            if receiver.waiting:
                receiver.lane.waiting.remove(receiver)
            if receiver.watch:
                receiver.lane.forget_watcher(receiver)
        return receiver

    def deliver(self, now: int) -> None:
        """One pass at the end of a decision: every line that has both messages and credit. What is
        too much for one is gone on with in the next, the others first."""
        state = self._state
        state.notes.handing_out()
        self._left = DELIVERED_AT_ONCE
        later: list[Lane] = []
        cut: Lane | None = None
        while state.touched:
            touched = state.touched
            state.touched = []
            for line in touched:
                if self._left <= 0 and self._has_to_give(line):
                    later.append(line)  # and stays touched
                    continue
                line.is_touched = False
                if line.parent is not None or line.sessions is not None:
                    lane = line.whole()
                    if self._is_forwarding(lane, now) and not lane.is_touched:
                        lane.is_touched = True
                        later.append(lane)
                if self._has_to_give(line):
                    self._deliver_lane(line, now)
                    if self._left <= 0 and self._has_to_give(line):
                        line.is_touched = True
                        cut = line
                        continue
                if line.watchers is not None:
                    self._wake(line)
        if cut is not None:
            later.append(cut)
        state.touched = later
        self.is_cut = len(later) > 0
        if self._draining:
            self._drain()

    def _has_to_give(self, line: Lane) -> bool:
        """Return whether a line has both messages and somebody to take them."""
        return len(line.waiting) > 0 and line.ready_count > 0 and self._state.is_open(line.number)

    def _drain(self) -> None:
        """Who wanted to be told when there is no more is told, but for those who get more in the
        next decision."""
        draining = self._draining
        self._draining = []
        done: list[Receiver] = []
        for receiver in draining:
            if receiver.closed:
                continue
            if receiver.waiting and receiver.lane.is_touched:
                self._draining.append(receiver)
                continue
            receiver.drain = False
            has_more = self._is_cut_short(receiver)
            receiver.delivered = max(receiver.limit, receiver.delivered)
            self._state.replies.append(Drained(receiver.origin, has_more))
            done.append(receiver)
        for receiver in done:
            if receiver.watch and not receiver.closed:
                self._watch(receiver)

    def told(self) -> None:
        """What was decided on is on its way to the receivers."""
        self._told += self._charged
        self._charged = 0

    def handed_out(self) -> None:
        """The receivers have what was told, and count it themselves."""
        if self._told and self._budget is not None:
            self._budget.give_back(self._told)
            self._told = 0

    def _charge(self, budget: Budget, size: int) -> None:
        if self._budget is not budget:
            self.told()
            self.handed_out()  # that is another one's
            self._budget = budget
        budget.take_anyway(size)
        self._charged += size

    def _is_cut_short(self, receiver: Receiver) -> bool:
        """Return whether the bytes of a grant ended before its count and before the messages."""
        line = receiver.lane
        budget = receiver.budget
        return (
            (
                receiver.size_limit <= receiver.size_delivered
                or (budget is not None and budget.is_exhausted)
            )
            and receiver.limit > receiver.delivered
            and line.ready_count > 0
            and self._state.is_open(line.number)
        )

    def _watch(self, receiver: Receiver) -> None:
        """A receiver without credit is told when there is something for it, or right away."""
        line = receiver.lane
        if line.watchers is None:
            line.watchers = {}
        line.watchers[receiver] = True
        self._wake(line)

    def _wake(self, line: Lane) -> None:
        """Tell those who watch that messages are left over; each is told once."""
        watchers = line.watchers
        if watchers is None or not line.ready_count or not self._state.is_open(line.number):
            return
        line.watchers = None
        for receiver in watchers:
            receiver.watch = False
            self._state.replies.append(Ready(receiver.origin))

    def _deliver_lane(self, lane: Lane, now: int) -> None:
        """Rotate over the waiting receivers, a run of messages each."""
        waiting = lane.waiting
        while waiting and lane.ready_count and self._left > 0:
            # The same share for each who waits, so that the first does not take all; what some
            # have no credit for goes round once more.
            share = (lane.ready_count + len(waiting) - 1) // len(waiting)
            for _ in range(len(waiting)):
                self._serve(lane, waiting.popleft(), share, now)
                if not lane.ready_count or self._left <= 0:
                    break

    def _is_forwarding(self, lane: Lane, now: int) -> bool:
        """Hand the messages of a lane's sessions to who forwards them, if somebody does: session by
        session, the one with the oldest message first. Return whether that goes on later."""
        lane_sessions = lane.sessions
        if lane_sessions is None or not lane.waiting or not self._state.is_open(lane.number):
            return False
        receiver = lane.waiting[0]
        while receiver.has_credit():
            if self._left <= 0:
                return lane.sessions_ready > 0
            session = lane_sessions.next_available()
            if session is None:
                return False
            line = session.line
            before = receiver.size_delivered
            count = min(receiver.limit - receiver.delivered, self._left)
            deliveries = self._run(line, receiver, count, now)
            if deliveries:
                self._hand(lane, receiver, deliveries, receiver.size_delivered - before, now)
            if not line.ready_count:
                lane_sessions.forget_if_empty(session)
                continue
            lane_sessions.offer(session)
        lane.waiting.popleft()
        receiver.waiting = False
        return False

    def _serve(self, lane: Lane, receiver: Receiver, share: int, now: int) -> None:
        """Give one receiver its turn; it goes to the end of the line if it has credit left."""
        if receiver.closed or not receiver.has_credit():
            receiver.waiting = False
            return
        budget = receiver.budget
        if budget is not None and budget.is_exhausted:
            budget.refused += 1
            receiver.waiting = False
            self._state.replies.append(Ready(receiver.origin))
            return
        count = min(receiver.limit - receiver.delivered, share, self._left)
        before = receiver.size_delivered
        deliveries = self._run(lane, receiver, count, now)
        if deliveries:
            self._hand(lane, receiver, deliveries, receiver.size_delivered - before, now)
        if receiver.has_credit():
            lane.waiting.append(receiver)
        else:
            receiver.waiting = False

    def _hand(
        self, lane: Lane, receiver: Receiver, deliveries: list[Delivery], size: int, now: int
    ) -> None:
        """Tell a receiver what it got."""
        receiver.delivered += len(deliveries)
        self._state.notes.delivered(lane.number, receiver.consumer, deliveries, now)
        self._state.replies.append(Delivered(receiver.origin, receiver.mode, deliveries, size))

    def _run(self, line: Lane, receiver: Receiver, count: int, now: int) -> list[Delivery]:
        """Up to so many messages for one receiver, locked or removed as it receives; the one by
        which its bytes end is the last."""
        state = self._state
        deliveries: list[Delivery] = []
        locking = receiver.mode != RECEIVE_AND_DELETE
        until = self._lock_until(line, receiver.mode, now)
        # What is forwarded out of a session has no holder: its lock is the lane's.
        locking_line = line.whole() if receiver.mode == FORWARD else line
        expires = not line.is_dead_letter
        expired: list[Entry] = []
        in_a_row = receiver.mode == PEEK_LOCK and line.parent is None
        left = receiver.size_limit - receiver.size_delivered
        budget = receiver.budget
        if budget is not None:
            left = min(left, budget.limit - budget.used)
        allowed = left
        while left > 0 and len(deliveries) < count and self._left > 0:
            passed = line.pass_gone()
            if passed:
                self._left -= max(1, passed // PASSED)
                continue
            if in_a_row:
                wanted = count - len(deliveries)
                entries = line.take_ready(wanted, left, now if expires else NEVER)
                if entries:
                    left -= self._lock_run(line, entries, receiver.origin, until, deliveries)
                    continue
            entry = line.take()
            if entry is None:
                break
            if expires and entry.expires_at and entry.expires_at <= now:
                expired.append(entry)  # checked when the server sends (R-F4)
                self._left -= 1
                continue
            left -= entry.size
            if locking:
                deliveries.append(self.lock(locking_line, entry, receiver.origin, until, False))
            else:
                deliveries.append(self.remove(line, entry, STATE_ACTIVE))
        self._left -= len(deliveries)
        receiver.size_delivered += allowed - left
        if budget is not None:
            self._charge(budget, allowed - left)
        if expired:
            state.expire(line, expired, now)
        return deliveries

    def _lock_run(
        self,
        lane: Lane,
        entries: list[Entry],
        origin: Origin,
        until: int,
        deliveries: list[Delivery],
    ) -> int:
        """Lock messages of a lane without sessions, in one loop: what `lock` does for each. Answers
        their bytes."""
        state = self._state
        random_source = state.random_source
        freed = 0
        lane_bits = lane.number << LANE_BITS
        locked = lane.locked
        # One draw for the run: who knows one of its numbers holds all of them.
        number = random_source()
        size = 0
        for entry in entries:
            sequence = entry.sequence
            size += entry.size
            number = lane_bits | ((number + 1 & CHANCE_MASK) or 1)
            lock = Lock(entry, lane, number, until, origin, False)
            if locked and lane.lock_deadline != NEVER:
                entry.place = LOCKED
                locked[sequence] = lock
            else:
                lane.lock(lock)
                state.watch(lane)
            message = entry.message
            deliveries.append(
                Delivery(
                    sequence,
                    number,
                    until,
                    entry.delivery_count,
                    entry.enqueued_at,
                    entry.expires_at,
                    entry.position,
                    message,
                    entry.details,
                    STATE_ACTIVE,
                )
            )
            if message is not None:
                entry.message = None
                freed += entry.size
        state.budget.left += freed
        state.kept_bytes -= freed
        return size

    def _lock_until(self, line: Lane, mode: int, now: int) -> int:
        if line.session is not None or mode == FORWARD:
            return WITH_SESSION
        return now + self._state.policy(line.number).lock_duration_ms

    def lock(
        self, line: Lane, entry: Entry, origin: Origin, until: int, deferred: bool
    ) -> Delivery:
        """Hand an entry out under a new lock."""
        # There are 64 random bits and the lane takes the upper ones; no lock has the number 0.
        number = (line.number << LANE_BITS) | ((self._state.random_source() & CHANCE_MASK) or 1)
        lock = Lock(entry, line, number, until, origin, deferred)
        lane = line.whole()
        is_first = not lane.locked or lane.lock_deadline == NEVER
        lane.lock(lock)
        session = line.session
        shown = NEVER if until == WITH_SESSION else until
        if session is not None:
            session.locks[entry.sequence] = lock
            shown = session.until  # what its holder has now, and may renew
        elif is_first:
            self._state.watch(lane)
        delivery = Delivery(
            entry.sequence,
            number,
            shown,
            entry.delivery_count,
            entry.enqueued_at,
            entry.expires_at,
            entry.position,
            entry.message,
            entry.details,
            STATE_DEFERRED if deferred else STATE_ACTIVE,
        )
        self._state.release_body(entry)
        return delivery

    def remove(self, line: Lane, entry: Entry, state: int) -> Delivery:
        """Hand an entry out for good (R-S1)."""
        delivery = look_at(entry, state)
        session = line.session
        if session is not None:
            delivery.locked_until = session.until  # the session is locked, if not the message
        self._state.delete(line.number, entry)
        return delivery


def look_at(entry: Entry, state: int) -> Delivery:
    """Return a delivery that locks nothing."""
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
