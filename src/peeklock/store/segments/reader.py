"""The reading side of the segment store: the index says where chunks lie, the segments give them.

What the index does not know yet is found at the partition's tail. That is copied before the index
is asked, so that nothing falls between the two.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.environment import translated
from peeklock.store.ledger import CHUNK_KEY, ENTRY_KEY, Cursor
from peeklock.store.records import (
    HEADER,
    HEADER_BYTES,
    chunk_header,
    decode_chunk,
    decode_messages,
    table_width,
)
from peeklock.store.replay import records_from
from peeklock.store.segments.files import Segments
from peeklock.store.segments.index import Index, place_at
from peeklock.store.segments.tail import Place, Tail
from peeklock.store.store import Corrupt, Damaged, JournalPage, Replay

# How much of a replay is read at once, without the event loop getting a turn.
_PAGE_BYTES: Final = 1 << 20
_PAGE_CHUNKS: Final = 256

# Of a chunk that is larger than this, only what is asked for is read.
_WHOLE_BYTES: Final = 64 << 10

_word: Final = struct.Struct("<I")


@final
class Reader:
    """Reads what was committed."""

    def __init__(self, index: Index, segments: Segments) -> None:
        self._index = index
        self._segments = segments
        self._lmdb = index.environment.lmdb
        self._values = index.environment.values

    def payloads(self, tail: Tail, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions; neighbours cost less than strangers."""
        messages: list[Message] = []
        damaged: list[int] = []
        problem: Corrupt | None = None
        with translated(f"read bodies of {tail.name}"), self._walking(tail) as walk:
            index = 0
            while index < len(positions):
                taken = index + 1
                try:
                    place = walk.holding(positions[index])
                    while taken < len(positions) and place.first <= positions[taken] < place.end:
                        taken += 1
                    messages += self._messages(place, positions[index:taken])
                except Corrupt as error:
                    problem = error
                    # Each by itself: what fits its own checksum is whole, whatever else of its
                    # chunk is damaged.
                    for position in positions[index:taken]:
                        try:
                            messages += self._messages(walk.holding(position), [position])
                        except Corrupt:
                            damaged.append(position)
                index = taken
        if damaged:
            raise Damaged(f"bodies of {tail.name} are damaged: {problem}", damaged) from problem
        return messages

    def journal(self, tail: Tail, after: int, limit_bytes: int) -> JournalPage:
        """Copy chunks from the one that holds `after` on."""
        with translated(f"read the journal of {tail.name}"), self._walking(tail) as walk:
            first = self._first(tail, walk.recent)
            if first is None:
                return JournalPage(0, 0, [])
            position = max(after, first)
            place: Place | None = walk.holding(position)
            chunks: list[bytes] = []
            end = position
            while place is not None:
                end = place.end
                if end > position:
                    _follows(tail, place.first, position, begins=not chunks)
                    if chunks and place.size > limit_bytes:
                        break
                    chunks.append(self._chunk(place))
                    limit_bytes -= place.size
                    position = end
                place = walk.next()
            return JournalPage(first, position if chunks else min(position, end), chunks)

    def replay(self, tail: Tail, position: int) -> tuple[Replay | None, int]:
        """Read the records of some chunks from a position on; answers the position after them."""
        size = 0
        count = 0
        replay_first = position
        records: list[Record] = []
        with translated(f"replay {tail.name}"), self._walking(tail) as walk:
            place: Place | None = walk.holding(position)
            while place is not None and size < _PAGE_BYTES and count < _PAGE_CHUNKS:
                _follows(tail, place.first, position, begins=not records)
                first, decoded = decode_chunk(self._chunk(place), bodies=False)
                if not records:
                    replay_first, decoded = records_from(position, first, decoded)
                records += decoded
                position = place.end
                size += place.size
                count += 1
                place = walk.next()
        return (Replay(replay_first, records, size) if records else None), position

    def chunk(self, place: Place) -> bytes:
        """Copy a chunk as it lies there, whole or not."""
        target = bytearray(place.size)
        self._segments.read(place.use, place.offset, target)
        return bytes(target)

    @contextlib.contextmanager
    def _walking(self, tail: Tail) -> Iterator[_Walk]:
        """Look at a partition as it is at one moment; no segment is used again meanwhile."""
        with self._segments.reading():
            recent = tail.recent[:]
            with (
                self._lmdb.begin(buffers=True) as transaction,
                transaction.cursor(self._values) as cursor,
            ):
                yield _Walk(tail, recent, cursor)

    def _first(self, tail: Tail, recent: list[Place]) -> int | None:
        """Where the journal begins; nothing where there is none."""
        partition = self._index.partitions.get(tail.number)
        if partition is not None and partition.end:
            return partition.extent.first
        return recent[0].first if recent else None

    def _chunk(self, place: Place) -> bytes:
        chunk = self.chunk(place)
        if chunk_header(chunk).first != place.first:
            raise Corrupt(f"a chunk at position {place.first} lies at another place")
        return chunk

    def _messages(self, place: Place, positions: Sequence[int]) -> list[Message]:
        if place.size <= _WHOLE_BYTES:
            return decode_messages(self.chunk(place), positions)
        return decode_messages(memoryview(self._parts(place, positions)), positions)

    def _parts(self, place: Place, positions: Sequence[int]) -> bytearray:
        """Read of a large chunk its table and some records, each to where it belongs."""
        chunk = bytearray(place.size)
        view = memoryview(chunk)
        self._fill(place, view, 0, HEADER_BYTES)
        version, count, first, _ = HEADER.unpack_from(chunk)
        entry = 4 * table_width(version)
        base = HEADER_BYTES + entry * count
        if base > place.size:
            raise Corrupt(f"the chunk at position {place.first} makes no sense")
        self._fill(place, view, HEADER_BYTES, base)
        begin = end = 0
        for position in sorted(positions):
            index = position - first
            if not 0 <= index < count:
                continue  # who decodes it has words for that
            at = HEADER_BYTES + entry * index
            start = base + (_word.unpack_from(chunk, at - entry)[0] if index else 0)
            if start > end or end == 0:
                self._fill(place, view, begin, end)
                begin = start
            end = min(max(end, base + _word.unpack_from(chunk, at)[0]), place.size)
        self._fill(place, view, begin, end)
        view.release()
        return chunk

    def _fill(self, place: Place, view: memoryview, begin: int, end: int) -> None:
        if begin < end:
            self._segments.read(place.use, place.offset + begin, view[begin:end])


@final
class _Walk:
    """From chunk to chunk of a partition, in the index and behind it."""

    def __init__(self, tail: Tail, recent: list[Place], cursor: Cursor) -> None:
        self._tail = tail
        self.recent = recent
        self._firsts = [place.first for place in recent]
        self._cursor = cursor
        self._last: Place | None = None

    def holding(self, position: int) -> Place:
        """The last chunk that begins at or before the position."""
        last = self._last
        if last is not None and last.first <= position < last.end:
            return last
        place: Place | None = None
        if last is not None and position == last.end:
            place = self.next()
            if place is not None and place.first == position:
                return place
        place = self._seek(position)
        if place is None:
            raise Corrupt(f"{self._tail.name} has no chunk that holds position {position}")
        self._last = place
        return place

    def next(self) -> Place | None:
        """The chunk behind the last one."""
        last = self._last
        assert last is not None
        place: Place | None = None
        if not self._firsts or last.first < self._firsts[0]:
            cursor = self._cursor
            key = CHUNK_KEY.pack(self._tail.number, last.first)
            # It stands on the last one already, unless that was found elsewhere.
            is_there = cursor.key() == key or cursor.set_key(key)
            if is_there and cursor.next() and self._owns(cursor):
                place = place_at(cursor)
        if place is None:
            index = bisect_right(self._firsts, last.first)
            place = self.recent[index] if index < len(self.recent) else None
        if place is not None:
            self._last = place
        return place

    def _seek(self, position: int) -> Place | None:
        index = bisect_right(self._firsts, position) - 1
        if index >= 0:
            return self.recent[index]
        cursor = self._cursor
        key = CHUNK_KEY.pack(self._tail.number, position)
        found = cursor.set_range(key)
        if not found or cursor.key() != key:
            found = cursor.prev() if found else cursor.last()
        return place_at(cursor) if found and self._owns(cursor) else None

    def _owns(self, cursor: Cursor) -> bool:
        return bool(ENTRY_KEY.unpack_from(cursor.key())[0] == self._tail.number)


def _follows(tail: Tail, first: int, position: int, begins: bool) -> None:
    """Refuse a gap: only the first chunk of a walk may begin before the position."""
    if first > position or (first < position and not begins):
        raise Corrupt(f"{tail.name} goes on at {first} where {position} is due")
