"""How the facts rest that only the journal asks for.

note     kind u8, instant i64, lane u32, why u8, the consumer, and what the kind needs
"""

from __future__ import annotations

import struct
from typing import Final

from peeklock.entity.upkeep.journal_facts import (
    HandedTo,
    LocksReleased,
    LocksRenewed,
    Note,
    SessionLockNoted,
    SettlementsFailed,
)
from peeklock.store.codec.kinds import (
    HANDED_TO,
    LOCKS_RELEASED,
    LOCKS_RENEWED,
    SESSION_LOCK_NOTED,
    SETTLEMENTS_FAILED,
)
from peeklock.store.codec.packing import (
    pack_numbers,
    pack_sequences,
    pack_text,
    unpack_numbers,
    unpack_sequences,
    unpack_text,
)

# Bound once: compiled code then calls it without looking its name up.
# kind, instant, lane, why
_note: Final = struct.Struct("<BqIB")

_NOTE_BYTES: Final = 14

# A delivery's `why` says whether counts follow.
_UNCOUNTED: Final = 0
_COUNTED: Final = 1


def encode_note(record: Note) -> bytes:
    """Write a note, the frequent ones first."""
    at = record.at
    lane = record.lane
    consumer = pack_text(record.consumer)
    if isinstance(record, HandedTo):
        sequences = pack_sequences(record.sequences)
        if not record.counts:
            return _note.pack(HANDED_TO, at, lane, _UNCOUNTED) + consumer + sequences
        head: bytes = _note.pack(HANDED_TO, at, lane, _COUNTED)
        return head + consumer + sequences + pack_numbers("I", record.counts)
    if isinstance(record, LocksRenewed):
        head = _note.pack(LOCKS_RENEWED, at, lane, 0)
        return head + consumer + pack_sequences(record.sequences)
    if isinstance(record, LocksReleased):
        head = _note.pack(LOCKS_RELEASED, at, lane, record.why)
        return head + consumer + pack_sequences(record.sequences)
    if isinstance(record, SettlementsFailed):
        head = _note.pack(SETTLEMENTS_FAILED, at, lane, record.outcome)
        return head + consumer + pack_sequences(record.sequences)
    head = _note.pack(SESSION_LOCK_NOTED, at, lane, record.why)
    return head + consumer + pack_text(record.session_id)


def decode_note(record: memoryview, kind: int) -> Note:
    """Read what `encode_note` wrote."""
    _, at, lane, why = _note.unpack_from(record)
    named, offset = unpack_text(record, _NOTE_BYTES)
    consumer = named or ""
    if kind == SESSION_LOCK_NOTED:
        session_id, _ = unpack_text(record, offset)
        if session_id is None:
            raise ValueError("a session has a name")
        return SessionLockNoted(at, lane, why, consumer, session_id)
    sequences, offset = unpack_sequences(record, offset)
    if kind == HANDED_TO:
        counts: list[int] = []
        if why == _COUNTED:
            counts, _ = unpack_numbers(record, offset, len(sequences), "I")
        return HandedTo(at, lane, consumer, sequences, counts)
    if kind == LOCKS_RENEWED:
        return LocksRenewed(at, lane, consumer, sequences)
    if kind == LOCKS_RELEASED:
        return LocksReleased(at, lane, why, consumer, sequences)
    if kind == SETTLEMENTS_FAILED:
        return SettlementsFailed(at, lane, why, consumer, sequences)
    raise ValueError(f"kind {kind} is no note")
