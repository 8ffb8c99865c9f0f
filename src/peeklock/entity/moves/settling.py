"""What becomes of locks: settled, renewed, expired, left behind by a receiver that is gone."""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    MAIN,
    RELEASE,
    RenewLocks,
    SettleAll,
    SettleMany,
)
from peeklock.entity.deliveries import LockToken
from peeklock.entity.entries import WITH_SESSION, Entry, Lock
from peeklock.entity.lane import Lane
from peeklock.entity.message import NEVER
from peeklock.entity.records import ABANDONED, LOCK_EXPIRED
from peeklock.entity.refusals import (
    LOCK_LOST,
    LOCK_LOST_TEXT,
    MESSAGE_TOO_BIG,
    NOT_ALLOWED,
    SESSION_LOCK_LOST,
    SESSION_LOCK_LOST_TEXT,
    Refusal,
)
from peeklock.entity.replies import Numbered, Origin, Refused, Settled
from peeklock.entity.routing import partition_of_sequence
from peeklock.entity.sessions.lane_sessions import MessageSession
from peeklock.entity.settlement import Settlement
from peeklock.entity.state import State
from peeklock.entity.upkeep.journal_facts import RECONFIGURED, RELEASED, RENEWAL

LANE_BITS: Final = 48
"""The upper 16 bits of a lock number name the lane, the lower 48 are random."""

CHANCE_MASK: Final = (1 << LANE_BITS) - 1

# Names and values of all properties that receivers have set on one message: the service's limit
# of a message's header. A dead letter can be abandoned without end, and more set each time.
CHANGES_SIZE_MAX: Final = 65_536
CHANGES_TEXT: Final = (
    f"The properties set on a message by its receivers exceed the limit ({CHANGES_SIZE_MAX} bytes)."
)

DEAD_LETTER_TWICE: Final = (
    "A message of a dead-letter queue cannot be dead-lettered again; complete it or send it on."
)

SETTLED_AT_ONCE: Final = 8192
"""Settlements of one command that are carried out in one decision."""


@final
class Settling:
    """Carries out settlements on the state of a partition."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state: State = state

    def settle_many(self, command: SettleMany, now: int) -> None:
        """Each settlement on its own: what cannot be carried out is refused by its tag."""
        if self._refuse_closed(command.origin, command.tags, command.tokens):
            return
        settlement = command.settlement
        outcome = settlement.outcome
        if outcome == COMPLETE:
            self._complete_many(command, now)
            return
        done: list[int] = []
        lost: list[int] = []
        lost_tokens: list[LockToken] = []
        forbidden: list[int] = []
        too_big: list[int] = []
        locks: list[Lock] = []
        seen: set[int] = set()
        for tag, token in zip(command.tags, command.tokens, strict=True):
            lock = self._find(token, now)
            if lock is None or token.sequence in seen:
                lost.append(tag)
                lost_tokens.append(token)
            elif outcome == DEAD_LETTER and lock.line.is_dead_letter:
                forbidden.append(tag)
            elif _is_too_much(lock, settlement.changes):
                too_big.append(tag)
            else:
                seen.add(token.sequence)
                done.append(tag)
                locks.append(lock)
        self._carry_out(settlement, locks, now)
        if done:
            self._state.replies.append(Settled(command.origin, done, outcome))
        if forbidden:
            self._refuse_dead_letter(command.origin, forbidden)
        if too_big:
            refusal = Refusal(MESSAGE_TOO_BIG, CHANGES_TEXT)
            self._state.replies.append(Refused(command.origin, too_big, refusal))
        if lost:
            self._note_lost(outcome, command.consumer, lost_tokens, now)
            self._refuse_each_lost(command.origin, lost, lost_tokens)

    def _complete_many(self, command: SettleMany, now: int) -> None:
        state = self._state
        lost: list[int] | None = None
        lost_tokens: list[LockToken] = []
        tokens = command.tokens
        tags = command.tags
        lanes = state.lanes
        number = -1
        lane: Lane | None = None
        gone: list[Entry] = []
        for at in range(len(tokens)):
            token = tokens[at]
            if token.number >> LANE_BITS != number:
                if lane is not None:
                    state.complete_many(number, gone)
                    gone = []
                number = token.number >> LANE_BITS
                lane = lanes.get(number)
            lock = None if lane is None else lane.locked.get(token.sequence)
            if (
                lane is None
                or lock is None
                or lock.number != token.number
                or lock.until <= now
                or (lane.sessions is not None and not _is_held(lock, now))
            ):
                if lost is None:
                    lost = []
                lost.append(tags[at])
                lost_tokens.append(token)
                continue
            del lane.locked[token.sequence]
            gone.append(lock.entry)
            session = lock.line.session
            if session is not None:
                del session.locks[token.sequence]
                self._left(session)
        if lane is not None:
            state.complete_many(number, gone)
        if lost is None:
            state.replies.append(Settled(command.origin, tags, COMPLETE))
            return
        missing = set(lost)
        done = [tag for tag in tags if tag not in missing]
        if done:
            state.replies.append(Settled(command.origin, done, COMPLETE))
        self._note_lost(COMPLETE, command.consumer, lost_tokens, now)
        self._refuse_each_lost(command.origin, lost, lost_tokens)

    def settle_all(self, command: SettleAll, now: int) -> None:
        """All or none: one lost lock refuses the whole call."""
        settlement = command.settlement
        if self._refuse_closed(command.origin, [command.tag], command.tokens):
            return
        locks = self._find_all(command.tokens, now)
        if locks is None:
            self._note_lost(settlement.outcome, command.consumer, command.tokens, now)
            self._refuse_lost(command.origin, [command.tag], command.tokens)
            return
        if settlement.outcome == DEAD_LETTER and self._any_dead(command.tokens):
            self._refuse_dead_letter(command.origin, [command.tag])
            return
        if any(_is_too_much(lock, settlement.changes) for lock in locks):
            refusal = Refusal(MESSAGE_TOO_BIG, CHANGES_TEXT)
            self._state.replies.append(Refused(command.origin, [command.tag], refusal))
            return
        self._carry_out(settlement, locks, now)
        self._state.replies.append(Numbered(command.origin, command.tag, []))

    def renew(self, command: RenewLocks, now: int) -> None:
        """A whole duration from now for every lock, or for none."""
        if self._refuse_closed(command.origin, [command.tag], command.tokens):
            return
        locks = self._find_all(command.tokens, now)
        if locks is None:
            self._note_lost(RENEWAL, command.consumer, command.tokens, now)
            self._refuse_lost(command.origin, [command.tag], command.tokens)
            return
        untils: list[int] = []
        for lock in locks:
            if lock.line.session is not None:
                text = "The messages of a session are locked by its session: renew that."
                refusal = Refusal(NOT_ALLOWED, text)
                self._state.replies.append(Refused(command.origin, [command.tag], refusal))
                return
            untils.append(now + self._state.policy(lock.line.number).lock_duration_ms)
        for lock, until in zip(locks, untils, strict=True):
            lock.line.renew(lock, until)
            self._state.watch(lock.line)
        self._note_renewed(locks, command.consumer, now)
        self._state.replies.append(Numbered(command.origin, command.tag, untils))

    def expire(self, lane: Lane, now: int) -> None:
        """Locks of a lane whose time is over return their messages (R-L3), a stint of them."""
        if lane.sessions is None and lane.locked and lane.lock_deadline <= now:
            stint = self._state.stint
            expired = lane.expired_locks(now, stint.steps_left)
            stint.spend(len(expired))
            if expired:
                self._state.give_back(lane, expired, LOCK_EXPIRED, now)

    def release_some(self, lane: Lane, now: int) -> bool:
        """Locks that end by themselves are dropped, uncounted, a stint of them; their holders find
        them lost. Return whether those were all."""
        stint = self._state.stint
        count_max = max(1, stint.steps_left)
        locks: list[Lock] = []
        is_done = True
        for lock in lane.locked.values():
            if lock.until == WITH_SESSION:
                continue
            if len(locks) == count_max:
                is_done = False
                break
            locks.append(lock)
        stint.spend(len(locks))
        if locks:
            self._state.note_released(lane, locks, RECONFIGURED, now)
            self.release(lane, locks, now)
        if is_done:
            lane.lock_deadline = NEVER
        return is_done

    def release(self, lane: Lane, locks: list[Lock], now: int) -> None:
        """Take locks of a lane away; their messages go back to where they were, uncounted."""
        for lock in locks:
            self._unlock(lock)
        self._state.restore_places(lane, locks, now)

    def why_not(self, work: SettleMany | SettleAll, now: int) -> Refusal | None:
        """Return why these settlements cannot be carried out together, or None."""
        settlement, tokens = work.settlement, work.tokens
        for token in tokens:
            closed = self._state.why_closed(token.number >> LANE_BITS)
            if closed is not None:
                return closed
        locks = self._find_all(tokens, now)
        if locks is None:
            self._note_lost(settlement.outcome, work.consumer, tokens, now)
            return self.why_lost(tokens)
        if settlement.outcome == DEAD_LETTER and self._any_dead(tokens):
            return Refusal(NOT_ALLOWED, DEAD_LETTER_TWICE)
        if any(_is_too_much(lock, settlement.changes) for lock in locks):
            return Refusal(MESSAGE_TOO_BIG, CHANGES_TEXT)
        return None

    def carry_out(self, settlement: Settlement, tokens: list[LockToken], now: int) -> None:
        """Settle what is known to hold."""
        locks = self._find_all(tokens, now)
        assert locks is not None, "whoever carries out has asked why not"
        self._carry_out(settlement, locks, now)

    def _carry_out(self, settlement: Settlement, locks: list[Lock], now: int) -> None:
        """Settle locks that are known to hold, lane by lane."""
        by_lane: dict[int, list[Lock]] = {}
        for lock in locks:
            by_lane.setdefault(lock.line.number, []).append(lock)
        for number, held in by_lane.items():
            self._carry_out_lane(self._state.lanes[number], settlement, held, now)

    def _carry_out_lane(
        self, lane: Lane, settlement: Settlement, locks: list[Lock], now: int
    ) -> None:
        state = self._state
        outcome = settlement.outcome
        changes = settlement.changes
        for lock in locks:
            self._unlock(lock)
            if changes and outcome in (ABANDON, DEFER, DEAD_LETTER):
                state.change(lock.entry, changes, now)
        if outcome == COMPLETE:
            state.complete_many(lane.number, [lock.entry for lock in locks])
        elif outcome == ABANDON:
            state.give_back(lane, locks, ABANDONED, now)
        elif outcome == RELEASE:
            state.note_released(lane, locks, RELEASED, now)
            state.restore_places(lane, locks, now)
        elif outcome == DEFER:
            state.defer(lane, locks, now)
        elif outcome == DEAD_LETTER:
            entries = [lock.entry for lock in locks]
            state.dead_letter(lane, entries, settlement.reason, settlement.description, now)
        for lock in locks:
            if lock.line.session is not None:
                self._left(lock.line.session)

    def _unlock(self, lock: Lock) -> None:
        """Take a lock away; what becomes of the message is the caller's matter."""
        sequence = lock.entry.sequence
        del lock.line.whole().locked[sequence]
        session = lock.line.session
        if session is not None:
            del session.locks[sequence]

    def _left(self, session: MessageSession) -> None:
        """A message has left a session: it may have been the last."""
        lane_sessions = session.line.whole().sessions
        if lane_sessions is not None:
            lane_sessions.forget_if_empty(session)

    def _find(self, token: LockToken, now: int) -> Lock | None:
        number = token.number
        lane = self._state.lanes.get(number >> LANE_BITS)
        if lane is None:
            return None
        lock = lane.locked.get(token.sequence)
        if lock is None or lock.number != number or lock.until <= now or not _is_held(lock, now):
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
        return any((token.number >> LANE_BITS) & 1 for token in tokens)

    def _refuse_closed(self, origin: Origin, tags: list[int], tokens: list[LockToken]) -> bool:
        # A subscription can be disabled by itself; a lock of it says which lane it is.
        lane = tokens[0].number >> LANE_BITS if tokens else MAIN
        return self._state.refuse_closed(origin, tags, lane)

    def _refuse_dead_letter(self, origin: Origin, tags: list[int]) -> None:
        refusal = Refusal(NOT_ALLOWED, DEAD_LETTER_TWICE)
        self._state.replies.append(Refused(origin, tags, refusal))

    def _refuse_each_lost(self, origin: Origin, tags: list[int], tokens: list[LockToken]) -> None:
        """Refuse each lost lock by its own lane, those of one lane together."""
        by_lane: dict[int, list[int]] = {}
        for at in range(len(tokens)):
            by_lane.setdefault(tokens[at].number >> LANE_BITS, []).append(at)
        for places in by_lane.values():
            lost = [tags[at] for at in places]
            self._refuse_lost(origin, lost, [tokens[places[0]]])

    def _refuse_lost(self, origin: Origin, tags: list[int], tokens: list[LockToken]) -> None:
        self._state.replies.append(Refused(origin, tags, self.why_lost(tokens)))

    def _note_lost(self, outcome: int, consumer: str, tokens: list[LockToken], now: int) -> None:
        """For the journal: settlements that came too late, by lane. Tokens that never were, and
        what is given back although nobody has it, are nobody's loss."""
        if outcome == RELEASE:
            return
        state = self._state
        by_lane: dict[int, list[int]] = {}
        for token in tokens:
            sequence = token.sequence
            is_ours = partition_of_sequence(sequence) == state.index
            if is_ours and sequence < state.next_sequence and self._find(token, now) is None:
                by_lane.setdefault(token.number >> LANE_BITS, []).append(sequence)
        for number, sequences in by_lane.items():
            state.notes.failed(number, outcome, consumer, sequences, now)

    def _note_renewed(self, locks: list[Lock], consumer: str, now: int) -> None:
        """For the journal: locks that last longer, by lane, in the name of who has them."""
        by_holder: dict[tuple[int, str], list[int]] = {}
        for lock in locks:
            holder = self._state.consumer_of(lock.origin) or consumer
            by_holder.setdefault((lock.line.number, holder), []).append(lock.entry.sequence)
        for (number, holder), sequences in by_holder.items():
            self._state.notes.renewed(number, holder, sequences, now)

    def why_lost(self, tokens: list[LockToken]) -> Refusal:
        """What is lost with these locks: in a session it is the session's own lock."""
        # After a restart the lane may not be there yet; what it would be like is known.
        if tokens and self._state.has_sessions(tokens[0].number >> LANE_BITS):
            return Refusal(SESSION_LOCK_LOST, SESSION_LOCK_LOST_TEXT)
        return Refusal(LOCK_LOST, LOCK_LOST_TEXT)


def divided(command: SettleMany) -> tuple[SettleMany, SettleMany]:
    """Return a part that one decision carries out, and the rest: each settlement stands for
    itself."""
    at = SETTLED_AT_ONCE
    origin, consumer, settlement = command.origin, command.consumer, command.settlement
    tags, tokens = command.tags, command.tokens
    first = SettleMany(origin, tags[:at], settlement, tokens[:at], consumer)
    return first, SettleMany(origin, tags[at:], settlement, tokens[at:], consumer)


def _is_held(lock: Lock, now: int) -> bool:
    """Return whether the session that a lock belongs to, if it does, is still its holder's."""
    session = lock.line.session
    return session is None or session.until > now


def _is_too_much(lock: Lock, changes: dict[str, bytes] | None) -> bool:
    return changes is not None and has_too_many_changes(lock.entry, changes)


def has_too_many_changes(entry: Entry, changes: dict[str, bytes]) -> bool:
    """Return whether a message would have too many properties from its receivers with these."""
    if not changes:
        return False
    details = entry.details
    before = None if details is None else details.changes
    merged = {**before, **changes} if before else changes
    return sum(len(name) + len(value) for name, value in merged.items()) > CHANGES_SIZE_MAX
