"""Messages into parcels: as many as fit into one transfer, by their bytes and not by number."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc

from peeklock.client.batch import envelope_front
from peeklock.spark.sink.encoding import ENTRY_BYTES, entries_of

# Batches larger than this are not quicker; Azure allows no larger ones on its premium tier.
BATCH_BYTES_MAX: Final = 1 << 20
# What the envelope may say of its first message, and what a service may add to count.
_ENVELOPE_ROOM: Final = 1_024
# Where a broker names no limit, or nobody has asked it yet.
SIZE_MAX_DEFAULT: Final = 256 * 1024
_NO_KEYS: Final[frozenset[str]] = frozenset()


class TooLarge(Exception):
    """A message that no transfer can carry."""

    def __init__(self, row: int, size: int, size_max: int) -> None:
        super().__init__(f"{size:,} bytes, and the entity takes {size_max:,} at most")
        self.row = row


@final
@dataclass(frozen=True, slots=True)
class Parcel:
    """One transfer: a message, or a batch of them."""

    payload: bytes
    is_batch: bool
    count: int
    # The sessions of its messages: two parcels of one session are never under way at once.
    sessions: frozenset[str] = _NO_KEYS


@final
@dataclass(frozen=True, slots=True)
class ParcelLimits:
    """What fits: the largest transfer, and the most messages of one."""

    size_max: int
    count_max: int = 1 << 30
    # Whether all messages of a batch must have one key, as where there are several partitions.
    is_one_key: bool = False


def in_order_of_keys(keys: list[Any]) -> Any:
    """Return the order in which rows of the same keys stand together, each group as it was."""
    codes = [pc.fill_null(key.dictionary_encode().indices, -1) for key in keys]
    table = pa.table(codes, names=[str(number) for number in range(len(codes))])
    order = [(name, "ascending") for name in table.column_names]
    return pc.sort_indices(table, sort_keys=order)


def parcels(
    messages: pa.BinaryArray,
    room: ParcelLimits,
    sessions: list[str | None] | None,
    keys: list[Any] | None,
) -> Iterator[Parcel]:
    """Cut messages into parcels, in their order; rows of the same key must stand together."""
    entries = entries_of(messages)
    ends = _offsets(entries)
    content = memoryview(entries.buffers()[2]) if entries.buffers()[2] is not None else b""
    batch_max = min(room.size_max, BATCH_BYTES_MAX) - _ENVELOPE_ROOM
    start = 0
    while start < len(messages):
        fits = bisect_right(ends, ends[start] + batch_max, start + 1) - 1
        stop = min(max(fits, start + 1), start + room.count_max)
        if room.is_one_key and keys is not None:
            stop = _same_until(keys, start, stop)
        named = _NO_KEYS
        if sessions is not None:
            named = frozenset(name for name in sessions[start:stop] if name is not None)
        yield _parcel(content, ends, start, stop, room.size_max, named)
        start = stop


def _parcel(
    content: Any, ends: Any, start: int, stop: int, size_max: int, sessions: frozenset[str]
) -> Parcel:
    first = bytes(content[ends[start] + ENTRY_BYTES : ends[start + 1]])
    if stop == start + 1:
        if len(first) > size_max:
            raise TooLarge(start, len(first), size_max)
        return Parcel(first, False, 1, sessions)
    payload = envelope_front(first) + bytes(content[ends[start] : ends[stop]])
    return Parcel(payload, True, stop - start, sessions)


def _offsets(entries: pa.BinaryArray) -> Any:
    """Return where each entry begins, and where the last one ends."""
    offsets = memoryview(entries.buffers()[1]).cast("i")
    return offsets[entries.offset : entries.offset + len(entries) + 1]


def _same_until(keys: list[Any], start: int, stop: int) -> int:
    key = keys[start]
    for number in range(start + 1, stop):
        if keys[number] != key:
            return number
    return stop
