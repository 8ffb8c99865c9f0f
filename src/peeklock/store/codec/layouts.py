"""How records rest that are not written often: as the layout in the row of their kind says.

fact     kind u8, and the fields of its layout (`entity/tables/record_rows.py`)
"""

from __future__ import annotations

import struct
from typing import Any, Final, cast

from peeklock.entity.records import RECORD_ROWS, Record
from peeklock.entity.tables.record_rows import RecordRow
from peeklock.store.codec.packing import (
    pack_bytes,
    pack_changes,
    pack_entries,
    pack_expirations,
    pack_numbers,
    pack_sequences,
    pack_text,
    pack_texts,
    unpack_bytes,
    unpack_changes,
    unpack_entries,
    unpack_expirations,
    unpack_numbers,
    unpack_sequences,
    unpack_text,
    unpack_texts,
)

# Those that have a layout, by what they are and by what rests.
_BY_RECORD: Final[dict[Any, RecordRow]] = {row.record: row for row in RECORD_ROWS if row.layout}
_BY_KIND: Final[dict[int, RecordRow]] = {row.kind: row for row in RECORD_ROWS if row.layout}

# The number of each code that is one, as `struct` writes it.
_NUMBERS: Final = {
    code: struct.Struct("<" + form)
    for code, form in (("q", "q"), ("I", "I"), ("Q", "Q"), ("B", "B"), ("flag", "?"))
}
# What stands in the layout for a number that means nothing.
_NOTHING: Final = "0"


def encode_by_layout(record: Record) -> bytes:
    """Return the record as its layout says."""
    row = _BY_RECORD.get(type(record))
    if row is None:
        raise TypeError(f"{type(record).__name__} is not a record that can be kept")
    parts = [bytes([row.kind])]
    for name, code in row.layout:
        value = 0 if name == _NOTHING else getattr(record, name)
        number = _NUMBERS.get(code)
        parts.append(_pack(code, value) if number is None else number.pack(value))
    return b"".join(parts)


def _pack(code: str, value: Any) -> bytes:
    if code == "sequences":
        return pack_sequences(value)
    if code in ("text", "name", "consumer"):
        return pack_text(value)
    if code == "counts":
        return pack_numbers("I", value)
    if code == "instants":
        return pack_numbers("q", value)
    if code == "texts":
        return pack_texts(value)
    if code == "entries":
        return pack_entries(value)
    if code == "expirations":
        return pack_expirations(value)
    if code == "changes":
        return pack_changes(value)
    assert code == "bytes", f"nobody packs {code}"
    return pack_bytes(value)


def decode_by_layout(record: memoryview, kind: int) -> Record:
    """Return what `encode_by_layout` wrote."""
    row = _BY_KIND.get(kind)
    if row is None:
        raise ValueError(f"kind {kind} is not known")
    values: dict[str, Any] = {}
    offset = 1
    count = 0  # of the list before
    for name, code in row.layout:
        number = _NUMBERS.get(code)
        if number is not None:
            value: Any = number.unpack_from(record, offset)[0]
            offset += number.size
        else:
            value, offset = _unpack(code, record, offset, count)
            if code == "name" and value is None:
                raise ValueError(f"a {name} is missing")
            if code in ("sequences", "texts"):
                count = len(value)
        if name != _NOTHING:
            values[name] = value
    return cast(Record, row.record(**values))


def _unpack(code: str, record: memoryview, offset: int, count: int) -> tuple[Any, int]:
    if code == "sequences":
        return unpack_sequences(record, offset)
    if code == "consumer":
        consumer, offset = unpack_text(record, offset)
        return consumer or "", offset
    if code in ("text", "name"):
        return unpack_text(record, offset)
    if code == "counts":
        return unpack_numbers(record, offset, count, "I")
    if code == "instants":
        return unpack_numbers(record, offset, count, "q")
    if code == "texts":
        return unpack_texts(record, offset)
    if code == "entries":
        return unpack_entries(record, offset)
    if code == "expirations":
        # None at all is packed like some that never come.
        return unpack_expirations(record, offset, count)
    if code == "changes":
        return unpack_changes(record, offset)
    assert code == "bytes", f"nobody unpacks {code}"
    return unpack_bytes(record, offset)
