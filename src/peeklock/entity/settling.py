"""What becomes of locks: settled, renewed, expired, left behind by a receiver that is gone."""

from __future__ import annotations

from typing import Any, Final, final

from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    DeadLetterNote,
    LockToken,
    RenewLocks,
    SettleAll,
    SettleMany,
)
from peeklock.entity.definition import DISABLED, RECEIVE_DISABLED
from peeklock.entity.lane import Lane, Lock
from peeklock.entity.records import ABANDONED, LOCK_EXPIRED
from peeklock.entity.refusals import (
    ENTITY_DISABLED,
    LOCK_LOST,
    LOCK_LOST_TEXT,
    NOT_ALLOWED,
    Refusal,
)
from peeklock.entity.replies import Numbered, Refused, Settled
from peeklock.entity.state import State

LANE_BITS: Final = 48
"""The upper 16 bits of a lock number name the lane, the lower 48 are chance."""

CHANCE_MASK: Final = (1 << LANE_BITS) - 1

DEAD_LETTER_TWICE: Final = (
    "A message of a dead-letter queue cannot be dead-lettered again; complete it or send it on."
)


@final
class Settling:
    """Carries out settlements on the state of a partition."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state: State = state

    def settle_many(self, command: SettleMany, now: int) -> None:
        """Each settlement on its own: what cannot be carried out is refused by its tag."""
        if self._refuse_disabled(command.origin, command.tags):
            return
        if command.outcome == COMPLETE:
            self._complete_many(command, now)
            return
        done: list[int] = []
        lost: list[int] = []
        forbidden: list[int] = []
        locks: list[Lock] = []
        seen: set[int] = set()
        for tag, token in zip(command.tags, command.tokens, strict=True):
            lock = self._find(token, now)
            if lock is None or token.sequence in seen:
                lost.append(tag)
            elif command.outcome == DEAD_LETTER and self._lane(token).is_dead_letter:
                forbidden.append(tag)
            else:
                seen.add(token.sequence)
                done.append(tag)
                locks.append(lock)
        self._carry_out(command.outcome, locks, command.changes, command.note, now)
        if done:
            self._state.replies.append(Settled(command.origin, done, command.outcome))
        if forbidden:
            self._refuse_dead_letter(command.origin, forbidden)
        if lost:
            self._refuse_lost(command.origin, lost)

    def _complete_many(self, command: SettleMany, now: int) -> None:
        state = self._state
        lanes = state.lanes
        lost: list[int] | None = None
        tokens = command.tokens
        tags = command.tags
        for at in range(len(tokens)):
            token = tokens[at]
            number = token.number
            lane_number = number >> LANE_BITS
            lane = lanes[lane_number] if lane_number < len(lanes) else lanes[0]
            lock = lane.locked.get(token.sequence)
            if lock is None or lock.number != number or lock.until <= now:
                if lost is None:
                    lost = []
                lost.append(tags[at])
                continue
            del lane.locked[token.sequence]
            lane.completed.append(token.sequence)
            state.forget(lock.entry)
        if lost is None:
            state.replies.append(Settled(command.origin, tags, COMPLETE))
            return
        missing = set(lost)
        done = [tag for tag in tags if tag not in missing]
        if done:
            state.replies.append(Settled(command.origin, done, COMPLETE))
        self._refuse_lost(command.origin, lost)

    def settle_all(self, command: SettleAll, now: int) -> None:
        """All or none: one lost lock refuses the whole call."""
        if self._refuse_disabled(command.origin, [command.tag]):
            return
        locks = self._find_all(command.tokens, now)
        if locks is None:
            self._refuse_lost(command.origin, [command.tag])
            return
        if command.outcome == DEAD_LETTER and self._any_dead(command.tokens):
            self._refuse_dead_letter(command.origin, [command.tag])
            return
        self._carry_out(command.outcome, locks, command.changes, command.note, now)
        self._state.replies.append(Numbered(command.origin, command.tag, []))

    def renew(self, command: RenewLocks, now: int) -> None:
        """A whole duration from now for every lock, or for none."""
        if self._refuse_disabled(command.origin, [command.tag]):
            return
        locks = self._find_all(command.tokens, now)
        if locks is None:
            self._refuse_lost(command.origin, [command.tag])
            return
        until = now + self._state.definition.lock_duration_ms
        for lock, token in zip(locks, command.tokens, strict=True):
            self._lane(token).renew(lock, until)
        self._state.replies.append(Numbered(command.origin, command.tag, [until] * len(locks)))

    def expire(self, now: int) -> None:
        """Locks whose time is over return their messages (R-L3)."""
        for lane in self._state.lanes:
            if lane.locked and lane.lock_deadline <= now:
                expired = lane.expired_locks(now)
                if expired:
                    self._state.give_back(lane, expired, LOCK_EXPIRED, now)

    def release_every_lock(self, now: int) -> None:
        """All locks are dropped, uncounted; their holders find them lost."""
        for lane in self._state.lanes:
            locks = list(lane.locked.values())
            lane.locked = {}
            for lock in locks:
                self._release(lane, lock, now)

    def release_all(self, origin: Any, now: int) -> None:
        """A receiver is gone and the queue wants its locks back at once, uncounted."""
        for lane in self._state.lanes:
            left = [lock for lock in lane.locked.values() if lock.origin is origin]
            for lock in left:
                del lane.locked[lock.entry.sequence]
                self._release(lane, lock, now)

    def _carry_out(
        self,
        outcome: int,
        locks: list[Lock],
        changes: dict[str, bytes] | None,
        note: DeadLetterNote | None,
        now: int,
    ) -> None:
        """Settle locks that are known to hold, lane by lane."""
        state = self._state
        for lane in state.lanes:
            held = [lock for lock in locks if lane.locked.get(lock.entry.sequence) is lock]
            if not held:
                continue
            for lock in held:
                del lane.locked[lock.entry.sequence]
                if changes and outcome in (ABANDON, DEFER, DEAD_LETTER):
                    state.change(lock.entry, changes, now)
            if outcome == COMPLETE:
                for lock in held:
                    lane.completed.append(lock.entry.sequence)
                    state.forget(lock.entry)
            elif outcome == ABANDON:
                state.give_back(lane, held, ABANDONED, now)
            elif outcome == RELEASE:
                for lock in held:
                    self._release(lane, lock, now)
            elif outcome == DEFER:
                state.defer(lane, [lock.entry for lock in held], now)
            elif outcome == DEAD_LETTER:
                reason = note.reason if note is not None else None
                description = note.description if note is not None else None
                entries = [lock.entry for lock in held]
                state.dead_letter(lane, entries, reason, description, now)

    def _release(self, lane: Lane, lock: Lock, now: int) -> None:
        """Back as it was: nothing to write down, because the lock was never written down."""
        if lock.deferred:
            lane.defer(lock.entry)
        else:
            self._state.restore_place(lane, lock.entry, now)

    def _lane(self, token: LockToken) -> Lane:
        lanes = self._state.lanes
        number = token.number >> LANE_BITS
        return lanes[number] if number < len(lanes) else lanes[0]

    def _find(self, token: LockToken, now: int) -> Lock | None:
        lock = self._lane(token).locked.get(token.sequence)
        if lock is None or lock.number != token.number or lock.until <= now:
            return None
        return lock

    def _find_all(self, tokens: list[LockToken], now: int) -> list[Lock] | None:
        locks: list[Lock] = []
        seen: set[int] = set()
        for token in tokens:
            lock = self._find(token, now)
            if lock is None or token.sequence in seen:
                return None
            seen.add(token.sequence)
            locks.append(lock)
        return locks

    def _any_dead(self, tokens: list[LockToken]) -> bool:
        return any(self._lane(token).is_dead_letter for token in tokens)

    def _refuse_disabled(self, origin: Any, tags: list[int]) -> bool:
        status = self._state.definition.status
        if status not in (DISABLED, RECEIVE_DISABLED):
            return False
        text = f"Messaging entity '{self._state.definition.path}' is currently disabled."
        self._state.replies.append(Refused(origin, tags, Refusal(ENTITY_DISABLED, text)))
        return True

    def _refuse_dead_letter(self, origin: Any, tags: list[int]) -> None:
        refusal = Refusal(NOT_ALLOWED, DEAD_LETTER_TWICE)
        self._state.replies.append(Refused(origin, tags, refusal))

    def _refuse_lost(self, origin: Any, tags: list[int]) -> None:
        refusal = Refusal(LOCK_LOST, LOCK_LOST_TEXT)
        self._state.replies.append(Refused(origin, tags, refusal))
