"""From chunk to chunk of a partition in segments: the index says where they lie.

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
from peeklock.store.codec.records import (
    HEADER,
    HEADER_BYTES,
    chunk_header,
    decode_messages,
    table_width,
)
from peeklock.store.entries import CHUNK_KEY, ENTRY_KEY, LmdbCursor
from peeklock.store.segments.files import Segments
from peeklock.store.segments.index import Index, place_at
from peeklock.store.segments.tail import ChunkPlace, Tail
from peeklock.store.store import Corrupt

# Of a chunk that is larger than this, only what is asked for is read.
_WHOLE_BYTES: Final = 64 << 10

_word: Final = struct.Struct("<I")


@final
class SegmentWalk:
    """Stands on a chunk that the index or the tail tells of."""

    def __init__(
        self,
        index: Index,
        segments: Segments,
        tail: Tail,
        recent: list[ChunkPlace],
        cursor: LmdbCursor,
    ) -> None:
        self._index = index
        self._segments = segments
        self._tail = tail
        self._recent = recent
        self._firsts = [place.first for place in recent]
        self._cursor = cursor
        self._place: ChunkPlace | None = None
        self.first = self.end = self.size = -1

    def begin(self) -> int | None:
        """Return where the journal begins; nothing where there is none."""
        partition = self._index.partitions.get(self._tail.number)
        if partition is not None and partition.end:
            return partition.extent.first
        return self._recent[0].first if self._recent else None

    def seek(self, position: int) -> None:
        """Go to the last chunk that begins at or before the position."""
        index = bisect_right(self._firsts, position) - 1
        if index >= 0:
            self._stand_on(self._recent[index])
            return
        cursor = self._cursor
        key = CHUNK_KEY.pack(self._tail.number, position)
        found = cursor.set_range(key)
        if not found or cursor.key() != key:
            found = cursor.prev() if found else cursor.last()
        if not found or not self._owns(cursor):
            raise Corrupt(f"{self._tail.name} has no chunk that holds position {position}")
        self._stand_on(place_at(cursor))

    def step(self) -> bool:
        """Go to the next chunk, in the index or behind it."""
        place: ChunkPlace | None = None
        if not self._firsts or self.first < self._firsts[0]:
            cursor = self._cursor
            key = CHUNK_KEY.pack(self._tail.number, self.first)
            # It stands on the last one already, unless that was found elsewhere.
            is_there = cursor.key() == key or cursor.set_key(key)
            if is_there and cursor.next() and self._owns(cursor):
                place = place_at(cursor)
        if place is None:
            index = bisect_right(self._firsts, self.first)
            if index == len(self._recent):
                return False
            place = self._recent[index]
        self._stand_on(place)
        return True

    def chunk(self) -> bytes:
        """Copy the chunk."""
        chunk = self._whole(self._here())
        if chunk_header(chunk).first != self.first:
            raise Corrupt(f"a chunk at position {self.first} lies at another place")
        return chunk

    def messages(self, positions: Sequence[int]) -> list[Message]:
        """Read messages of the chunk."""
        place = self._here()
        if place.size <= _WHOLE_BYTES:
            return decode_messages(self._whole(place), positions)
        return decode_messages(memoryview(self._parts(place, positions)), positions)

    def _here(self) -> ChunkPlace:
        place = self._place
        assert place is not None
        return place

    def _stand_on(self, place: ChunkPlace) -> None:
        self._place = place
        self.first, self.end, self.size = place.first, place.end, place.size

    def _owns(self, cursor: LmdbCursor) -> bool:
        return bool(ENTRY_KEY.unpack_from(cursor.key())[0] == self._tail.number)

    def _whole(self, place: ChunkPlace) -> bytes:
        target = bytearray(place.size)
        self._segments.read(place.use, place.offset, target)
        return bytes(target)

    def _parts(self, place: ChunkPlace, positions: Sequence[int]) -> bytearray:
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

    def _fill(self, place: ChunkPlace, view: memoryview, begin: int, end: int) -> None:
        if begin < end:
            self._segments.read(place.use, place.offset + begin, view[begin:end])


@contextlib.contextmanager
def walking(index: Index, segments: Segments, tail: Tail) -> Iterator[SegmentWalk]:
    """Look at a partition as it is at one moment; no segment is used again meanwhile."""
    environment = index.environment
    with segments.reading():
        recent = tail.recent[:]
        with (
            environment.lmdb.begin(buffers=True) as transaction,
            transaction.cursor(environment.values) as cursor,
        ):
            yield SegmentWalk(index, segments, tail, recent, cursor)
