"""How the facts about stages rest that carry no message.

published  kind u8, instant i64, first sequence u64, batch u64, done u8, the writer, its stages,
           and what became of the messages
dropped    kind u8, instant i64, why u8, sequences; of a whole stage the number below which all of
           it is gone u64, and its name
kept       kind u8, instant i64, instant of the last message i64, the stage, its entries, and what
           they will be seen as
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from peeklock.entity.stages.records import StageDropped, StageKept, StagesDropped, StagesPublished
from peeklock.store.codec.kinds import STAGE_DROPPED, STAGE_KEPT, STAGES_DROPPED, STAGES_PUBLISHED
from peeklock.store.codec.packing import (
    pack_entries,
    pack_expirations,
    pack_sequences,
    pack_text,
    pack_texts,
    unpack_entries,
    unpack_expirations,
    unpack_sequences,
    unpack_text,
    unpack_texts,
)

StageFact: TypeAlias = StagesPublished | StagesDropped | StageDropped | StageKept

# Bound once: compiled code then calls them without looking their names up.
_published: Final = struct.Struct("<BqQQB")
_dropped: Final = struct.Struct("<BqB")
_kept: Final = struct.Struct("<Bqq")
_number: Final = struct.Struct("<Q")

_PUBLISHED_BYTES: Final = 26
_DROPPED_BYTES: Final = 10
_KEPT_BYTES: Final = 17


def encode_stage_fact(record: StageFact) -> bytes:
    """Write what happened to stages."""
    if isinstance(record, StagesPublished):
        head: bytes = _published.pack(
            STAGES_PUBLISHED, record.at, record.first_sequence, record.batch, record.is_done
        )
        names = pack_text(record.writer) + pack_texts(record.stages)
        moved = pack_sequences(record.sequences) + pack_expirations(record.expirations)
        return head + names + moved + pack_sequences(record.gone)
    if isinstance(record, StagesDropped):
        head = _dropped.pack(STAGES_DROPPED, record.at, record.why)
        return head + pack_sequences(record.sequences)
    if isinstance(record, StageDropped):
        head = _dropped.pack(STAGE_DROPPED, record.at, record.why)
        return head + _number.pack(record.next_sequence) + pack_text(record.stage)
    head = _kept.pack(STAGE_KEPT, record.at, record.touched_at)
    return head + pack_text(record.stage) + pack_entries(record.entries) + pack_texts(record.seen)


def decode_stage_fact(record: memoryview, kind: int) -> StageFact:
    """Read what `encode_stage_fact` wrote."""
    if kind == STAGES_DROPPED:
        _, at, why = _dropped.unpack_from(record)
        sequences, _ = unpack_sequences(record, _DROPPED_BYTES)
        return StagesDropped(at, why, sequences)
    if kind == STAGE_DROPPED:
        _, at, why = _dropped.unpack_from(record)
        number: int = _number.unpack_from(record, _DROPPED_BYTES)[0]
        stage, _ = unpack_text(record, _DROPPED_BYTES + 8)
        if stage is None:
            raise ValueError("a stage has a name")
        return StageDropped(at, why, stage, number)
    if kind == STAGE_KEPT:
        _, at, touched_at = _kept.unpack_from(record)
        stage, offset = unpack_text(record, _KEPT_BYTES)
        if stage is None:
            raise ValueError("a stage has a name")
        entries, offset = unpack_entries(record, offset)
        seen, _ = unpack_texts(record, offset)
        return StageKept(at, stage, touched_at, entries, seen)
    if kind != STAGES_PUBLISHED:
        raise ValueError(f"kind {kind} is no fact about stages")
    _, at, first, batch, done = _published.unpack_from(record)
    writer, offset = unpack_text(record, _PUBLISHED_BYTES)
    if writer is None:
        raise ValueError("a writer has a name")
    stages, offset = unpack_texts(record, offset)
    sequences, offset = unpack_sequences(record, offset)
    # None at all is packed like some that never come.
    expirations, offset = unpack_expirations(record, offset, len(sequences))
    gone, _ = unpack_sequences(record, offset)
    return StagesPublished(
        at, writer, batch, stages, done != 0, first, sequences, expirations, gone
    )
