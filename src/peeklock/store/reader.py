"""The reading side of the embedded store: short read transactions that never block a commit.

Chunks are read where they lie in the map; whatever leaves this module is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.environment import translated
from peeklock.store.ledger import Cursor, Ledger, Partition
from peeklock.store.records import decode_chunk, decode_messages
from peeklock.store.replay import records_from
from peeklock.store.store import Corrupt, Damaged, JournalPage, Replay

# How much of a replay is read in one transaction, without the event loop getting a turn.
_PAGE_BYTES: Final = 1 << 20
_PAGE_CHUNKS: Final = 256


@final
class Reader:
    """Reads what the ledger committed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lmdb = ledger.environment.lmdb
        self._values = ledger.environment.values

    def payloads(self, partition: Partition, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions; neighbours cost less than strangers."""
        try:
            return self._payloads(partition, positions)
        except Corrupt as error:
            return self._singly(partition, positions, error)

    def _payloads(self, partition: Partition, positions: Sequence[int]) -> list[Message]:
        messages: list[Message] = []
        with (
            translated(f"read bodies of {partition.name}"),
            self._lmdb.begin(buffers=True) as transaction,
            transaction.cursor(self._values) as cursor,
        ):
            index = 0
            end = -1
            while index < len(positions):
                position = positions[index]
                if position != end or not _step(cursor, partition, position):
                    _seek(cursor, partition, position)
                header = partition.header_at(cursor)
                end = header.end
                taken = index + 1
                while taken < len(positions) and header.first <= positions[taken] < end:
                    taken += 1
                messages += decode_messages(cursor.value(), positions[index:taken])
                index = taken
        return messages

    def _singly(
        self, partition: Partition, positions: Sequence[int], error: Corrupt
    ) -> list[Message]:
        """Read each message by itself: what fits its own checksum is whole, whatever else of its
        chunk is damaged."""
        messages: list[Message] = []
        damaged: list[int] = []
        with (
            translated(f"read bodies of {partition.name}"),
            self._lmdb.begin(buffers=True) as transaction,
            transaction.cursor(self._values) as cursor,
        ):
            for position in positions:
                try:
                    _seek(cursor, partition, position)
                    messages += decode_messages(cursor.value(), [position])
                except Corrupt:
                    damaged.append(position)
        if damaged:
            raise Damaged(f"bodies of {partition.name} are damaged: {error}", damaged) from error
        return messages

    def journal(self, partition: Partition, after: int, limit_bytes: int) -> JournalPage:
        """Copy chunks from the one that holds `after` on."""
        with (
            translated(f"read the journal of {partition.name}"),
            self._lmdb.begin(buffers=True) as transaction,
            transaction.cursor(self._values) as cursor,
        ):
            # From the same snapshot as the chunks: a trim may be going on.
            resting = self._ledger.entry(transaction, partition)
            if resting is None or resting.end == 0:
                return JournalPage(0, 0, [])
            first = resting.extent.first
            position = max(after, first)
            _seek(cursor, partition, position)
            chunks: list[bytes] = []
            end = position
            found = True
            while found and partition.owns(cursor.key()):
                header = partition.header_at(cursor)
                end = header.end
                if end > position:
                    _follows(partition, header.first, position, begins=not chunks)
                    size = len(cursor.value())
                    if chunks and size > limit_bytes:
                        break
                    chunks.append(bytes(cursor.value()))
                    limit_bytes -= size
                    position = end
                found = cursor.next()
            return JournalPage(first, position if chunks else min(position, end), chunks)

    def replay(self, partition: Partition, position: int) -> tuple[Replay | None, int]:
        """Read the records of some chunks from a position on; answers the position after them."""
        size = 0
        count = 0
        replay_first = position
        records: list[Record] = []
        with (
            translated(f"replay {partition.name}"),
            self._lmdb.begin(buffers=True) as transaction,
            transaction.cursor(self._values) as cursor,
        ):
            _seek(cursor, partition, position)
            found = True
            while found and partition.owns(cursor.key()):
                header = partition.header_at(cursor)
                _follows(partition, header.first, position, begins=not records)
                first, decoded = decode_chunk(cursor.value(), bodies=False)
                if not records:
                    replay_first, decoded = records_from(position, first, decoded)
                records += decoded
                position = header.end
                size += len(cursor.value())
                count += 1
                if size >= _PAGE_BYTES or count >= _PAGE_CHUNKS:
                    break
                found = cursor.next()
        return (Replay(replay_first, records, size) if records else None), position


def _seek(cursor: Cursor, partition: Partition, position: int) -> None:
    """Move to the last chunk that begins at or before the position."""
    key = partition.key(position)
    found = cursor.set_range(key)
    if found and cursor.key() == key:
        return
    found = cursor.prev() if found else cursor.last()
    if not found or not partition.owns(cursor.key()):
        raise Corrupt(f"{partition.name} has no chunk that holds position {position}")


def _step(cursor: Cursor, partition: Partition, position: int) -> bool:
    """Move to the next chunk if it is the one that begins there."""
    return cursor.next() and cursor.key() == partition.key(position)


def _follows(partition: Partition, first: int, position: int, begins: bool) -> None:
    """Refuse a gap: only the first chunk of a walk may begin before the position."""
    if first > position or (first < position and not begins):
        raise Corrupt(f"{partition.name} goes on at {first} where {position} is due")
