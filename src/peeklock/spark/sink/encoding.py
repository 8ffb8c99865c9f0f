"""Rows to messages, a column at a time: Arrow joins the bytes, Python touches no row.

Each function takes and gives arrays with one value per row. The forms are those of AMQP 1.0, part
1 (types) and 3.2 (sections); a size is one byte wide where all rows of an array allow it.
"""

import json
import sys
from array import array
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Int
from peeklock.spark.properties import as_text, from_json

Bytes: TypeAlias = pa.BinaryArray

_NULL: Final = b"\x40"
_NARROW: Final = 256
_HEADER: Final = b"\x00\x53\x70"
_ANNOTATIONS: Final = b"\x00\x53\x72"
_PROPERTIES: Final = b"\x00\x53\x73"
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
_DATA: Final = b"\x00\x53\x75"
# Constructors of a kind: the one with sizes of one byte, the one with sizes of four.
_STRING: Final = (b"\xa1", b"\xb1")
_SYMBOL: Final = (b"\xa3", b"\xb3")
_BINARY: Final = (b"\xa0", b"\xb0")
_LIST: Final = (b"\xc0", b"\xd0")
_MAP: Final = (b"\xc1", b"\xd1")
_PARTITION_KEY: Final = b"\xa3\x13x-opt-partition-key"
_SCHEDULED: Final = b"\xa3\x1cx-opt-scheduled-enqueue-time"
_TTL_MAX: Final = 0xFFFF_FFFF
# The fields of the properties section, in order [3.2.4]; those without a column are null.
_FIELDS: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "session_id",
    "group_sequence",
    "reply_to_session_id",
)


def messages_of(columns: dict[str, Any], now: int) -> Bytes:
    """Write a message for each row; `columns` has those that there are, `message_id` and `body`
    among them."""
    ttl = columns.get("time_to_live")
    parts = []
    if ttl is not None:
        columns = columns | {
            "creation_time": _where_not_null(ttl, pa.scalar(now, pa.int64())),
            "absolute_expiry_time": pc.add(ttl, now),
        }
        parts.append(_header(ttl))
    if "partition_key" in columns or "scheduled_enqueue_time" in columns:
        parts.append(_annotations(columns))
    parts.append(_properties(columns))
    if "application_properties" in columns or "properties_json" in columns:
        parts.append(_application_properties(columns))
    body = _binary(columns["body"])
    parts += [_DATA, _sized(pc.fill_null(body, b""), _BINARY)]
    return _joined(*parts)


def entries_of(messages: Bytes) -> Bytes:
    """Write each message as it stands within a batch; they lie one behind the other."""
    # All sizes are four bytes wide, so that room can be counted without looking.
    return _joined(_DATA + _BINARY[1], _big_endian(_lengths(messages), 4), messages)


ENTRY_BYTES: Final = 8


def _header(ttl: Any) -> Bytes:
    """Write the time to live; durable, and no priority."""
    capped = pc.min_element_wise(ttl, pa.scalar(_TTL_MAX, pa.int64()))
    header = _joined(_HEADER + b"\xc0\x08\x03\x41\x40\x70", _big_endian(capped, 4))
    return pc.if_else(pc.is_null(ttl), pa.scalar(b"", pa.binary()), header)


def _annotations(columns: dict[str, Any]) -> Bytes:
    parts: list[Bytes] = []
    count: Any = pa.scalar(0, pa.int64())
    key = columns.get("partition_key")
    if key is not None:
        parts.append(pc.fill_null(_joined(_PARTITION_KEY, _sized(_binary(key), _STRING)), b""))
        count = pc.add(count, _present(key))
    at = columns.get("scheduled_enqueue_time")
    if at is not None:
        parts.append(pc.fill_null(_joined(_SCHEDULED + b"\x83", _big_endian(at, 8)), b""))
        count = pc.add(count, _present(at))
    content = _joined(*parts) if len(parts) > 1 else parts[0]
    section = _joined(_ANNOTATIONS, _compound(content, pc.multiply(count, 2), _MAP))
    return pc.if_else(pc.equal(count, 0), pa.scalar(b"", pa.binary()), section)


def _properties(columns: dict[str, Any]) -> Bytes:
    last = max(number for number, name in enumerate(_FIELDS) if name in columns)
    fields: list[Any] = []
    for name in _FIELDS[: last + 1]:
        column = columns.get(name)
        fields.append(_NULL if column is None else _field(name, column))
    content = _joined(*fields)
    count = pa.repeat(pa.scalar(last + 1, pa.int64()), len(content))
    return _joined(_PROPERTIES, _compound(content, count, _LIST))


def _field(name: str, column: Any) -> Bytes:
    if name in ("absolute_expiry_time", "creation_time"):
        return pc.fill_null(_joined(b"\x83", _big_endian(column, 8)), _NULL)
    kind = _SYMBOL if name == "content_type" else _STRING
    return pc.fill_null(_sized(_binary(column), kind), _NULL)


def _application_properties(columns: dict[str, Any]) -> Bytes:
    """Write properties. Where a row has both forms, the map says which there are and what they
    are, and the typed form of which type those are that nobody changed."""
    plain, typed = columns.get("application_properties"), columns.get("properties_json")
    if typed is None:
        section = _from_map(plain)
    elif plain is None:
        section = pa.array([_from_json(text, None) for text in typed.to_pylist()], pa.binary())
    else:
        rows = zip(typed.to_pylist(), pc.cast(plain, _TEXT_MAP).to_pylist(), strict=True)
        section = pa.array([_from_json(text, pairs) for text, pairs in rows], pa.binary())
    return pc.fill_null(section, b"")


_TEXT_MAP: Final = pa.map_(pa.string(), pa.string())


def _from_json(text: str | None, pairs: list[tuple[str, str | None]] | None) -> bytes | None:
    typed = {} if text is None else from_json(text)
    if pairs is not None:
        typed = {
            name: typed[name] if name in typed and as_text(typed[name]) == value else value
            for name, value in pairs
        }
    return _APPLICATION_PROPERTIES + encode(typed) if typed else None


def _from_map(column: Any) -> Bytes:
    """Write maps; null for one that is null or empty, so that nothing is said of it."""
    keys, values = _entries(column)
    pairs = _joined(_sized(_binary(keys), _STRING), _values(values))
    offsets = column.offsets
    lists = pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), pairs)
    content = pc.binary_join(lists, pa.scalar(b"", pa.binary()))
    counts = pc.multiply(pc.cast(pc.list_value_length(lists), pa.int64()), 2)
    section = _joined(_APPLICATION_PROPERTIES, _compound(content, counts, _MAP))
    is_nothing = pc.or_(pc.is_null(column), pc.equal(counts, 0))
    return pc.if_else(is_nothing, pa.scalar(None, pa.binary()), section)


def _entries(column: Any) -> tuple[Any, Any]:
    """Return the keys and the values of all maps, cut to those that the array shows."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return column.keys.slice(first, last - first), column.items.slice(first, last - first)


def _values(values: Any) -> Bytes:
    """Write the values of properties by their type."""
    kind = values.type
    write = _WRITERS.get(kind.id)
    if write is None:
        raise TypeError(f"application_properties cannot have values of type {kind}")
    return pc.fill_null(write(values), _NULL)


def _texts(values: Any) -> Bytes:
    return _sized(_binary(values), _STRING)


def _binaries(values: Any) -> Bytes:
    return _sized(_binary(values), _BINARY)


def _longs(values: Any) -> Bytes:
    return _joined(b"\x81", _big_endian(pc.cast(values, pa.int64()), 8))


def _one_by_one(convert: Callable[[Any], Any]) -> Callable[[Any], Bytes]:
    """Write values of types that few properties have."""

    def write(values: Any) -> Bytes:
        return pa.array(
            [None if value is None else encode(convert(value)) for value in values.to_pylist()],
            pa.binary(),
        )

    return write


def _instants(values: Any) -> Bytes:
    return _joined(b"\x83", _big_endian(milliseconds(values), 8))


_WRITERS: Final[dict[int, Callable[[Any], Bytes]]] = {
    pa.string().id: _texts,
    pa.large_string().id: _texts,
    pa.binary().id: _binaries,
    pa.large_binary().id: _binaries,
    pa.int8().id: _one_by_one(Int),
    pa.int16().id: _one_by_one(Int),
    pa.int32().id: _one_by_one(Int),
    pa.int64().id: _longs,
    pa.float32().id: _one_by_one(float),
    pa.float64().id: _one_by_one(float),
    pa.bool_().id: _one_by_one(bool),
    pa.timestamp("us").id: _instants,
}


# --- columns as they come, made into what is written


def milliseconds(column: Any) -> Any:
    """Return instants as milliseconds since 1970; they are UTC, whatever zone they are shown in."""
    kind = pa.timestamp("ms", tz=column.type.tz)
    return pc.cast(pc.cast(column, kind, safe=False), pa.int64())


def durations(column: Any) -> Any:
    """Return lengths of time in milliseconds; a number is in milliseconds already."""
    if pa.types.is_duration(column.type):
        return pc.cast(pc.cast(column, pa.duration("ms"), safe=False), pa.int64())
    return pc.cast(column, pa.int64())


def bodies(column: Any) -> Bytes:
    """Return bodies as bytes: binary as it is, texts in UTF-8, everything else as JSON."""
    if _is_bytes(column.type):
        return _binary(column)
    written = [
        None if value is None else json.dumps(value, ensure_ascii=False, default=_plain).encode()
        for value in column.to_pylist()
    ]
    return pa.array(written, pa.binary())


def _plain(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())


# --- bytes


def _binary(column: Any) -> Bytes:
    return column if column.type == pa.binary() else pc.cast(column, pa.binary())


def _joined(*parts: Any) -> Bytes:
    """Put parts behind one another; null where one of them is."""
    scalars = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))


def _sized(content: Bytes, kind: tuple[bytes, bytes]) -> Bytes:
    """Write constructor and size before content; null stays null."""
    lengths = _lengths(content)
    is_narrow = _largest(lengths) < _NARROW
    code, width = (kind[0], 1) if is_narrow else (kind[1], 4)
    return _joined(code, _big_endian(lengths, width), content)


def _compound(content: Bytes, counts: Any, kind: tuple[bytes, bytes]) -> Bytes:
    """Write a list or map of what is written already."""
    lengths = _lengths(content)
    is_narrow = _largest(lengths) < _NARROW - 1 and _largest(counts) < _NARROW
    code, width = (kind[0], 1) if is_narrow else (kind[1], 4)
    sizes = pc.add(lengths, width)
    return _joined(code, _big_endian(sizes, width), _big_endian(counts, width), content)


def _lengths(content: Bytes) -> Any:
    return pc.fill_null(pc.cast(pc.binary_length(content), pa.int64()), 0)


def _largest(numbers: Any) -> int:
    return pc.max(numbers).as_py() or 0


def _present(column: Any) -> Any:
    return pc.cast(pc.is_valid(column), pa.int64())


def _where_not_null(column: Any, value: pa.Scalar) -> Any:
    return pc.if_else(pc.is_valid(column), value, pa.scalar(None, value.type))


_CODES: Final = {1: "B", 4: "I", 8: "q"}
_KINDS: Final = {1: pa.uint8(), 4: pa.uint32(), 8: pa.int64()}


def _big_endian(numbers: Any, width: int) -> Bytes:
    """Write numbers in so many bytes; null stays null."""
    filled = pc.cast(pc.fill_null(numbers, 0), _KINDS[width])
    buffer = filled.buffers()[1]
    raw = memoryview(buffer)[filled.offset * width : (filled.offset + len(filled)) * width]
    swapped = array(_CODES[width])
    swapped.frombytes(raw)
    if sys.byteorder == "little":
        swapped.byteswap()
    fixed = pa.Array.from_buffers(pa.binary(width), len(filled), [None, pa.py_buffer(swapped)])
    written = pc.cast(fixed, pa.binary())
    if numbers.null_count:
        return pc.if_else(pc.is_null(numbers), pa.scalar(None, pa.binary()), written)
    return written
