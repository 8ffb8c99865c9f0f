"""The writing side of the embedded store: many requests, one transaction.

    meta     "format" -> its name;  "p" + number -> what is known of a partition
             "d" + number -> the name of a partition that was dropped and still has chunks
             "epochs" -> the highest epoch that a dropped partition had
    values   (number, first position) -> chunk

A partition's number is given once. Its entry in `meta` is written when the epoch, the start of
replay or the journal's first position move, not with each commit. What lies in a `Partition` is
what the last commit left; after a failed one nobody knows, so it is read again.

A partition is dropped by one small commit, and its chunks go in slices afterwards; what a crash
leaves of them goes with the next trim.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias, final

import lmdb

from peeklock.entity.records import Record
from peeklock.store.checksum import crc32
from peeklock.store.environment import Environment, translated
from peeklock.store.large import encode_large
from peeklock.store.records import ChunkHeader, chunk_header
from peeklock.store.retention import Chunk, Extent, Retention, Trim
from peeklock.store.store import Broken, Corrupt, Fenced, StoreError, Unavailable

Transaction: TypeAlias = "lmdb.Transaction[memoryview]"
Cursor: TypeAlias = "lmdb.Cursor[memoryview]"

# The size of what is no small write, whatever it writes.
BULKY: Final = 1 << 30

# How many chunks one transaction looks at for a trim or a drop, at most: commits wait that long.
TRIM_STEPS: Final = 256

# The key of a chunk, and of what is known of a partition, behind its first letter.
CHUNK_KEY: Final = struct.Struct(">IQ")
ENTRY_KEY: Final = struct.Struct(">I")
# epoch, start of replay, first position of the journal, its bytes, end at the time of writing
_entry: Final = struct.Struct(">QQQQQ")
_crc: Final = struct.Struct(">I")
_epoch: Final = struct.Struct(">Q")
PARTITION: Final = b"p"
DROPPED: Final = b"d"
_EPOCHS: Final = b"epochs"


@final
class Partition:
    """What the store knows of a partition; the writing thread alone changes it."""

    __slots__ = ("dropped", "end", "epoch", "extent", "name", "number", "replay_from", "stale")

    def __init__(self, number: int, name: str) -> None:
        self.number: int = number
        self.name: str = name
        self.epoch: int = 0
        self.replay_from: int = 0
        self.end: int = 0
        self.extent: Extent = Extent()
        # Whether it has to be read again before it is believed.
        self.stale: bool = True
        # Whether it is gone; who still has it in hand is fenced.
        self.dropped: bool = False

    def key(self, position: int) -> bytes:
        """The key of a chunk that begins there."""
        return CHUNK_KEY.pack(self.number, position)

    def owns(self, key: memoryview) -> bool:
        """Whether the key names a chunk of this partition."""
        return bool(ENTRY_KEY.unpack_from(key)[0] == self.number)

    def header_at(self, cursor: Cursor) -> ChunkHeader:
        """Read the header of the chunk under the cursor, which must lie where it says."""
        header = chunk_header(cursor.value())
        if cursor.key() != self.key(header.first):
            raise Corrupt(f"{self.name} has a chunk that says {header.first} at another position")
        return header

    def encoded(self) -> bytes:
        """Itself as an entry of `meta`."""
        extent = self.extent
        fields = _entry.pack(self.epoch, self.replay_from, extent.first, extent.size, self.end)
        raw = fields + self.name.encode()
        return _crc.pack(crc32(raw)) + raw

    def decode(self, raw: memoryview) -> None:
        """Take what an entry says."""
        if len(raw) < _crc.size + _entry.size or crc32(raw[4:]) != _crc.unpack_from(raw)[0]:
            raise Corrupt(f"what is known of partition {self.number} does not fit its checksum")
        extent = self.extent
        self.epoch, self.replay_from, extent.first, extent.size, self.end = _entry.unpack_from(
            raw, _crc.size
        )
        self.name = str(raw[_crc.size + _entry.size :], "utf-8")


class Request(Protocol):
    """Something to be done in a transaction."""

    partition: Partition
    # The bytes that it writes, about; as large as can be where it has other work to do.
    size: int

    def apply(self, ledger: Ledger, transaction: Transaction) -> int:
        """Do it; a StoreError refuses this request alone, any other error the transaction."""
        ...


@final
class Ledger:
    """Applies requests to the environment."""

    def __init__(self, environment: Environment, retention: Retention) -> None:
        self.environment = environment
        self.retention = retention
        self.partitions: dict[str, Partition] = {}
        # Those that were dropped and may still have chunks, by their numbers.
        self.dropped: dict[int, Partition] = {}
        # Those whose names cannot be read, by their numbers, and why.
        self.damaged: dict[int, str] = {}
        # No epoch up to this one is given again: partitions that are gone had them.
        self.spent = 0
        self._top = b""
        with (
            translated(f"read the partitions in {environment.directory}"),
            environment.lmdb.begin(db=environment.meta, buffers=True) as transaction,
            transaction.cursor() as cursor,
        ):
            found = cursor.set_range(PARTITION)
            while found and bytes(cursor.key()[:1]) == PARTITION:
                partition = Partition(ENTRY_KEY.unpack(cursor.key()[1:])[0], "")
                try:
                    partition.decode(cursor.value())
                    self.partitions[partition.name] = partition
                except Corrupt as error:
                    self.damaged[partition.number] = str(error)
                found = cursor.next()
            self._read_dropped(cursor)
        numbers = [partition.number for partition in self.partitions.values()]
        self._number = max([*numbers, *self.dropped, *self.damaged], default=0)

    def _read_dropped(self, cursor: Cursor) -> None:
        if cursor.set_key(_EPOCHS):
            self.spent = _epoch.unpack(cursor.value())[0]
        found = cursor.set_range(DROPPED)
        while found and bytes(cursor.key()[:1]) == DROPPED:
            number = ENTRY_KEY.unpack(cursor.key()[1:])[0]
            self.dropped[number] = Partition(number, str(cursor.value(), "utf-8"))
            found = cursor.next()

    def partition(self, name: str) -> Partition:
        """Find a partition or give it a number; nothing rests before it is opened."""
        partition = self.partitions.get(name)
        if partition is None:
            for problem in self.damaged.values():
                # It may be the one whose name cannot be read: an empty one must not take its place.
                raise Corrupt(f"{name} is not found, and {problem}")
            # Never one that was given before: somebody may still have that partition in hand.
            self._number += 1
            partition = self.partitions[name] = Partition(self._number, name)
        return partition

    def forget(self, partition: Partition) -> None:
        """Take a dropped partition out of sight, once it rests that it was dropped."""
        if partition.dropped and self.partitions.get(partition.name) is partition:
            del self.partitions[partition.name]
            self.dropped[partition.number] = partition

    def commit(self, requests: Sequence[Request]) -> list[int | StoreError]:
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
        self, transaction: Transaction, partition: Partition, first: int, chunk: bytes | bytearray
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

    def save(self, transaction: Transaction, partition: Partition) -> None:
        """Write down what is known of a partition."""
        key = PARTITION + ENTRY_KEY.pack(partition.number)
        transaction.put(key, partition.encoded(), db=self.environment.meta)

    def entry(self, transaction: Transaction, partition: Partition) -> Partition | None:
        """Read what rests of a partition."""
        key = PARTITION + ENTRY_KEY.pack(partition.number)
        raw = transaction.get(key, db=self.environment.meta)
        if raw is None:
            return None
        resting = Partition(partition.number, partition.name)
        resting.decode(raw)
        return resting

    def load(self, transaction: Transaction, partition: Partition) -> None:
        """Read again what is known of a partition, unless it is certain; it must be there."""
        self.refresh(transaction, partition)
        if partition.dropped:
            raise Fenced(f"{partition.name} was dropped")

    def refresh(self, transaction: Transaction, partition: Partition) -> None:
        """Read again what is known of a partition, unless it is certain."""
        if not partition.stale:
            return
        resting = self.entry(transaction, partition)
        if resting is None:
            resting = Partition(partition.number, partition.name)
        else:
            # If it was being dropped, that failed.
            partition.dropped = False
            self._count_tail(transaction, resting)
        partition.epoch = resting.epoch
        partition.replay_from = resting.replay_from
        partition.end = resting.end
        partition.extent = resting.extent
        partition.stale = False

    def _count_tail(self, transaction: Transaction, partition: Partition) -> None:
        """Add the chunks that were written since the entry was."""
        with transaction.cursor(self.environment.values) as cursor:
            found = cursor.set_range(partition.key(partition.end))
            while found and partition.owns(cursor.key()):
                header = partition.header_at(cursor)
                if header.first != partition.end:
                    raise Corrupt(
                        f"{partition.name} goes on at {header.first} where {partition.end} is due"
                    )
                partition.end = header.end
                partition.extent.size += len(cursor.value())
                found = cursor.next()

    def strike(self, transaction: Transaction, partition: Partition) -> None:
        """Write down that a partition is gone, with all its epochs."""
        meta = self.environment.meta
        number = ENTRY_KEY.pack(partition.number)
        self.spent = max(self.spent, partition.epoch)
        transaction.put(_EPOCHS, _epoch.pack(self.spent), db=meta)
        transaction.put(DROPPED + number, partition.name.encode(), db=meta)
        transaction.delete(PARTITION + number, db=meta)

    def sweep(self, transaction: Transaction, partition: Partition, steps: int) -> bool:
        """Delete chunks of a partition that is gone; answers whether there may be more of them."""
        with transaction.cursor(self.environment.values) as cursor:
            while cursor.set_range(partition.key(0)) and partition.owns(cursor.key()):
                if steps == 0:
                    return True
                cursor.delete()
                steps -= 1
        transaction.delete(DROPPED + ENTRY_KEY.pack(partition.number), db=self.environment.meta)
        return False

    def excess(self) -> int:
        """Count the bytes by which all journals together are too big."""
        journals = sum(partition.extent.size for partition in list(self.partitions.values()))
        return journals - self.retention.bytes_max


def is_lasting(error: Exception) -> bool:
    """Tell whether it will go on: the engine gave up, or its file does not answer any more.

    Those that the engine has a name for, like a full disk, pass; errors of the file have none.
    """
    return type(error) is lmdb.Error or isinstance(error, lmdb.PanicError)


@final
class Open:
    """Put an epoch in force."""

    __slots__ = ("epoch", "partition", "size")

    def __init__(self, partition: Partition, epoch: int | None) -> None:
        self.partition: Partition = partition
        self.epoch: int | None = epoch
        self.size: int = BULKY

    def apply(self, ledger: Ledger, transaction: Transaction) -> int:
        """Answers the epoch in force."""
        partition = self.partition
        ledger.load(transaction, partition)
        # One that was never opened has no epoch yet; somebody before it may have had one.
        least = partition.epoch or ledger.spent + 1
        epoch = max(partition.epoch + 1, least) if self.epoch is None else self.epoch
        if epoch < least:
            raise Fenced(f"{partition.name} is owned with epoch {partition.epoch}, not {epoch}")
        if epoch != partition.epoch:
            partition.epoch = epoch
            ledger.save(transaction, partition)
        return epoch


@final
class Append:
    """Add one chunk."""

    __slots__ = ("chunk", "end", "epoch", "first", "partition", "records", "replay_from", "size")

    def __init__(
        self,
        partition: Partition,
        epoch: int,
        first: int,
        end: int,
        chunk: bytes,
        replay_from: int | None,
        records: Sequence[Record] = (),
        size: int = 0,
    ) -> None:
        """Where there are records, the chunk is made of them here; their size is about its own."""
        self.partition: Partition = partition
        self.epoch: int = epoch
        self.first: int = first
        self.end: int = end
        self.chunk: bytes | bytearray = chunk
        self.size: int = size or len(chunk)
        self.replay_from: int | None = replay_from
        self.records: Sequence[Record] = records

    def apply(self, ledger: Ledger, transaction: Transaction) -> int:
        """Answers how many bytes the chunk has."""
        partition = self.partition
        ledger.load(transaction, partition)
        if self.epoch != partition.epoch or self.epoch < 1:
            raise Fenced(
                f"{partition.name} is owned with epoch {partition.epoch}, not {self.epoch}"
            )
        begins = partition.end == 0
        if not begins and self.first != partition.end:
            # An append before this one failed, or this one rests already.
            raise Unavailable(
                f"{partition.name} ends at position {partition.end}: {self.first} does not follow"
            )
        if self.records:
            try:
                self.chunk = encode_large(self.first, self.records)
            except ValueError as error:
                raise Unavailable(f"{partition.name} cannot be written: {error}") from error
            self.records = ()
        ledger.put(transaction, partition, self.first, self.chunk)
        partition.end = self.end
        partition.extent.size += len(self.chunk)
        if begins:
            partition.replay_from = partition.extent.first = self.first
        if self.replay_from is not None:
            partition.replay_from = self.replay_from
        if begins or self.replay_from is not None:
            ledger.save(transaction, partition)
        return len(self.chunk)


@final
class TrimRound:
    """Do a bounded part of a trim; answers 1 when there may be more to do."""

    __slots__ = ("partition", "size", "trim")

    def __init__(self, partition: Partition, trim: Trim) -> None:
        self.partition: Partition = partition
        self.trim: Trim = trim
        self.size: int = BULKY

    def apply(self, ledger: Ledger, transaction: Transaction) -> int:
        """Drop chunks; the journal's new first position is written down with it."""
        partition = self.partition
        ledger.load(transaction, partition)
        self.trim.upto = min(self.trim.upto, partition.replay_from)
        first = partition.extent.first
        with transaction.cursor(ledger.environment.values) as cursor:
            shelf = _Shelf(cursor, partition)
            try:
                more = self.trim.round(shelf, partition.extent, ledger.excess(), TRIM_STEPS)
            finally:
                if partition.extent.first != first:
                    ledger.save(transaction, partition)
        return int(more)


@final
class Drop:
    """Take a partition away from everybody; what it leaves is swept afterwards."""

    __slots__ = ("partition", "size")

    def __init__(self, partition: Partition) -> None:
        self.partition: Partition = partition
        self.size: int = BULKY

    def apply(self, ledger: Ledger, transaction: Transaction) -> int:
        """Answers 1 when there was something to take away."""
        partition = self.partition
        ledger.refresh(transaction, partition)
        if partition.dropped or ledger.entry(transaction, partition) is None:
            return 0
        ledger.strike(transaction, partition)
        partition.dropped = True
        # Whoever still replays it is told.
        partition.epoch = 0
        return 1


@final
class SweepRound:
    """Delete a bounded part of what a dropped partition left; answers 1 when there is more."""

    __slots__ = ("partition", "size")

    def __init__(self, partition: Partition) -> None:
        self.partition: Partition = partition
        self.size: int = BULKY

    def apply(self, ledger: Ledger, transaction: Transaction) -> int:
        """Delete chunks, and the last trace with the last of them."""
        return int(ledger.sweep(transaction, self.partition, TRIM_STEPS))


@final
class _Shelf:
    """A partition's chunks inside a transaction."""

    __slots__ = ("cursor", "partition")

    def __init__(self, cursor: Cursor, partition: Partition) -> None:
        self.cursor: Cursor = cursor
        self.partition: Partition = partition

    def seek(self, position: int) -> Chunk | None:
        cursor = self.cursor
        if not cursor.set_range(self.partition.key(position)):
            return None
        if not self.partition.owns(cursor.key()):
            return None
        header = self.partition.header_at(cursor)
        return Chunk(header.first, header.end, header.at, len(cursor.value()))

    def drop(self, first: int) -> None:
        if self.cursor.set_key(self.partition.key(first)):
            self.cursor.delete()
