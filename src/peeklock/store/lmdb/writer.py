"""The writing side of LMDB's store: many requests, one transaction.

A partition's entry is written when the epoch, the start of replay or the journal's first position
move, not with each commit. What lies in a `PartitionEntry` is what the last commit left; after a
failed one nobody knows, so it is read again.

A partition is dropped by one small commit, and its chunks go in slices afterwards; what a crash
leaves of them goes with the next trim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, final

from peeklock.store.appending import NewChunk, epoch_for
from peeklock.store.codec.records import ChunkHeader, chunk_header
from peeklock.store.committers import BULKY
from peeklock.store.entries import (
    TRIM_STEPS,
    LmdbCursor,
    LmdbTransaction,
    PartitionEntry,
    PartitionTable,
)
from peeklock.store.environment import Environment, is_lasting
from peeklock.store.retention import Chunk, Retention, Trim
from peeklock.store.store import Broken, Corrupt, Fenced, StoreError, Unavailable


class LmdbRequest(Protocol):
    """Something to be done in a transaction."""

    partition: PartitionEntry
    size: int

    def apply(self, writer: LmdbWriter, transaction: LmdbTransaction) -> int:
        """Do it; a StoreError refuses this request alone, any other error the transaction."""
        ...


@final
class LmdbWriter:
    """Applies requests to the environment."""

    def __init__(self, environment: Environment, retention: Retention) -> None:
        self.environment = environment
        self.retention = retention
        self.table = PartitionTable(environment)
        self.partitions = {entry.name: entry for entry in self.table.entries.values()}
        self._number = self.table.last_number
        self._top = b""

    def partition(self, name: str) -> PartitionEntry:
        """Find a partition or give it a number; nothing rests before it is opened."""
        partition = self.partitions.get(name)
        if partition is None:
            self.table.refuse_damaged(name)
            # Never one that was given before: somebody may still have that partition in hand.
            self._number += 1
            partition = self.partitions[name] = PartitionEntry(self._number, name)
        return partition

    def forget(self, partition: PartitionEntry) -> None:
        """Take a dropped partition out of sight, once it rests that it was dropped."""
        if partition.dropped and self.partitions.get(partition.name) is partition:
            del self.partitions[partition.name]
            self.table.dropped[partition.number] = partition.name

    def commit(self, requests: Sequence[LmdbRequest]) -> list[int | StoreError]:
        """Do all of it durably in one transaction; answers each request's result or error."""
        results: list[int | StoreError] = []
        try:
            with self.environment.lmdb.begin(write=True, buffers=True) as transaction:
                for request in requests:
                    try:
                        results.append(request.apply(self, transaction))
                    except StoreError as refused:
                        results.append(refused)
        except Exception as error:  # noqa: BLE001 - the thread that commits must outlive anything
            self._top = b""
            for request in requests:
                request.partition.stale = True
            where = self.environment.directory
            kind = Broken if is_lasting(error) else Unavailable
            failed = [kind(f"the commit in {where} failed: {error!r}") for _ in requests]
            for failure in failed:
                failure.__cause__ = error
            # Who was refused before the commit failed is refused all the same.
            refusals = results + [0] * (len(requests) - len(results))
            return [
                refusal if isinstance(refusal, StoreError) else failure
                for refusal, failure in zip(refusals, failed, strict=True)
            ]
        return results

    def put(
        self,
        transaction: LmdbTransaction,
        partition: PartitionEntry,
        first: int,
        chunk: bytes | bytearray,
    ) -> None:
        """Write a chunk; it must be new."""
        values = self.environment.values
        key = partition.key(first)
        if not self._top:
            with transaction.cursor(values) as cursor:
                self._top = bytes(cursor.key()) if cursor.last() else b"\0"
        # Appending fills the pages to the brim, but it is possible at the very end only.
        last = key > self._top
        if not transaction.put(key, chunk, overwrite=False, append=last, db=values):
            raise Corrupt(f"{partition.name} has a chunk at position {first} already")
        if last:
            self._top = key

    def load(self, transaction: LmdbTransaction, partition: PartitionEntry) -> None:
        """Read again what is known of a partition, unless it is certain; it must be there."""
        self.refresh(transaction, partition)
        if partition.dropped:
            raise Fenced(f"{partition.name} was dropped")

    def refresh(self, transaction: LmdbTransaction, partition: PartitionEntry) -> None:
        """Read again what is known of a partition, unless it is certain."""
        if not partition.stale:
            return
        resting = self.table.entry(transaction, partition.number)
        if resting is None:
            resting = PartitionEntry(partition.number, partition.name)
        else:
            # If it was being dropped, that failed.
            partition.dropped = False
            self._count_tail(transaction, resting)
        partition.epoch = resting.epoch
        partition.replay_from = resting.replay_from
        partition.end = resting.end
        partition.extent = resting.extent
        partition.stale = False

    def _count_tail(self, transaction: LmdbTransaction, partition: PartitionEntry) -> None:
        """Add the chunks that were written since the entry was."""
        with transaction.cursor(self.environment.values) as cursor:
            found = cursor.set_range(partition.key(partition.end))
            while found and partition.owns(cursor.key()):
                header = header_at(cursor, partition)
                if header.first != partition.end:
                    raise Corrupt(
                        f"{partition.name} goes on at {header.first} where {partition.end} is due"
                    )
                partition.end = header.end
                partition.extent.size += len(cursor.value())
                found = cursor.next()

    def sweep(self, transaction: LmdbTransaction, partition: PartitionEntry, steps: int) -> bool:
        """Delete chunks of a partition that is gone; return whether there may be more of them."""
        with transaction.cursor(self.environment.values) as cursor:
            while cursor.set_range(partition.key(0)) and partition.owns(cursor.key()):
                if steps == 0:
                    return True
                cursor.delete()
                steps -= 1
        self.table.forget(transaction, partition.number)
        return False

    def excess(self) -> int:
        """Count the bytes by which all journals together are too big."""
        journals = sum(partition.extent.size for partition in list(self.partitions.values()))
        return journals - self.retention.bytes_max


def header_at(cursor: LmdbCursor, partition: PartitionEntry) -> ChunkHeader:
    """Read the header of the chunk under the cursor, which must lie where it says."""
    header = chunk_header(cursor.value())
    if cursor.key() != partition.key(header.first):
        raise Corrupt(f"{partition.name} has a chunk that says {header.first} at another position")
    return header


@final
class LmdbOpen:
    """Put an epoch in force."""

    def __init__(self, partition: PartitionEntry, epoch: int | None) -> None:
        self.partition: PartitionEntry = partition
        self.epoch: int | None = epoch
        self.size: int = BULKY

    def apply(self, writer: LmdbWriter, transaction: LmdbTransaction) -> int:
        """Return the epoch in force."""
        partition = self.partition
        writer.load(transaction, partition)
        epoch = epoch_for(partition.name, self.epoch, partition.epoch, writer.table.spent)
        if epoch != partition.epoch:
            partition.epoch = epoch
            writer.table.save(transaction, partition)
        return epoch


@final
class LmdbAppend:
    """Add one chunk."""

    def __init__(self, partition: PartitionEntry, chunk: NewChunk) -> None:
        self.partition: PartitionEntry = partition
        self.chunk: NewChunk = chunk
        self.size: int = chunk.size

    def apply(self, writer: LmdbWriter, transaction: LmdbTransaction) -> int:
        """Return how many bytes the chunk has."""
        partition, chunk = self.partition, self.chunk
        writer.load(transaction, partition)
        chunk.check(partition.name, partition.epoch, partition.end)
        data = chunk.encode(partition.name)
        self.size = len(data)
        begins = partition.end == 0
        writer.put(transaction, partition, chunk.first, data)
        partition.end = chunk.end
        partition.extent.size += self.size
        if begins:
            partition.replay_from = partition.extent.first = chunk.first
        if chunk.replay_from is not None:
            partition.replay_from = chunk.replay_from
        if begins or chunk.replay_from is not None:
            writer.table.save(transaction, partition)
        return self.size


@final
class LmdbTrim:
    """Do a bounded part of a trim; answers 1 when there may be more to do."""

    def __init__(self, partition: PartitionEntry, trim: Trim) -> None:
        self.partition: PartitionEntry = partition
        self.trim: Trim = trim
        self.size: int = BULKY

    def apply(self, writer: LmdbWriter, transaction: LmdbTransaction) -> int:
        """Drop chunks; the journal's new first position is written down with it."""
        partition = self.partition
        writer.load(transaction, partition)
        self.trim.upto = min(self.trim.upto, partition.replay_from)
        first = partition.extent.first
        with transaction.cursor(writer.environment.values) as cursor:
            shelf = _LmdbShelf(cursor, partition)
            try:
                more = self.trim.round(shelf, partition.extent, writer.excess(), TRIM_STEPS)
            finally:
                if partition.extent.first != first:
                    writer.table.save(transaction, partition)
        return int(more)


@final
class LmdbDrop:
    """Take a partition away from everybody; what it leaves is swept afterwards."""

    def __init__(self, partition: PartitionEntry) -> None:
        self.partition: PartitionEntry = partition
        self.size: int = BULKY

    def apply(self, writer: LmdbWriter, transaction: LmdbTransaction) -> int:
        """Answers 1 when there was something to take away."""
        partition = self.partition
        writer.refresh(transaction, partition)
        if partition.dropped or writer.table.entry(transaction, partition.number) is None:
            return 0
        writer.table.strike(transaction, partition, partition.epoch)
        partition.dropped = True
        # Whoever still replays it is told.
        partition.epoch = 0
        return 1


@final
class LmdbSweep:
    """Delete a bounded part of what a dropped partition left; answers 1 when there is more."""

    def __init__(self, partition: PartitionEntry) -> None:
        self.partition: PartitionEntry = partition
        self.size: int = BULKY

    def apply(self, writer: LmdbWriter, transaction: LmdbTransaction) -> int:
        """Delete chunks, and the last trace with the last of them."""
        return int(writer.sweep(transaction, self.partition, TRIM_STEPS))


@final
class _LmdbShelf:
    """A partition's chunks inside a transaction."""

    def __init__(self, cursor: LmdbCursor, partition: PartitionEntry) -> None:
        self.cursor: LmdbCursor = cursor
        self.partition: PartitionEntry = partition

    def seek(self, position: int) -> Chunk | None:
        cursor = self.cursor
        if not cursor.set_range(self.partition.key(position)):
            return None
        if not self.partition.owns(cursor.key()):
            return None
        header = header_at(cursor, self.partition)
        return Chunk(header.first, header.end, header.at, len(cursor.value()))

    def drop(self, first: int) -> None:
        if self.cursor.set_key(self.partition.key(first)):
            self.cursor.delete()
