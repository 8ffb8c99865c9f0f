"""How the parts of a record are packed: lists of numbers, texts, changes, entries of a checkpoint.

Packing answers bytes. Unpacking takes a record and an offset and answers the value and the offset
behind it.
"""

from __future__ import annotations

import struct
from typing import Final, cast

from peeklock.entity.message import NEVER, NO_DURATION
from peeklock.entity.records import Kept

# What a kept entry has beside its fixed part.
_HAS_ENQUEUE_SEQUENCE: Final = 1
_HAS_SCHEDULE: Final = 2
_HAS_TIME_TO_LIVE: Final = 4
_HAS_NOTE: Final = 8
_HAS_CHANGES: Final = 16

# The length of a text that is not there.
_NONE: Final = 0xFFFFFFFF

# Bound once: compiled code then calls them without looking their names up.
_word: Final = struct.Struct("<I")
_pair: Final = struct.Struct("<II")
_number: Final = struct.Struct("<Q")
_instant: Final = struct.Struct("<q")
# numbers, runs of consecutive ones (0: the numbers lie singly), the first number
_run: Final = struct.Struct("<IIQ")
# flags, sequence, position, place, enqueued at, expires at, delivery count, size
_kept: Final = struct.Struct("<BQQBqqIQ")
_KEPT_BYTES: Final = 46


def pack_sequences(numbers: list[int]) -> bytes:
    """Pack numbers in their order: as runs of consecutive ones when that is shorter."""
    count = len(numbers)
    if count == 0:
        return _pair.pack(0, 0)
    firsts: list[int] = []
    lengths: list[int] = []
    length = 0
    expected = -1
    for number in numbers:
        if number != expected:
            if length:
                lengths.append(length)
            firsts.append(number)
            length = 0
        length += 1
        expected = number + 1
    lengths.append(length)
    runs = len(firsts)
    if runs == 1:
        return _run.pack(count, 1, firsts[0])
    if runs * 12 < count * 8:
        return _pair.pack(count, runs) + pack_numbers("Q", firsts) + pack_numbers("I", lengths)
    return _pair.pack(count, 0) + pack_numbers("Q", numbers)


def pack_numbers(code: str, numbers: list[int]) -> bytes:
    """Pack numbers one by one, each as `struct` knows that code."""
    return struct.pack(f"<{len(numbers)}{code}", *numbers)


def pack_text(text: str | None) -> bytes:
    """Pack a text that may be missing."""
    if text is None:
        return _word.pack(_NONE)
    raw = text.encode()
    return _word.pack(len(raw)) + raw


def pack_changes(changes: dict[str, bytes]) -> bytes:
    """Pack names and values."""
    parts = [_word.pack(len(changes))]
    for name, value in changes.items():
        raw = name.encode()
        parts.append(_pair.pack(len(raw), len(value)))
        parts.append(raw)
        parts.append(value)
    return b"".join(parts)


def pack_entries(entries: list[Kept]) -> bytes:
    """Pack the entries of a slice."""
    parts = [_word.pack(len(entries))]
    for entry in entries:
        parts.append(_pack_entry(entry))
    return b"".join(parts)


def _pack_entry(entry: Kept) -> bytes:
    flags = 0
    extras = b""
    if entry.enqueue_sequence:
        flags |= _HAS_ENQUEUE_SEQUENCE
        extras += _number.pack(entry.enqueue_sequence)
    if entry.scheduled_at != NEVER:
        flags |= _HAS_SCHEDULE
        extras += _instant.pack(entry.scheduled_at)
    if entry.time_to_live_ms != NO_DURATION:
        flags |= _HAS_TIME_TO_LIVE
        extras += _instant.pack(entry.time_to_live_ms)
    if entry.reason is not None or entry.description is not None:
        flags |= _HAS_NOTE
        extras += pack_text(entry.reason) + pack_text(entry.description)
    if entry.changes is not None:
        flags |= _HAS_CHANGES
        extras += pack_changes(entry.changes)
    fixed: bytes = _kept.pack(
        flags,
        entry.sequence,
        entry.position,
        entry.place,
        entry.enqueued_at,
        entry.expires_at,
        entry.delivery_count,
        entry.size,
    )
    return fixed + extras


def unpack_entries(record: memoryview, offset: int) -> tuple[list[Kept], int]:
    """Read the entries of a slice."""
    count: int = _word.unpack_from(record, offset)[0]
    offset += 4
    entries: list[Kept] = []
    for _ in range(count):
        entry = Kept()
        flags, sequence, position, place, enqueued_at, expires_at, delivery_count, size = (
            _kept.unpack_from(record, offset)
        )
        entry.sequence = sequence
        entry.position = position
        entry.place = place
        entry.enqueued_at = enqueued_at
        entry.expires_at = expires_at
        entry.delivery_count = delivery_count
        entry.size = size
        offset += _KEPT_BYTES
        if flags:
            offset = _unpack_extras(record, offset, flags, entry)
        entries.append(entry)
    return entries, offset


def _unpack_extras(record: memoryview, offset: int, flags: int, entry: Kept) -> int:
    if flags & _HAS_ENQUEUE_SEQUENCE:
        entry.enqueue_sequence = _number.unpack_from(record, offset)[0]
        offset += 8
    if flags & _HAS_SCHEDULE:
        entry.scheduled_at = _instant.unpack_from(record, offset)[0]
        offset += 8
    if flags & _HAS_TIME_TO_LIVE:
        entry.time_to_live_ms = _instant.unpack_from(record, offset)[0]
        offset += 8
    if flags & _HAS_NOTE:
        entry.reason, offset = unpack_text(record, offset)
        entry.description, offset = unpack_text(record, offset)
    if flags & _HAS_CHANGES:
        entry.changes, offset = unpack_changes(record, offset)
    return offset


def unpack_sequences(record: memoryview, offset: int) -> tuple[list[int], int]:
    """Read what `pack_sequences` wrote."""
    count, runs = cast(tuple[int, int], _pair.unpack_from(record, offset))
    offset += 8
    if runs == 0:
        return unpack_numbers(record, offset, count, "Q")
    firsts, offset = unpack_numbers(record, offset, runs, "Q")
    if runs == 1:
        return list(range(firsts[0], firsts[0] + count)), offset
    lengths, offset = unpack_numbers(record, offset, runs, "I")
    numbers: list[int] = []
    for index in range(runs):
        numbers.extend(range(firsts[index], firsts[index] + lengths[index]))
    if len(numbers) != count:
        raise ValueError("the runs do not add up")
    return numbers, offset


def unpack_numbers(record: memoryview, offset: int, count: int, code: str) -> tuple[list[int], int]:
    """Read that many numbers."""
    form = f"<{count}{code}"
    return list(struct.unpack_from(form, record, offset)), offset + struct.calcsize(form)


def unpack_text(record: memoryview, offset: int) -> tuple[str | None, int]:
    """Read what `pack_text` wrote."""
    length: int = _word.unpack_from(record, offset)[0]
    offset += 4
    if length == _NONE:
        return None, offset
    return str(_take(record, offset, length), "utf-8"), offset + length


def unpack_changes(record: memoryview, offset: int) -> tuple[dict[str, bytes], int]:
    """Read what `pack_changes` wrote."""
    count: int = _word.unpack_from(record, offset)[0]
    offset += 4
    changes: dict[str, bytes] = {}
    for _ in range(count):
        name_bytes, value_bytes = cast(tuple[int, int], _pair.unpack_from(record, offset))
        offset += 8
        name = str(_take(record, offset, name_bytes), "utf-8")
        offset += name_bytes
        changes[name] = bytes(_take(record, offset, value_bytes))
        offset += value_bytes
    return changes, offset


def _take(record: memoryview, offset: int, length: int) -> memoryview:
    if offset + length > len(record):
        raise ValueError("the record is cut off")
    return record[offset : offset + length]
