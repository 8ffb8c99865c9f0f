"""How the records rest that carry no message.

    fact     kind u8, instant i64, lane u32, why u8, and what the kind needs
    mark     kind u8, instant i64, a number u64, and what the kind needs

A mark's number is a sequence number, a position, or nothing (0).
"""

from __future__ import annotations

import struct
from typing import Final

from peeklock.entity.claims.records import Claimed, OwnerHeard, Unclaimed
from peeklock.entity.records import (
    Activated,
    Changed,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    DeadLettered,
    Deferred,
    DuplicatesDropped,
    LaneDropped,
    Lost,
    Record,
    Remembered,
    Removed,
    Reserved,
    Returned,
    SessionStateSet,
    TakenOver,
)
from peeklock.entity.stages.records import StageDropped, StageKept, StagesDropped, StagesPublished
from peeklock.entity.topics.records import Buried, CopiesBuried
from peeklock.entity.transfers.records import DestinationsNoted
from peeklock.entity.upkeep.journal_facts import (
    UNKNOWN_COUNT,
    HandedTo,
    LocksReleased,
    LocksRenewed,
    SessionLockNoted,
    SettlementsFailed,
)
from peeklock.store.codec.claim_facts import decode_claim, encode_claim
from peeklock.store.codec.kinds import (
    ACTIVATED,
    CHANGED,
    CHECKPOINT_BEGUN,
    CHECKPOINT_ENDED,
    CHECKPOINT_SLICE,
    CLAIMED,
    COPIES_BURIED,
    DEAD_LETTERED,
    DEFERRED,
    DUPLICATES_DROPPED,
    HANDED_OUT,
    HANDED_TO,
    LANE_DROPPED,
    LOST,
    OWNER_HEARD,
    REMEMBERED,
    REMOVED,
    RESERVED,
    RETURNED,
    SESSION_LOCK_NOTED,
    SESSION_STATE_SET,
    STAGE_DROPPED,
    STAGES_PUBLISHED,
    TAKEN_OVER,
    WAYS_NOTED,
)
from peeklock.store.codec.note_facts import decode_note, encode_note
from peeklock.store.codec.packing import (
    pack_bytes,
    pack_changes,
    pack_entries,
    pack_lanes,
    pack_numbers,
    pack_sequences,
    pack_text,
    pack_texts,
    unpack_bytes,
    unpack_changes,
    unpack_entries,
    unpack_lanes,
    unpack_numbers,
    unpack_sequences,
    unpack_text,
    unpack_texts,
)
from peeklock.store.codec.stage_facts import decode_stage_fact, encode_stage_fact

# Bound once: compiled code then calls them without looking their names up.
# kind, instant, lane, why
_fact: Final = struct.Struct("<BqIB")
# kind, instant, a number
_mark: Final = struct.Struct("<BqQ")

_FACT_BYTES: Final = 14
_MARK_BYTES: Final = 17


# ---- writing


def encode_fact(record: Record) -> bytes:
    """Write a record that carries no message, the frequent ones first."""
    at = record.at
    if isinstance(record, Removed):
        head = _fact.pack(REMOVED, at, record.lane, record.why)
        return head + pack_sequences(record.sequences)
    if isinstance(record, HandedTo):
        return encode_note(record)
    if isinstance(record, Returned):
        head = _fact.pack(RETURNED, at, record.lane, record.why)
        return head + pack_sequences(record.sequences) + pack_numbers("I", record.counts)
    if isinstance(record, Activated):
        head = _mark.pack(ACTIVATED, at, record.first_sequence)
        return head + pack_sequences(record.sequences) + pack_numbers("q", record.expirations)
    if isinstance(record, Deferred):
        head = _fact.pack(DEFERRED, at, record.lane, 0)
        return head + pack_sequences(record.sequences) + pack_numbers("I", record.counts)
    if isinstance(record, DeadLettered):
        head = _fact.pack(DEAD_LETTERED, at, record.lane, 0)
        numbers = pack_sequences(record.sequences) + pack_numbers("I", record.counts)
        return head + numbers + pack_text(record.reason) + pack_text(record.description)
    if isinstance(record, Changed):
        return _mark.pack(CHANGED, at, record.sequence) + pack_changes(record.changes)
    return _encode_rare(record)


def _encode_rare(record: Record) -> bytes:
    at = record.at
    if isinstance(record, CheckpointBegun):
        return _mark.pack(CHECKPOINT_BEGUN, at, record.next_sequence)
    if isinstance(record, CheckpointSlice):
        return _fact.pack(CHECKPOINT_SLICE, at, record.lane, 0) + pack_entries(record.entries)
    if isinstance(record, CheckpointEnded):
        return _mark.pack(CHECKPOINT_ENDED, at, record.begun_position)
    if isinstance(record, SessionStateSet):
        head = _fact.pack(SESSION_STATE_SET, at, record.lane, 0)
        return head + pack_text(record.session_id) + pack_bytes(record.state)
    if isinstance(record, DuplicatesDropped):
        return _mark.pack(DUPLICATES_DROPPED, at, 0) + pack_texts(record.message_ids)
    if isinstance(record, Remembered):
        head = _mark.pack(REMEMBERED, at, 0)
        return head + pack_texts(record.message_ids) + pack_numbers("q", record.instants)
    if isinstance(record, TakenOver):
        head = _mark.pack(TAKEN_OVER, at, 0) + pack_text(record.source)
        return head + pack_sequences(record.numbers) + pack_sequences(record.forget)
    if isinstance(record, DestinationsNoted):
        return _fact.pack(WAYS_NOTED, at, record.lane, 0) + pack_texts(record.paths)
    if isinstance(record, CopiesBuried):
        return encode_burial(record.at, record.first_sequence, pack_buried(record.buried))
    if isinstance(record, Lost):
        return _mark.pack(LOST, record.at, record.next_sequence)
    if isinstance(record, Reserved):
        return _mark.pack(RESERVED, at, record.next_sequence)
    if isinstance(record, (Claimed, Unclaimed, OwnerHeard)):
        return encode_claim(record)
    if isinstance(record, LaneDropped):
        return _fact.pack(LANE_DROPPED, at, record.lane, 0)
    if isinstance(record, (LocksRenewed, LocksReleased, SettlementsFailed, SessionLockNoted)):
        return encode_note(record)
    if isinstance(record, (StagesPublished, StagesDropped, StageDropped, StageKept)):
        return encode_stage_fact(record)
    raise TypeError(f"{type(record).__name__} is not a record that can be kept")


def encode_burial(at: int, first_sequence: int, buried: bytes) -> bytes:
    """Write which copies are dead letters, where that is packed already."""
    return _mark.pack(COPIES_BURIED, at, first_sequence) + buried


def pack_buried(buried: Buried) -> bytes:
    """Pack what messages share that go the same way."""
    places = pack_lanes(buried.places) + pack_lanes(buried.lanes) + pack_lanes(buried.whys)
    return places + pack_texts(buried.reasons) + pack_texts(buried.descriptions)


# ---- reading


def decode_fact(record: memoryview, kind: int) -> Record:
    """Read what `encode_fact` wrote."""
    if REMOVED <= kind <= DEAD_LETTERED and kind != ACTIVATED:
        return _decode_listed(record, kind)
    if kind in (CHECKPOINT_SLICE, SESSION_STATE_SET, LANE_DROPPED, WAYS_NOTED):
        return _decode_of_lane(record, kind)
    if CLAIMED <= kind <= OWNER_HEARD:
        return decode_claim(record, kind)
    if HANDED_TO <= kind <= SESSION_LOCK_NOTED:
        return decode_note(record, kind)
    if STAGES_PUBLISHED <= kind <= STAGE_DROPPED:
        return decode_stage_fact(record, kind)
    return _decode_mark(record, kind)


def _decode_listed(record: memoryview, kind: int) -> Record:
    _, at, lane, why = _fact.unpack_from(record)
    sequences, offset = unpack_sequences(record, _FACT_BYTES)
    if kind == REMOVED:
        return Removed(at, lane, why, sequences)
    if kind == HANDED_OUT:
        # What deliveries once were: nothing writes them any more.
        return HandedTo(at, lane, "", sequences, [UNKNOWN_COUNT] * len(sequences))
    counts, offset = unpack_numbers(record, offset, len(sequences), "I")
    if kind == RETURNED:
        return Returned(at, lane, why, sequences, counts)
    if kind == DEFERRED:
        return Deferred(at, lane, sequences, counts)
    reason, offset = unpack_text(record, offset)
    description, _ = unpack_text(record, offset)
    return DeadLettered(at, lane, sequences, counts, reason, description)


def _decode_of_lane(record: memoryview, kind: int) -> Record:
    _, at, lane, _ = _fact.unpack_from(record)
    if kind == CHECKPOINT_SLICE:
        entries, _ = unpack_entries(record, _FACT_BYTES)
        return CheckpointSlice(at, lane, entries)
    if kind == SESSION_STATE_SET:
        session_id, offset = unpack_text(record, _FACT_BYTES)
        if session_id is None:
            raise ValueError("a session has a name")
        state, _ = unpack_bytes(record, offset)
        return SessionStateSet(at, lane, session_id, state)
    if kind == WAYS_NOTED:
        paths, _ = unpack_texts(record, _FACT_BYTES)
        return DestinationsNoted(at, lane, paths)
    return LaneDropped(at, lane)


def _decode_mark(record: memoryview, kind: int) -> Record:
    _, at, number = _mark.unpack_from(record)
    if kind == CHANGED:
        changes, _ = unpack_changes(record, _MARK_BYTES)
        return Changed(at, number, changes)
    if kind == ACTIVATED:
        sequences, offset = unpack_sequences(record, _MARK_BYTES)
        expirations, _ = unpack_numbers(record, offset, len(sequences), "q")
        return Activated(at, number, sequences, expirations)
    if kind == CHECKPOINT_BEGUN:
        return CheckpointBegun(at, number)
    if kind == CHECKPOINT_ENDED:
        return CheckpointEnded(at, number)
    if kind == DUPLICATES_DROPPED:
        message_ids, _ = unpack_texts(record, _MARK_BYTES)
        return DuplicatesDropped(at, message_ids)
    if kind == REMEMBERED:
        message_ids, offset = unpack_texts(record, _MARK_BYTES)
        instants, _ = unpack_numbers(record, offset, len(message_ids), "q")
        return Remembered(at, message_ids, instants)
    if kind == TAKEN_OVER:
        source, offset = unpack_text(record, _MARK_BYTES)
        if source is None:
            raise ValueError("a source has a name")
        numbers, offset = unpack_sequences(record, offset)
        forget, _ = unpack_sequences(record, offset)
        return TakenOver(at, source, numbers, forget)
    if kind == COPIES_BURIED:
        return CopiesBuried(at, number, _unpack_buried(record))
    if kind == RESERVED:
        return Reserved(at, number)
    if kind == LOST:
        return Lost(at, number)
    raise ValueError(f"kind {kind} is not known")


def _unpack_buried(record: memoryview) -> Buried:
    places, offset = unpack_lanes(record, _MARK_BYTES)
    lanes, offset = unpack_lanes(record, offset)
    whys, offset = unpack_lanes(record, offset)
    reasons, offset = unpack_texts(record, offset)
    descriptions, _ = unpack_texts(record, offset)
    if len(places) != len(lanes) or len(places) != len(whys) or len(reasons) != len(descriptions):
        raise ValueError("each dead letter has a lane and a note")
    if whys and not 0 <= min(whys) <= max(whys) < len(reasons):
        raise ValueError("a dead letter has a note that is not there")
    return Buried(places, lanes, whys, reasons, descriptions)
