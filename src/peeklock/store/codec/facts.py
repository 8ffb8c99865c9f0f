"""How the records rest that carry no message and are written often; the others have layouts.

    fact     kind u8, instant i64, lane u32, why u8, and what the kind needs
    burial   kind u8, instant i64, first sequence u64, and what the copies share

The form of each is that of its row; only here it is written without looking it up.
"""

from __future__ import annotations

import struct
from typing import Final

from peeklock.entity.records import Record, Removed, Returned
from peeklock.entity.topics.records import Buried, CopiesBuried
from peeklock.entity.upkeep.journal_facts import UNKNOWN_COUNT, HandedTo
from peeklock.store.codec.kinds import COPIES_BURIED, HANDED_OUT, HANDED_TO, REMOVED, RETURNED
from peeklock.store.codec.layouts import decode_by_layout, encode_by_layout
from peeklock.store.codec.packing import (
    pack_lanes,
    pack_numbers,
    pack_sequences,
    pack_text,
    pack_texts,
    unpack_lanes,
    unpack_numbers,
    unpack_sequences,
    unpack_text,
    unpack_texts,
)

# Bound once: compiled code then calls them without looking their names up.
# kind, instant, lane, why
_fact: Final = struct.Struct("<BqIB")
# kind, instant, a number
_mark: Final = struct.Struct("<BqQ")

_FACT_BYTES: Final = 14
_MARK_BYTES: Final = 17

# A delivery's `why` says whether counts follow.
_UNCOUNTED: Final = 0
_COUNTED: Final = 1


# ---- writing


def encode_fact(record: Record) -> bytes:
    """Write a record that carries no message, the frequent ones first."""
    if isinstance(record, Removed):
        head = _fact.pack(REMOVED, record.at, record.lane, record.why)
        return head + pack_sequences(record.sequences)
    if isinstance(record, HandedTo):
        return _encode_handed_to(record)
    if isinstance(record, Returned):
        head = _fact.pack(RETURNED, record.at, record.lane, record.why)
        return head + pack_sequences(record.sequences) + pack_numbers("I", record.counts)
    if isinstance(record, CopiesBuried):
        return encode_burial(record.at, record.first_sequence, pack_buried(record.buried))
    return encode_by_layout(record)


def _encode_handed_to(record: HandedTo) -> bytes:
    who_and_what = pack_text(record.consumer) + pack_sequences(record.sequences)
    if not record.counts:
        return _fact.pack(HANDED_TO, record.at, record.lane, _UNCOUNTED) + who_and_what
    head: bytes = _fact.pack(HANDED_TO, record.at, record.lane, _COUNTED)
    return head + who_and_what + pack_numbers("I", record.counts)


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
    if kind in (REMOVED, RETURNED, HANDED_OUT):
        return _decode_listed(record, kind)
    if kind == HANDED_TO:
        return _decode_handed_to(record)
    if kind == COPIES_BURIED:
        _, at, number = _mark.unpack_from(record)
        return CopiesBuried(at, number, _unpack_buried(record))
    return decode_by_layout(record, kind)


def _decode_listed(record: memoryview, kind: int) -> Record:
    _, at, lane, why = _fact.unpack_from(record)
    sequences, offset = unpack_sequences(record, _FACT_BYTES)
    if kind == REMOVED:
        return Removed(at, lane, why, sequences)
    if kind == HANDED_OUT:
        # What deliveries once were: nothing writes them any more.
        return HandedTo(at, lane, "", sequences, [UNKNOWN_COUNT] * len(sequences))
    counts, _ = unpack_numbers(record, offset, len(sequences), "I")
    return Returned(at, lane, why, sequences, counts)


def _decode_handed_to(record: memoryview) -> HandedTo:
    _, at, lane, why = _fact.unpack_from(record)
    consumer, offset = unpack_text(record, _FACT_BYTES)
    sequences, offset = unpack_sequences(record, offset)
    counts: list[int] = []
    if why == _COUNTED:
        counts, _ = unpack_numbers(record, offset, len(sequences), "I")
    return HandedTo(at, lane, consumer or "", sequences, counts)


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
