"""The table of partitions in LMDB, as both engines keep it.

    meta     "format" -> its name;  "p" + number -> what is known of a partition
             "d" + number -> the name of a partition that was dropped and still has chunks
             "epochs" -> the highest epoch that a dropped partition had
    values   (number, first position) -> a chunk, or the place of one

A partition's number is given once.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias, final

import lmdb

from peeklock.store.checksum import crc32
from peeklock.store.environment import Environment, translated
from peeklock.store.retention import Extent
from peeklock.store.store import Corrupt

LmdbTransaction: TypeAlias = "lmdb.Transaction[memoryview]"
LmdbCursor: TypeAlias = "lmdb.Cursor[memoryview]"

# How many chunks one transaction looks at for a trim or a drop, at most: commits wait that long.
TRIM_STEPS: Final = 256

# The key of a chunk, and of what is known of a partition, behind its first letter.
CHUNK_KEY: Final = struct.Struct(">IQ")
ENTRY_KEY: Final = struct.Struct(">I")
PARTITION: Final = b"p"
DROPPED: Final = b"d"
EPOCHS: Final = b"epochs"

# epoch, start of replay, first position of the journal, its bytes, end at the time of writing
_entry: Final = struct.Struct(">QQQQQ")
_crc: Final = struct.Struct(">I")
_epoch: Final = struct.Struct(">Q")


@final
class PartitionEntry:
    """What the store knows of a partition; the writing thread alone changes it."""

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
        """Return the key of a chunk that begins there."""
        return CHUNK_KEY.pack(self.number, position)

    def owns(self, key: memoryview) -> bool:
        """Return whether the key names a chunk of this partition."""
        return bool(ENTRY_KEY.unpack_from(key)[0] == self.number)

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


@final
class PartitionTable:
    """All partitions by their numbers: those that are there, dropped, or not to be read."""

    def __init__(self, environment: Environment) -> None:
        self._meta = environment.meta
        self.entries: dict[int, PartitionEntry] = {}
        # The names of those that were dropped and may still have chunks.
        self.dropped: dict[int, str] = {}
        # Why the names of others cannot be read.
        self.damaged: dict[int, str] = {}
        # No epoch up to this one is given again: partitions that are gone had them.
        self.spent = 0
        # What else stands in `meta`.
        self.others: dict[bytes, bytes] = {}
        with (
            translated(f"read the partitions in {environment.directory}"),
            environment.lmdb.begin(db=environment.meta, buffers=True) as transaction,
            transaction.cursor() as cursor,
        ):
            for key, value in cursor:
                self._read(bytes(key), value)

    def _read(self, key: bytes, value: memoryview) -> None:
        if key == EPOCHS:
            self.spent = decode_epoch(value)
        elif key[:1] == DROPPED:
            self.dropped[ENTRY_KEY.unpack(key[1:])[0]] = str(value, "utf-8")
        elif key[:1] == PARTITION:
            entry = PartitionEntry(ENTRY_KEY.unpack(key[1:])[0], "")
            try:
                entry.decode(value)
                self.entries[entry.number] = entry
            except Corrupt as error:
                self.damaged[entry.number] = str(error)
        else:
            self.others[key] = bytes(value)

    @property
    def last_number(self) -> int:
        """The highest number that is known to have been given."""
        return max([*self.entries, *self.dropped, *self.damaged], default=0)

    def refuse_damaged(self, name: str) -> None:
        """Raise Corrupt where a partition that is not found may be one that cannot be read: an
        empty one must not take its place."""
        for problem in self.damaged.values():
            raise Corrupt(f"{name} is not found, and {problem}")

    def save(self, transaction: LmdbTransaction, entry: PartitionEntry) -> None:
        """Write down what is known of a partition."""
        key = PARTITION + ENTRY_KEY.pack(entry.number)
        transaction.put(key, entry.encoded(), db=self._meta)

    def entry(self, transaction: LmdbTransaction, number: int) -> PartitionEntry | None:
        """Read what rests of a partition."""
        raw = transaction.get(PARTITION + ENTRY_KEY.pack(number), db=self._meta)
        if raw is None:
            return None
        resting = PartitionEntry(number, "")
        resting.decode(raw)
        return resting

    def strike(self, transaction: LmdbTransaction, entry: PartitionEntry, epoch: int) -> None:
        """Write down that a partition is gone, with all its epochs."""
        number = ENTRY_KEY.pack(entry.number)
        self.spent = max(self.spent, epoch)
        transaction.put(EPOCHS, encode_epoch(self.spent), db=self._meta)
        transaction.put(DROPPED + number, entry.name.encode(), db=self._meta)
        transaction.delete(PARTITION + number, db=self._meta)

    def forget(self, transaction: LmdbTransaction, number: int) -> None:
        """Nothing of a dropped partition is left."""
        transaction.delete(DROPPED + ENTRY_KEY.pack(number), db=self._meta)

    def take_over(self, transaction: LmdbTransaction, other: PartitionTable) -> None:
        """Write down all living partitions of another table."""
        for entry in other.entries.values():
            self.save(transaction, entry)
        transaction.put(EPOCHS, encode_epoch(other.spent), db=self._meta)


def encode_epoch(epoch: int) -> bytes:
    """Return an epoch as it rests."""
    return _epoch.pack(epoch)


def decode_epoch(raw: bytes | memoryview) -> int:
    """Read an epoch."""
    epoch: int = _epoch.unpack(raw)[0]
    return epoch
