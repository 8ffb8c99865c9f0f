"""How the parts of a record are packed: lists of numbers, texts, changes, entries of a checkpoint.

Packing answers bytes. Unpacking takes a record and an offset and answers the value and the offset
behind it.
"""

from __future__ import annotations

import struct
from typing import Final, cast

from peeklock.entity.message import NEVER, NO_DURATION
from peeklock.entity.records import CLAIMED, Kept

# What a kept entry has beside its fixed part.
_HAS_ENQUEUE_SEQUENCE: Final = 1
_HAS_SCHEDULE: Final = 2
_HAS_TIME_TO_LIVE: Final = 4
_HAS_NOTE: Final = 8
_HAS_CHANGES: Final = 16
_HAS_SESSION: Final = 32
_HAS_HOPS: Final = 64
_HAS_WAY: Final = 128  # where it goes, or where it comes from

# The length of a text that is not there.
_NONE: Final = 0xFFFFFFFF

# How lanes are packed: as runs of equal steps, or step by step, in one, two or four bytes each.
_RUNS: Final = 0
_BYTES: Final = 1
_SHORTS: Final = 2
_WORDS: Final = 4

# Expirations are packed as the different ones and, for each, which one it is: as one byte, or
# singly where there are too many for that.
_DIFFERENT_MAX: Final = 256
_SINGLY: Final = 0xFFFF

# A run of messages takes few bytes however long it is. No decision ever listed so many, nor had a
# topic so many subscriptions: a record that says so is damaged, and must not fill memory.
LISTED_MAX: Final = 1 << 24
LANES_MAX: Final = 1 << 14

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
_short: Final = struct.Struct("<H")
# how many lanes, and the form they are packed in
_lanes: Final = struct.Struct("<IB")


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


def pack_lanes(lanes: list[int]) -> bytes:
    """Pack numbers of lanes in their order. A message for all subscriptions of a big topic goes to
    lanes at equal distances, one for some of them to lanes that are not far from each other."""
    count = len(lanes)
    if count == 0:
        return _lanes.pack(0, _RUNS)
    steps: list[int] = []
    firsts: list[int] = [lanes[0]]
    strides: list[int] = [0]
    lengths: list[int] = [1]
    for at in range(1, count):
        step = lanes[at] - lanes[at - 1]
        steps.append(step)
        if lengths[-1] == 1:
            strides[-1] = step
        elif strides[-1] != step:
            firsts.append(lanes[at])
            strides.append(0)
            lengths.append(1)
            continue
        lengths[-1] += 1
    form = _step_form(steps)
    runs = len(firsts)
    if 4 + 12 * runs < 4 + form * len(steps):
        numbers = pack_numbers("I", firsts) + pack_numbers("i", strides)
        return _lanes.pack(count, _RUNS) + _word.pack(runs) + numbers + pack_numbers("I", lengths)
    head = _lanes.pack(count, form) + _word.pack(lanes[0])
    return head + pack_numbers(_step_code(form), steps)


def _step_form(steps: list[int]) -> int:
    if not steps or (min(steps) >= 0 and max(steps) < 1 << 8):
        return _BYTES
    return _SHORTS if min(steps) >= 0 and max(steps) < 1 << 16 else _WORDS


def _step_code(form: int) -> str:
    if form == _BYTES:
        return "B"
    if form == _SHORTS:
        return "H"
    if form == _WORDS:
        return "i"
    raise ValueError(f"lanes are not packed in the form {form}")


def pack_expirations(instants: list[int]) -> bytes:
    """Pack instants that are mostly the same, most often never."""
    numbers: dict[int, int] = {}
    for instant in instants:
        if instant not in numbers:
            numbers[instant] = len(numbers)
    different = list(numbers)
    if different == [NEVER]:
        return _short.pack(0)
    if len(different) == 1:
        return _short.pack(1) + _instant.pack(different[0])
    if len(different) <= _DIFFERENT_MAX and 8 * len(different) + len(instants) < 8 * len(instants):
        which = bytes([numbers[instant] for instant in instants])
        return _short.pack(len(different)) + pack_numbers("q", different) + which
    return _short.pack(_SINGLY) + pack_numbers("q", instants)


def pack_bytes(value: bytes | None) -> bytes:
    """Pack some bytes that may be missing."""
    return _word.pack(_NONE) if value is None else _word.pack(len(value)) + value


def pack_texts(texts: list[str]) -> bytes:
    """Pack texts: their lengths first, so that they are read without a step for each part."""
    raws = [text.encode() for text in texts]
    lengths = pack_numbers("I", [len(raw) for raw in raws])
    return _word.pack(len(raws)) + lengths + b"".join(raws)


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
    if entry.session_id is not None:
        flags |= _HAS_SESSION
        extras += pack_text(entry.session_id)
    if entry.hops:
        flags |= _HAS_HOPS
        extras += _word.pack(entry.hops)
    if entry.destination or entry.source:
        flags |= _HAS_WAY
        extras += pack_text(entry.destination) + pack_text(entry.source)
    if entry.place == CLAIMED:  # its owner lies behind all that the flags tell of
        extras += pack_text(entry.owner)
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
        if place == CLAIMED:
            owner, offset = unpack_text(record, offset)
            if owner is None:
                raise ValueError("an owner has a name")
            entry.owner = owner
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
    if flags & _HAS_SESSION:
        entry.session_id, offset = unpack_text(record, offset)
    if flags & _HAS_HOPS:
        entry.hops = _word.unpack_from(record, offset)[0]
        offset += 4
    if flags & _HAS_WAY:
        destination, offset = unpack_text(record, offset)
        source, offset = unpack_text(record, offset)
        if destination is None or source is None:
            raise ValueError("a way has a name")
        entry.destination = destination
        entry.source = source
    return offset


def unpack_sequences(record: memoryview, offset: int) -> tuple[list[int], int]:
    """Read what `pack_sequences` wrote."""
    count, runs = cast(tuple[int, int], _pair.unpack_from(record, offset))
    offset += 8
    if count > LISTED_MAX:
        raise ValueError("no record lists so many messages")
    if runs == 0:
        return unpack_numbers(record, offset, count, "Q")
    firsts, offset = unpack_numbers(record, offset, runs, "Q")
    if runs == 1:
        return list(range(firsts[0], firsts[0] + count)), offset
    lengths, offset = unpack_numbers(record, offset, runs, "I")
    if sum(lengths) != count:
        raise ValueError("the runs do not add up")
    numbers: list[int] = []
    for index in range(runs):
        numbers.extend(range(firsts[index], firsts[index] + lengths[index]))
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


def unpack_lanes(record: memoryview, offset: int) -> tuple[list[int], int]:
    """Read what `pack_lanes` wrote."""
    count, form = cast(tuple[int, int], _lanes.unpack_from(record, offset))
    offset += 5
    if count > LANES_MAX:
        raise ValueError("no message has so many lanes")
    lanes: list[int] = []
    if count == 0:
        return lanes, offset
    first: int = _word.unpack_from(record, offset)[0]  # how many runs, in the form of runs
    offset += 4
    if form != _RUNS:
        lanes.append(first)
        steps, offset = unpack_numbers(record, offset, count - 1, _step_code(form))
        for step in steps:
            lanes.append(lanes[-1] + step)
        return lanes, offset
    firsts, offset = unpack_numbers(record, offset, first, "I")
    strides, offset = unpack_numbers(record, offset, first, "i")
    lengths, offset = unpack_numbers(record, offset, first, "I")
    if sum(lengths) != count:
        raise ValueError("the runs do not add up")
    for at in range(first):
        lanes += [firsts[at] + strides[at] * step for step in range(lengths[at])]
    return lanes, offset


def unpack_expirations(record: memoryview, offset: int, count: int) -> tuple[list[int], int]:
    """Read what `pack_expirations` wrote for that many lanes."""
    size: int = _short.unpack_from(record, offset)[0]
    offset += 2
    if size == 0:
        return [NEVER] * count, offset
    if size == _SINGLY:
        return unpack_numbers(record, offset, count, "q")
    different, offset = unpack_numbers(record, offset, size, "q")
    if size == 1:
        return different * count, offset
    which = _take(record, offset, count)
    return [different[number] for number in which], offset + count


def unpack_bytes(record: memoryview, offset: int) -> tuple[bytes | None, int]:
    """Read what `pack_bytes` wrote."""
    length: int = _word.unpack_from(record, offset)[0]
    offset += 4
    if length == _NONE:
        return None, offset
    return bytes(_take(record, offset, length)), offset + length


def unpack_texts(record: memoryview, offset: int) -> tuple[list[str], int]:
    """Read what `pack_texts` wrote."""
    count: int = _word.unpack_from(record, offset)[0]
    lengths, offset = unpack_numbers(record, offset + 4, count, "I")
    texts: list[str] = []
    for length in lengths:
        texts.append(str(_take(record, offset, length), "utf-8"))
        offset += length
    return texts, offset


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
