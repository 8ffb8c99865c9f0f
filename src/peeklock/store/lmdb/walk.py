"""From chunk to chunk of a partition in LMDB, in a read transaction that never blocks a commit.

Chunks are read where they lie in the map.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import final

from peeklock.entity.message import Message
from peeklock.store.codec.records import decode_messages
from peeklock.store.entries import CHUNK_KEY, LmdbCursor, LmdbTransaction, PartitionEntry
from peeklock.store.lmdb.writer import LmdbWriter, header_at
from peeklock.store.store import Corrupt


@final
class LmdbWalk:
    """Stands on a chunk under a cursor."""

    def __init__(
        self, writer: LmdbWriter, transaction: LmdbTransaction, partition: PartitionEntry
    ) -> None:
        self._writer = writer
        self._transaction = transaction
        self._partition = partition
        self._cursor: LmdbCursor = transaction.cursor(writer.environment.values)
        self._problem: Corrupt | None = None
        self.first = self.end = self.size = -1

    def begin(self) -> int | None:
        """Return where the journal begins, by the same snapshot as its chunks: a trim may be going
        on."""
        resting = self._writer.table.entry(self._transaction, self._partition.number)
        return resting.extent.first if resting is not None and resting.end else None

    def seek(self, position: int) -> None:
        """Go to the last chunk that begins at or before the position."""
        cursor = self._cursor
        key = self._partition.key(position)
        found = cursor.set_range(key)
        if not found or cursor.key() != key:
            found = cursor.prev() if found else cursor.last()
        if not found or not self._partition.owns(cursor.key()):
            raise Corrupt(f"{self._partition.name} has no chunk that holds position {position}")
        self._look(position)

    def step(self) -> bool:
        """Go to the next chunk."""
        cursor = self._cursor
        if not cursor.next() or not self._partition.owns(cursor.key()):
            return False
        self._look(self.end)
        return True

    def _look(self, position: int) -> None:
        self.first = CHUNK_KEY.unpack(self._cursor.key())[1]
        self.size = len(self._cursor.value())
        self._problem = None
        try:
            self.end = header_at(self._cursor, self._partition).end
        except Corrupt as error:
            # Messages may be whole all the same; who needs all of it is told.
            self._problem = error
            self.end = position + 1

    def chunk(self) -> memoryview:
        """Return the chunk where it lies."""
        if self._problem is not None:
            raise self._problem
        return self._cursor.value()

    def messages(self, positions: Sequence[int]) -> list[Message]:
        """Read messages of the chunk."""
        return decode_messages(self._cursor.value(), positions)

    def close(self) -> None:
        """Let the cursor go, before its transaction."""
        self._cursor.close()


@contextlib.contextmanager
def walking(writer: LmdbWriter, partition: PartitionEntry) -> Iterator[LmdbWalk]:
    """Look at a partition as it is at one moment."""
    with (
        writer.environment.lmdb.begin(buffers=True) as transaction,
        contextlib.closing(LmdbWalk(writer, transaction, partition)) as walk,
    ):
        yield walk
