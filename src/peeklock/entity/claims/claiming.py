"""What owners do: claim messages, list what they have, fetch and settle it; and what becomes of
claims whose owner was silent for too long."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Final, assert_never, final

from peeklock.entity.claims.commands import NO_BOUND, NO_EPOCH
from peeklock.entity.claims.lane_claims import CLAIM_GRACE_MS, ClaimOwner, LaneClaims
from peeklock.entity.claims.records import (
    UNCLAIMED_ABANDONED,
    UNCLAIMED_RELEASED,
    UNCLAIMED_TIMED_OUT,
    Claimed,
    OwnerHeard,
    Unclaimed,
)
from peeklock.entity.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    ClaimCommand,
    ClaimMessages,
    FetchClaims,
    ListClaims,
    SettleClaims,
)
from peeklock.entity.deliveries import STATE_CLAIMED, Delivery
from peeklock.entity.entries import WITH_SESSION, Entry, Lock
from peeklock.entity.lane import Lane
from peeklock.entity.message import NEVER, NO_DURATION
from peeklock.entity.moves.delivering import look_at
from peeklock.entity.moves.settling import CHANGES_TEXT, DEAD_LETTER_TWICE, has_too_many_changes
from peeklock.entity.records import ABANDONED, CLAIMED
from peeklock.entity.refusals import (
    CLAIM_FENCED,
    MESSAGE_TOO_BIG,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    Refusal,
)
from peeklock.entity.replies import (
    NOBODY,
    ClaimsFetched,
    ClaimsListed,
    ClaimsMade,
    Numbered,
    Refused,
)
from peeklock.entity.sessions.lane_sessions import LaneSessions, MessageSession
from peeklock.entity.state import State

# That an owner was heard of is written down no more often than this: what a crash forgets of it is
# little beside any sensible timeout.
HEARD_EVERY_MS: Final = 60_000

# A message that failed d times may be in a claim of at most 1 / 8**d of the size asked for.
SUSPECT_BITS: Final = 3

OWNERS_TEXT: Final = "Too many owners have claimed messages of this entity."


@final
class ClaimDraft:
    """A claim that is being made: what is in it, and what else may be."""

    __slots__ = (
        "_bytes_left",
        "_counts",
        "_room",
        "bound",
        "command",
        "entries",
        "is_full",
        "limit",
    )

    def __init__(self, command: ClaimMessages, bound: int, counts: bool) -> None:
        self.command: ClaimMessages = command
        self.entries: list[Entry] = []
        self.limit: int = command.count_max
        self.is_full: bool = False
        self.bound: int = bound  # the highest number that may be in it
        self._counts: bool = counts  # whether deliveries are counted, so that some are suspect
        self._room: int = min(command.room, command.count_max - command.taken)
        self._bytes_left: int = command.bytes_max if command.bytes_max else NO_BOUND

    def admits(self, entry: Entry) -> bool:
        """Return whether the message may be the next in the claim; what cannot be sets `is_full`,
        except for a number that is too high: another session may still have lower ones."""
        if entry.sequence > self.bound:
            return False
        here = len(self.entries)
        if here >= self._room:
            self.is_full = True
            return False
        before = here + self.command.taken
        if before and entry.size > self._bytes_left:
            self.is_full = True
            return False
        if entry.delivery_count and self._counts:
            bits = min(SUSPECT_BITS * entry.delivery_count, 62)
            suspect_max = max(1, self.command.count_max >> bits)
            if before >= suspect_max:
                self.is_full = True
                return False
            self.limit = min(self.limit, suspect_max)
            self._room = min(self._room, suspect_max - self.command.taken)
        self._bytes_left -= entry.size
        self.entries.append(entry)
        self.is_full = here + 1 >= self._room
        return True


@final
class Claiming:
    """Carries out what owners ask for on the state of a partition."""

    __slots__ = ("_has_begun", "_state")

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._has_begun: bool = False

    # Claiming.

    def decide(self, command: ClaimCommand, now: int) -> None:
        """Carry out what is asked about claims."""
        if isinstance(command, FetchClaims):
            self.fetch(command)
        elif isinstance(command, SettleClaims):
            self.settle(command, now)
        elif isinstance(command, ClaimMessages):
            self.claim(command, now)
        elif isinstance(command, ListClaims):
            self.tell(command, now)
        else:
            assert_never(command)

    def claim(self, command: ClaimMessages, now: int) -> None:
        """The oldest ready messages are the owner's from now on."""
        state = self._state
        if state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        lane = state.lane(command.lane)
        owner = self._heard(command, lane, command.timeout_ms, now)
        if owner is None:
            return
        upto = command.upto
        bound = NO_BOUND if upto is None else upto.get(state.index, -1)
        draft = ClaimDraft(command, bound, not lane.is_dead_letter)
        lane_sessions = lane.sessions
        if lane_sessions is None:
            self._draw(lane, draft, now)
        else:
            self._draw_sessions(lane_sessions, owner, draft, now)
        entries = draft.entries
        sequences = [entry.sequence for entry in entries]
        if entries:
            for entry in entries:
                entry.place = CLAIMED
                owner.hold(entry)
            if state.moved is not None:
                state.moved += [(lane.number, entry) for entry in entries]
            state.records.append(Claimed(now, lane.number, owner.name, sequences))
            owner.told_at = now
            self._expect(lane, owner)
        session_ids = None if lane_sessions is None else [entry.session_id for entry in entries]
        sizes = [entry.size for entry in entries]
        state.replies.append(
            ClaimsMade(
                command.origin,
                command.tag,
                sequences,
                sizes,
                session_ids,
                draft.limit,
            )
        )

    def _draw(self, line: Lane, draft: ClaimDraft, now: int) -> int:
        """Take from one line, in order, what the claim admits; return how many."""
        state = self._state
        expires = not line.is_dead_letter
        before = len(draft.entries)
        expired: list[Entry] = []
        while not draft.is_full:
            entry = line.take()
            if entry is None:
                break
            if expires and entry.expires_at and entry.expires_at <= now:
                expired.append(entry)  # checked when it is handed out (R-F4)
                continue
            if not draft.admits(entry):
                line.put_back(entry)
                break
        if expired:
            state.expire(line, expired, now)
        return len(draft.entries) - before

    def _draw_sessions(
        self, lane_sessions: LaneSessions, owner: ClaimOwner, draft: ClaimDraft, now: int
    ) -> None:
        """Take from the sessions that nobody else has, the one with the oldest message first."""
        mine: list[tuple[int, str]] = []
        for name in owner.sessions:
            oldest = lane_sessions.by_id[name].line.first_sequence()
            if oldest:
                mine.append((oldest, name))
        heapq.heapify(mine)
        left: list[MessageSession] = []
        free = lane_sessions.next_available()
        count = 0
        while count < draft.command.session_count and not draft.is_full:
            first = NO_BOUND if free is None else free.line.first_sequence()
            if mine and mine[0][0] < first:
                first = mine[0][0]
                if first > draft.bound:
                    break  # and so are all that come later
                session = lane_sessions.by_id[heapq.heappop(mine)[1]]
            elif free is not None and first <= draft.bound:
                session = free
                left.append(free)
                free = lane_sessions.next_available()
            else:
                break
            drawn = self._draw(session.line, draft, now)
            if drawn:
                count += 1
                session.claimant = owner.name
                owner.sessions[session.id] = owner.sessions.get(session.id, 0) + drawn
        if free is not None:
            left.append(free)
        for session in left:
            # What was looked at in vain is free as before; expiry may have emptied it.
            lane_sessions.offer(session)
            lane_sessions.forget_if_empty(session)

    # Looking.

    def tell(self, command: ListClaims, now: int) -> None:
        """What the owner has, in the order of the numbers, and how the lane is."""
        state = self._state
        if state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        lane = state.lane(command.lane)
        owner = self._asking(command, lane, now)
        if owner is None and command.epoch != NO_EPOCH:
            return
        entries: list[Entry] = []
        attempts: list[int] = []
        if owner is not None:
            for number in owner.numbers.first(command.from_sequence, command.count_max):
                entries.append(owner.held[number])
                attempts.append(owner.attempts.get(number, 0))
        state.replies.append(
            ClaimsListed(
                command.origin,
                command.tag,
                NO_EPOCH if owner is None else owner.epoch,
                [entry.sequence for entry in entries],
                [entry.size for entry in entries],
                attempts,
                None if lane.sessions is None else [entry.session_id for entry in entries],
                [state.next_sequence - 1],
                lane.total_ready() + len(lane.locked),
                _oldest_enqueued_at(lane),
                [],
            )
        )

    def fetch(self, command: FetchClaims) -> None:
        """Messages that the owner has, within the limit, at least one if any."""
        state = self._state
        if state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        owner = self._known(state.lane(command.lane), command.owner)
        found: list[Delivery] = []
        looked_at = 0
        size = 0
        for sequence in command.sequences:
            entry = None if owner is None else owner.held.get(sequence)
            if entry is not None and owner is not None:
                size += entry.size
                if found and size > command.bytes_max:
                    break
                owner.attempts[sequence] = owner.attempts.get(sequence, 0) + 1
                found.append(look_at(entry, STATE_CLAIMED))
            looked_at += 1
        state.replies.append(ClaimsFetched(command.origin, command.tag, found, looked_at))

    # Settling.

    def settle(self, command: SettleClaims, now: int) -> None:
        """End claims; what the owner does not have is left as it is."""
        state = self._state
        if state.refuse_closed(command.origin, [command.tag], command.lane):
            return
        lane = state.lane(command.lane)
        owner = self._asking(command, lane, now)
        if owner is None and command.epoch != NO_EPOCH:
            return
        refusal = self._why_not(command, lane, owner)
        if refusal is not None:
            state.replies.append(Refused(command.origin, [command.tag], refusal))
            return
        entries: list[Entry] = []
        if owner is not None:
            entries = self._let_go(owner, command.sequences)
            self._carry_out(command, lane, owner, entries, now)
            self._free_sessions(lane, owner, entries)
        state.replies.append(Numbered(command.origin, command.tag, [len(entries)]))

    def _why_not(
        self, command: SettleClaims, lane: Lane, owner: ClaimOwner | None
    ) -> Refusal | None:
        if command.settlement.outcome == DEAD_LETTER and lane.is_dead_letter:
            return Refusal(NOT_ALLOWED, DEAD_LETTER_TWICE)
        changes = command.settlement.changes
        if changes and owner is not None:
            for sequence in command.sequences:
                entry = owner.held.get(sequence)
                if entry is not None and has_too_many_changes(entry, changes):
                    return Refusal(MESSAGE_TOO_BIG, CHANGES_TEXT)
        return None

    def _let_go(self, owner: ClaimOwner, sequences: list[int]) -> list[Entry]:
        """Take messages out of the owner's hands; what becomes of them is the caller's matter."""
        attempts = owner.attempts
        entries: list[Entry] = []
        for sequence in sequences:
            entry = owner.let_go(sequence)
            if entry is not None:
                entries.append(entry)
        if attempts:
            for entry in entries:
                attempts.pop(entry.sequence, None)
        return entries

    def _carry_out(
        self, command: SettleClaims, lane: Lane, owner: ClaimOwner, entries: list[Entry], now: int
    ) -> None:
        state = self._state
        settlement = command.settlement
        outcome = settlement.outcome
        if not entries:
            return
        if outcome == COMPLETE:
            state.complete_many(lane.number, entries)
            return
        if settlement.changes and outcome != RELEASE:
            for entry in entries:
                state.change(entry, settlement.changes, now)
        if outcome == DEAD_LETTER:
            state.dead_letter(lane, entries, settlement.reason, settlement.description, now)
        elif outcome == DEFER:
            state.defer(lane, self._locks(lane, entries), now)
        elif outcome == ABANDON and not lane.is_dead_letter:
            self._unclaimed(lane, UNCLAIMED_ABANDONED, owner, entries, now)
            state.give_back(lane, self._locks(lane, entries), ABANDONED, now)
        else:
            why = UNCLAIMED_ABANDONED if outcome == ABANDON else UNCLAIMED_RELEASED
            self._return(lane, why, owner, entries, now)

    def _return(
        self, lane: Lane, why: int, owner: ClaimOwner, entries: list[Entry], now: int
    ) -> None:
        """Messages go back to where they were, uncounted."""
        self._unclaimed(lane, why, owner, entries, now)
        self._state.restore_places(lane, self._locks(lane, entries), now)

    def _unclaimed(
        self, lane: Lane, why: int, owner: ClaimOwner, entries: list[Entry], now: int
    ) -> None:
        sequences = [entry.sequence for entry in entries]
        self._state.records.append(Unclaimed(now, lane.number, why, owner.name, sequences))

    def _locks(self, lane: Lane, entries: list[Entry]) -> list[Lock]:
        """Return the entries as what ends a lock takes them: each with the line that it goes back
        to."""
        state = self._state
        return [
            Lock(entry, state.line(lane, entry.session_id), 0, WITH_SESSION, NOBODY, False)
            for entry in entries
        ]

    def _free_sessions(self, lane: Lane, owner: ClaimOwner, entries: list[Entry]) -> None:
        """A session whose last claim has ended is free for others."""
        lane_sessions = lane.sessions
        if lane_sessions is None:
            return
        sessions = owner.sessions
        for entry in entries:
            name = entry.session_id
            if name is None or name not in sessions:
                continue
            sessions[name] -= 1
            if sessions[name] == 0:
                del sessions[name]
                session = lane_sessions.by_id[name]
                session.claimant = None
                if session.is_empty:
                    lane_sessions.forget_if_empty(session)
                else:
                    lane_sessions.offer(session)
                    self._state.touch(session.line)

    def take_out(self, lane: Lane, sequences: list[int]) -> list[Entry]:
        """Take messages out of the hands of whoever has them; the caller writes down why."""
        entries: list[Entry] = []
        if lane.claims is not None:
            for owner in lane.claims.owners.values():
                held = self._let_go(owner, sequences)
                self._free_sessions(lane, owner, held)
                entries += held
        return entries

    # Time.

    def begin(self, now: int) -> None:
        """The first timer after the opening: nobody lost anything while the partition was away."""
        if self._has_begun:
            return
        self._has_begun = True
        for lane in self._state.lanes.values():
            if lane.claims is not None:
                for owner in lane.claims.owners.values():
                    if owner.is_replayed and owner.held:
                        grace_ms = min(CLAIM_GRACE_MS, owner.timeout_ms)
                        owner.heard_at = max(owner.heard_at, now + grace_ms - owner.timeout_ms)
                lane.claims.look_again()

    def tick(self, lane: Lane, now: int) -> None:
        """Owners that were silent for too long lose what they have, a stint of it at a time, and
        are forgotten later."""
        claims = lane.claims
        if claims is None or not claims.next_deadline() or claims.next_deadline() > now:
            return
        stint = self._state.stint
        for owner in claims.silent(now):
            if stint.is_over:
                break
            if owner.held:
                entries = self._let_go(owner, list(islice(owner.held, stint.steps_left)))
                stint.spend(len(entries))
                self._return(lane, UNCLAIMED_TIMED_OUT, owner, entries, now)
                self._free_sessions(lane, owner, entries)
            if not owner.held and owner.deadline <= now:
                del claims.owners[owner.name]
        claims.look_again()

    # Owners.

    def _known(self, lane: Lane, name: str) -> ClaimOwner | None:
        return None if lane.claims is None else lane.claims.owners.get(name)

    def _asking(
        self, command: ListClaims | SettleClaims, lane: Lane, now: int
    ) -> ClaimOwner | None:
        """Return whose claims it is about: with an epoch it is heard of, or refused (None); without
        one it may be unknown (None)."""
        if command.epoch == NO_EPOCH:
            return self._known(lane, command.owner)
        return self._heard(command, lane, NO_DURATION, now)

    def _heard(
        self,
        command: ClaimMessages | ListClaims | SettleClaims,
        lane: Lane,
        timeout_ms: int,
        now: int,
    ) -> ClaimOwner | None:
        """Return the owner, which was heard of now; None where it was refused because a later one
        came."""
        state = self._state
        claims = lane.claims
        if claims is None:
            claims = lane.claims = LaneClaims()
        owner = claims.owners.get(command.owner)
        if owner is not None and command.epoch < owner.epoch:
            text = (
                f"The owner '{owner.name}' claims with epoch {owner.epoch} by now: "
                f"epoch {command.epoch} is over."
            )
            refusal = Refusal(CLAIM_FENCED, text)
            state.replies.append(Refused(command.origin, [command.tag], refusal))
            return None
        if owner is None:
            if not claims.make_room():
                refusal = Refusal(QUOTA_EXCEEDED, OWNERS_TEXT)
                state.replies.append(Refused(command.origin, [command.tag], refusal))
                return None
            owner = claims.owner(command.owner)
        is_news = command.epoch > owner.epoch or now - owner.told_at >= HEARD_EVERY_MS
        owner.epoch = command.epoch
        if timeout_ms != NO_DURATION and timeout_ms != owner.timeout_ms:
            owner.timeout_ms = timeout_ms
            is_news = True
        owner.heard_at = now
        if is_news:
            owner.told_at = now
            state.records.append(
                OwnerHeard(now, lane.number, owner.name, owner.epoch, owner.timeout_ms)
            )
        self._expect(lane, owner)
        return owner

    def _expect(self, lane: Lane, owner: ClaimOwner) -> None:
        assert lane.claims is not None, "an owner is in a book"
        lane.claims.expect(owner)
        self._state.watch(lane)


def _oldest_enqueued_at(lane: Lane) -> int:
    """Return when the first of the ready messages entered; 0 when none is ready."""
    if lane.sessions is None:
        return lane.first_enqueued_at()
    oldest = NEVER
    for session in lane.sessions.by_id.values():
        at = session.line.first_enqueued_at()
        if at and (oldest == NEVER or at < oldest):
            oldest = at
    return oldest
