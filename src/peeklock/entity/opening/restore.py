"""Opening: records in, living state out. Locks are not among the records; what was locked is
ready again, with the deliveries counted that had ended (R-L4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, assert_never, final

from peeklock.entity.claims.records import Claimed, ClaimRecord, OwnerHeard, Unclaimed
from peeklock.entity.claims.replay import ClaimsReplayed
from peeklock.entity.commands import MAIN, TRANSFER
from peeklock.entity.entries import Entry
from peeklock.entity.message import NEVER, Message
from peeklock.entity.opening.placing import Entries, Placing, ReplayedMessages
from peeklock.entity.opening.portions import portion, portions
from peeklock.entity.records import (
    CLAIMED,
    DEFERRED,
    READY,
    SCHEDULED,
    Activated,
    Changed,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    DeadLettered,
    Deferred,
    DuplicatesDropped,
    Enqueued,
    Kept,
    Lost,
    Record,
    Relocated,
    RelocatedCopies,
    Remembered,
    Removed,
    Requeued,
    Reserved,
    Returned,
    Scheduled,
    width,
)
from peeklock.entity.sessions.records import SessionRecord, SessionStateSet
from peeklock.entity.stages.records import (
    Staged,
    StageDropped,
    StageKept,
    StageRecord,
    StagesDropped,
    StagesPublished,
)
from peeklock.entity.stages.replay import StagesReplayed, replay_publishing
from peeklock.entity.state import State
from peeklock.entity.topics.copying import bury, copy_details
from peeklock.entity.topics.records import CopiesBuried, LaneDropped, Published
from peeklock.entity.transfers.records import (
    DestinationsNoted,
    TakenOver,
    TransferRecord,
    Transferring,
)
from peeklock.entity.upkeep.journal_facts import (
    HandedTo,
    Note,
)

EVERYTHING: Final = 1 << 62

# Those that are few; a new record is here, or taken in with the frequent ones.
_Rare: TypeAlias = (
    SessionRecord
    | ClaimRecord
    | StageRecord
    | TransferRecord
    | Note
    | CopiesBuried
    | LaneDropped
    | RelocatedCopies
    | Requeued
    | DuplicatesDropped
    | Remembered
    | Reserved
    | Lost
    | CheckpointEnded
)


@final
class Restoring:
    """Rebuilds a state from records. The index by number exists only while opening."""

    __slots__ = (
        "_at",
        "_claims",
        "_complete",
        "_entries",
        "_found",
        "_has_lost",
        "_next_sequence",
        "_placing",
        "_records",
        "_stages",
        "_state",
        "_taken",
        "replayed",
    )

    def __init__(self, state: State) -> None:
        self._state: State = state
        found = ReplayedMessages(state)
        self._found: ReplayedMessages = found
        self._entries: Entries = found.entries
        self._claims: ClaimsReplayed = found.claims
        self._stages: StagesReplayed = found.stages
        # Records that are being taken in: the next one, and how much of it was.
        self._records: Sequence[Record] = ()
        self._at: int = 0
        self._taken: int = 0
        self._placing: Placing | None = None
        self._next_sequence: int = state.next_sequence
        self._complete: bool = True  # whether every live message is known at this point
        self._has_lost: bool = False  # whether records were given up
        self.replayed: int = -1  # the position where the replay began

    def apply(self, first_position: int, records: Sequence[Record]) -> None:
        """Take in records in order; positions must join without a gap."""
        self.begin(first_position, records)
        while not self.go_on(EVERYTHING):
            pass

    def begin(self, first_position: int, records: Sequence[Record]) -> None:
        """Records that are to be taken in next, all of them before there are others."""
        assert self._at == len(self._records), "what was begun is gone on with"
        if self.replayed < 0:
            self.replayed = first_position
            # Only the very first record has nothing before it that could be missing.
            self._complete = first_position == 0
        else:
            assert first_position == self._state.next_position, "the journal has no gaps"
        self._state.next_position = first_position
        self._records = records
        self._at = 0

    def go_on(self, count_max: int) -> bool:
        """Take in about so many messages' worth of the records; return whether those were all."""
        state = self._state
        records = self._records
        left = count_max
        while self._at < len(records):
            if left <= 0:
                return False
            record = records[self._at]
            whole = portions(record)
            begin = self._taken
            end = min(whole, begin + left)
            part = None if end - begin == whole else portion(record, begin, end)
            if part is None:
                self._apply(record, state.next_position)
                end = whole
            else:
                # Of what takes a position for each message, some were passed already.
                self._apply(part, state.next_position + (begin if width(record) > 1 else 0))
            left -= 1 + end - begin
            self._taken = end
            if end == whole:
                self._at += 1
                self._taken = 0
                state.next_position += width(record)
                state.latest_at = max(state.latest_at, record.at)
        return True

    def _apply(self, record: Record, position: int) -> None:
        if isinstance(record, Enqueued):
            self._enqueued(record, position)
        elif isinstance(record, Removed):
            for sequence in record.sequences:
                if self._entries.pop(sequence) is None:
                    self._unknown(sequence)
                self._claims.let_go(sequence)
        elif isinstance(record, HandedTo):
            pass  # for the journal only, and often
        elif isinstance(record, Returned):
            self._counts(record.sequences, record.counts)
        elif isinstance(record, Scheduled):
            self._scheduled(record, position)
        elif isinstance(record, Published):
            self._published(record, position)
        elif isinstance(record, Activated):
            self._activated(record)
        elif isinstance(record, Deferred):
            self._counts(record.sequences, record.counts)
            for sequence in record.sequences:
                entry = self._entries.get(sequence)
                if entry is not None:
                    entry.place = DEFERRED
        elif isinstance(record, DeadLettered):
            self._dead_lettered(record)
        elif isinstance(record, Changed):
            entry = self._entries.get(record.sequence)
            if entry is None:
                self._unknown(record.sequence)
            else:
                entry.detailed().changes = record.changes
        elif isinstance(record, Relocated):
            for at, sequence in enumerate(record.sequences):
                self._relocated(sequence, position + at)
        elif isinstance(record, CheckpointBegun):
            self._next_sequence = max(self._next_sequence, record.next_sequence)
        elif isinstance(record, CheckpointSlice):
            for kept in record.entries:
                self._kept(kept, record.lane)
        else:
            self._apply_rare(record, position)

    def _apply_rare(self, record: _Rare, position: int) -> None:
        state = self._state
        if isinstance(record, SessionStateSet):
            states = self._found.states.setdefault(record.lane, {})
            if record.state is None:
                states.pop(record.session_id, None)
            else:
                states[record.session_id] = (record.state, record.at)
        elif isinstance(record, ClaimRecord):
            self._apply_to_claims(record)
        elif isinstance(record, (DuplicatesDropped, Note)):
            pass  # for the journal only
        elif isinstance(record, Remembered):
            for message_id, instant in zip(record.message_ids, record.instants, strict=True):
                state.seen.remember(message_id, instant)
        elif isinstance(record, TakenOver):
            taken = state.taken.setdefault(record.source, {})
            for number in record.forget:
                taken.pop(number, None)
            for number in record.numbers:
                taken[number] = True
            if not taken:
                del state.taken[record.source]
        elif isinstance(record, DestinationsNoted):
            state.ways[record.lane] = record.paths
        elif isinstance(record, Reserved):
            self._next_sequence = max(self._next_sequence, record.next_sequence)
        elif isinstance(record, Lost):
            self._has_lost = True
            self._next_sequence = max(self._next_sequence, record.next_sequence)
        elif isinstance(record, CopiesBuried):
            self._buried(record)
        elif isinstance(record, Transferring):
            self._transferring(record, position)
        elif isinstance(record, RelocatedCopies):
            for sequence in record.sequences:
                self._relocated(sequence, position)
        elif isinstance(record, Requeued):
            self._kept(record.entry, record.lane)
            self._relocated(record.entry.sequence, position)
        elif isinstance(record, StageRecord):
            self._apply_to_stages(record, position)
        elif isinstance(record, LaneDropped):
            self._found.drop_lane(record.lane, self._next_sequence)
            state.ways.pop(record.lane, None)
            state.ways.pop(record.lane | 1, None)
        elif isinstance(record, CheckpointEnded):
            self._complete = self._complete or record.begun_position >= self.replayed
        else:
            assert_never(record)

    def _apply_to_stages(self, record: StageRecord, position: int) -> None:
        if isinstance(record, Staged):
            for entry in self._stages.staged(record, position):
                self._entries.put(entry)
            end = record.first_sequence + len(record.messages)
            self._next_sequence = max(self._next_sequence, end)
        elif isinstance(record, StagesPublished):
            self._stages.published(record)
            self._publish_staged(record)
            self._remove_staged(record.gone)
        elif isinstance(record, StagesDropped):
            self._remove_staged(record.sequences)
        elif isinstance(record, StageDropped):
            self._stages.dropped(record)
        elif isinstance(record, StageKept):
            self._stages.kept(record)
            for at, kept in enumerate(record.entries):
                self._kept(kept, MAIN)
                if record.seen and record.seen[at]:
                    staged = self._entries.get(kept.sequence)
                    assert staged is not None, "it was just kept"
                    staged.detailed().seen = record.seen[at]
        else:
            assert_never(record)

    def _publish_staged(self, record: StagesPublished) -> None:
        sequence = record.first_sequence
        for old, expires_at in zip(record.sequences, record.expirations, strict=True):
            entry = self._entries.pop(old)
            self._stages.left(old)
            if entry is None:
                self._unknown(old)
            else:
                replay_publishing(entry, sequence, expires_at, record.at)
                self._entries.put(entry)
            sequence += 1
        self._next_sequence = max(self._next_sequence, sequence)

    def _remove_staged(self, sequences: list[int]) -> None:
        for sequence in sequences:
            self._stages.left(sequence)
            if self._entries.pop(sequence) is None:
                self._unknown(sequence)

    def _enqueued(self, record: Enqueued, position: int) -> None:
        sequence = record.first_sequence
        at = record.at
        entries = self._entries
        for message in record.messages:
            entry = Entry(sequence, position, at, message.expires_at, message.size, None)
            entry.session_id = message.session_id
            if message.has_past:
                entry.detailed().remember(message)
            entries.put(entry)
            self._remember(message, at)
            sequence += 1
            position += 1
        self._next_sequence = max(self._next_sequence, sequence)

    def _apply_to_claims(self, record: ClaimRecord) -> None:
        if isinstance(record, OwnerHeard):
            self._claims.heard(record)
        elif isinstance(record, (Claimed, Unclaimed)):
            self._claimed(record)
        else:
            assert_never(record)

    def _claimed(self, record: Claimed | Unclaimed) -> None:
        is_claim = isinstance(record, Claimed)
        if is_claim:
            self._claims.heard_by_claim(record.lane, record.owner, record.at)
        for sequence in record.sequences:
            entry = self._entries.get(sequence)
            if entry is None:
                self._unknown(sequence)
            elif is_claim:
                entry.place = CLAIMED
                self._claims.claimed(record.owner, sequence)
            else:
                entry.place = READY
                self._claims.let_go(sequence)

    def _relocated(self, sequence: int, position: int) -> None:
        entry = self._entries.get(sequence)
        if entry is None:
            self._unknown(sequence)
        else:
            entry.position = position

    def _remember(self, message: Message, at: int) -> None:
        seen = self._state.seen_of(message)
        if seen:
            self._state.seen.remember(seen, at)

    def _published(self, record: Published, position: int) -> None:
        message = record.message
        at = record.at
        sequence = record.first_sequence
        details = copy_details(message, at, record.enqueue_sequence)
        for lane, expires_at in zip(record.lanes, record.expirations, strict=True):
            entry = Entry(sequence, position, at, expires_at, message.size, None)
            entry.session_id = message.session_id
            entry.details = details
            self._entries.put(entry)
            self._entries.set_lane(sequence, lane)
            sequence += 1
        self._next_sequence = max(self._next_sequence, sequence)

    def _buried(self, record: CopiesBuried) -> None:
        buried = record.buried
        for place, lane, why in zip(buried.places, buried.lanes, buried.whys, strict=True):
            sequence = record.first_sequence + place
            entry = self._entries.get(sequence)
            if entry is None:
                self._unknown(sequence)
            else:
                bury(entry, (buried.reasons[why], buried.descriptions[why]))
                self._entries.set_lane(sequence, lane | 1)

    def _transferring(self, record: Transferring, position: int) -> None:
        message = record.message
        entry = Entry(record.first_sequence, position, record.at, NEVER, message.size, None)
        entry.session_id = message.session_id
        details = entry.detailed()
        details.remember(message)
        details.destination = record.destination
        self._entries.put(entry)
        self._entries.set_lane(record.first_sequence, TRANSFER)
        self._next_sequence = max(self._next_sequence, record.first_sequence + 1)

    def _scheduled(self, record: Scheduled, position: int) -> None:
        sequence = record.first_sequence
        for message in record.messages:
            self._remember(message, record.at)
            entry = Entry(sequence, position, record.at, NEVER, message.size, None)
            entry.place = SCHEDULED
            entry.session_id = message.session_id
            details = entry.detailed()
            details.remember(message)
            details.scheduled_at = message.scheduled_at
            details.time_to_live_ms = message.time_to_live_ms
            self._entries.put(entry)
            sequence += 1
            position += 1
        self._next_sequence = max(self._next_sequence, sequence)

    def _activated(self, record: Activated) -> None:
        sequence = record.first_sequence
        for old, expires_at in zip(record.sequences, record.expirations, strict=True):
            entry = self._entries.pop(old)
            if entry is None:
                self._unknown(old)
            else:
                entry.sequence = sequence
                entry.place = READY
                entry.expires_at = expires_at
                entry.enqueued_at = entry.detailed().scheduled_at
                self._entries.put(entry)
            sequence += 1
        self._next_sequence = max(self._next_sequence, sequence)

    def _counts(self, sequences: list[int], counts: list[int]) -> None:
        for sequence, count in zip(sequences, counts, strict=True):
            entry = self._entries.get(sequence)
            if entry is None:
                self._unknown(sequence)
            else:
                entry.delivery_count = count

    def _dead_lettered(self, record: DeadLettered) -> None:
        self._counts(record.sequences, record.counts)
        for sequence in record.sequences:
            entry = self._entries.get(sequence)
            if entry is not None:
                entry.place = READY
                details = entry.detailed()
                details.reason = record.reason
                details.description = record.description
                self._entries.set_lane(sequence, record.lane | 1)

    def _kept(self, kept: Kept, lane: int) -> None:
        entry = Entry(
            kept.sequence, kept.position, kept.enqueued_at, kept.expires_at, kept.size, None
        )
        entry.delivery_count = kept.delivery_count
        entry.place = kept.place
        if (
            kept.reason is not None
            or kept.description is not None
            or kept.changes is not None
            or kept.scheduled_at
            or kept.enqueue_sequence
            or kept.time_to_live_ms >= 0
            or kept.hops
            or kept.destination
            or kept.source
        ):
            details = entry.detailed()
            details.enqueue_sequence = kept.enqueue_sequence
            details.scheduled_at = kept.scheduled_at
            details.time_to_live_ms = kept.time_to_live_ms
            details.reason = kept.reason
            details.description = kept.description
            details.changes = kept.changes
            details.hops = kept.hops
            details.destination = kept.destination
            details.source = kept.source
        entry.session_id = kept.session_id
        if kept.place == CLAIMED:
            self._claims.claimed(kept.owner, kept.sequence)
        self._found.keep(entry, lane)

    def _unknown(self, sequence: int) -> None:
        assert not self._complete or self._has_lost, (
            f"the journal tells of message {sequence}, which is not there"
        )

    def numbers(self) -> list[int]:
        """Return the numbers of all that live after the records so far."""
        return sorted(self._found.numbers())

    def positions(self) -> dict[int, int]:
        """Return where the bodies of all that live rest, by number."""
        positions: dict[int, int] = {}
        for number in self._found.numbers():
            entry = self._entries.get(number)
            assert entry is not None, "what was counted is there"
            positions[number] = entry.position
        return positions

    @property
    def next_sequence(self) -> int:
        """The number that the next message gets, as far as the records so far tell."""
        return self._next_sequence

    @property
    def strays(self) -> list[int]:
        """Lanes that the journal still tells of although their subscriptions are gone."""
        return [] if self._placing is None else self._placing.strays

    def place(self, count_max: int) -> bool:
        """All records are in: put about so many messages into their places; return whether all are
        there."""
        if self._placing is None:
            assert self._complete or self._has_lost, (
                "the journal begins inside a checkpoint that never ended"
            )
            self._state.next_sequence = self._next_sequence
            self.replayed = max(self.replayed, 0)
            self._placing = Placing(self._state, self._found, count_max)
        return self._placing.step()
