"""Where chunks lie: LMDB, beside the log and behind it.

    meta     the table of partitions (`entries.py`), and
             "s" + use -> what lives in a segment;  "applied" -> up to where the log is known here
             "numbers" -> the highest number that a partition ever had
    values   (number, first position) -> place of the chunk

One transaction takes over what the log has written since the last one, and does a part of a trim or
of a sweep. So an opening finds the state of one moment of the log, and goes through what was
written behind that. A segment is let go when a transaction rests in which nothing of it lives.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from peeklock.store.checksum import crc32
from peeklock.store.entries import (
    CHUNK_KEY,
    TRIM_STEPS,
    LmdbCursor,
    LmdbTransaction,
    PartitionEntry,
    PartitionTable,
)
from peeklock.store.environment import Environment
from peeklock.store.retention import Chunk, Retention, Trim
from peeklock.store.segments import frames
from peeklock.store.segments.files import Segment
from peeklock.store.segments.frames import FramePart
from peeklock.store.segments.log import LogCommit
from peeklock.store.segments.tail import ChunkPlace, Tail
from peeklock.store.store import Corrupt, StoreError

FORMAT: Final = "peeklock store 2"

Job: TypeAlias = Callable[[LmdbTransaction], int]
"""Something to be done in a transaction; a StoreError refuses this job alone."""

APPLIED: Final = b"applied"
_NUMBERS: Final = b"numbers"
SEGMENT: Final = b"s"

# A chunk takes so much beside its own bytes, about: its part, its share of a frame.
OVERHEAD: Final = 96

SEGMENT_KEY: Final = struct.Struct(">Q")
# use, offset, end, instant, bytes
_place: Final = struct.Struct(">QQQqQ")
# salt, number of the file, chunks, their bytes
_living: Final = struct.Struct(">QQQQ")
_applied: Final = struct.Struct(">QQ")
_number: Final = struct.Struct(">Q")
_crc: Final = struct.Struct(">I")


@final
class Living:
    """What lives in one use of a segment, and which file that is."""

    def __init__(self, salt: int, file: int, chunks: int = 0, size: int = 0) -> None:
        self.salt: int = salt
        self.file: int = file
        self.chunks: int = chunks
        self.size: int = size


@final
class Index:
    """What one transaction after another has learned; one thread alone changes it."""

    def __init__(self, environment: Environment, retention: Retention) -> None:
        self.environment = environment
        self.retention = retention
        self.living: dict[int, Living] = {}
        self.use = 0
        self.offset = 0
        self.load()

    def load(self) -> None:
        """Read all that rests; what a transaction that failed has changed is forgotten."""
        self.table = PartitionTable(self.environment)
        self.partitions = self.table.entries
        self.living = {}
        self.use = self.offset = 0
        # What partitions that are gone have left in segments must never pass for another's.
        self.last_number = self.table.last_number
        self._changed: set[int] = set()
        self._changed_uses: set[int] = set()
        for key, value in self.table.others.items():
            if key == APPLIED:
                self.use, self.offset = decode_applied(memoryview(value))
            elif key == _NUMBERS:
                self.last_number = max(self.last_number, _number.unpack(value)[0])
            elif key[:1] == SEGMENT:
                number = SEGMENT_KEY.unpack(key[1:])[0]
                self.living[number] = decode_living(memoryview(value))
        # Bytes of all journals together.
        self._journals = sum([each.extent.size for each in self.partitions.values()])

    # ---- changing

    def work(
        self,
        commits: Sequence[LogCommit],
        segments: dict[int, Segment],
        tails: dict[int, Tail],
        jobs: Sequence[Job],
    ) -> tuple[list[int | StoreError], list[int]]:
        """Take over commits and do jobs, durably and at once.

        Answers the jobs' results, and the uses in which nothing lives any more.
        """
        results: list[int | StoreError] = []
        with self.environment.lmdb.begin(write=True, buffers=True) as transaction:
            for commit in commits:
                self._apply(transaction, commit, segments, tails)
            for job in jobs:
                try:
                    results.append(job(transaction))
                except StoreError as refused:
                    results.append(refused)
            empty = self._save(transaction)
        for number in empty:
            del self.living[number]
        return results, empty

    def take_over(self, table: PartitionTable) -> None:
        """Begin with what another engine knew of partitions."""
        with self.environment.lmdb.begin(write=True, buffers=True) as transaction:
            self.table.take_over(transaction, table)
        self.load()

    def learn(self, commits: Sequence[LogCommit], segments: dict[int, Segment]) -> None:
        """Take the chunks of commits that nobody has known before."""
        with self.environment.lmdb.begin(write=True, buffers=True) as transaction:
            for commit in commits:
                self._know(commit.use, segments)
                for part in commit.parts:
                    self._put(transaction, commit.use, part)
                self.use, self.offset = commit.use, commit.end
            self._save(transaction)

    def _apply(
        self,
        transaction: LmdbTransaction,
        commit: LogCommit,
        segments: dict[int, Segment],
        tails: dict[int, Tail],
    ) -> None:
        self._know(commit.use, segments)
        for part in commit.parts:
            if part.kind == frames.APPENDED:
                self._append(transaction, commit.use, part)
            elif part.kind == frames.MOVED:
                self._move(transaction, commit.use, part)
            elif part.kind == frames.OPENED:
                self._open(part, tails)
            elif part.kind == frames.DROPPED:
                self._drop(transaction, part)
        self.use, self.offset = commit.use, commit.end

    def _know(self, use: int, segments: dict[int, Segment]) -> None:
        if use not in self.living:
            segment = segments[use]
            assert segment.use is not None
            self.living[use] = Living(segment.use.salt, segment.number)
            self._changed_uses.add(use)

    def _append(self, transaction: LmdbTransaction, use: int, part: FramePart) -> None:
        partition = self.partitions.get(part.number)
        if partition is None:
            return  # it was dropped in the same breath
        if partition.end == 0:
            partition.replay_from = partition.extent.first = part.first
        elif part.first != partition.end:
            raise Corrupt(f"{partition.name} goes on at {part.first} where {partition.end} is due")
        if part.value:
            partition.replay_from = part.value - 1
        partition.end = part.end
        partition.extent.size += part.size
        self._journals += part.size
        self._changed.add(part.number)
        self._put(transaction, use, part)

    def _move(self, transaction: LmdbTransaction, use: int, part: FramePart) -> None:
        raw = transaction.get(CHUNK_KEY.pack(part.number, part.first), db=self.environment.values)
        if raw is not None:
            self._leave(decode_place(part.first, raw))
            self._put(transaction, use, part)

    def _put(self, transaction: LmdbTransaction, use: int, part: FramePart) -> None:
        place = ChunkPlace(part.first, part.end, part.at, use, part.offset, part.size)
        key = CHUNK_KEY.pack(part.number, part.first)
        transaction.put(key, encode_place(place), db=self.environment.values)
        living = self.living[use]
        living.chunks += 1
        living.size += part.size + OVERHEAD
        self._changed_uses.add(use)

    def _leave(self, place: ChunkPlace) -> None:
        living = self.living.get(place.use)
        if living is not None:
            living.chunks -= 1
            living.size -= place.size + OVERHEAD
            self._changed_uses.add(place.use)

    def _open(self, part: FramePart, tails: dict[int, Tail]) -> None:
        partition = self.partitions.get(part.number)
        if partition is None:
            partition = PartitionEntry(part.number, tails[part.number].name)
            self.partitions[part.number] = partition
            self.last_number = max(self.last_number, part.number)
        partition.epoch = part.value
        self._changed.add(part.number)

    def _drop(self, transaction: LmdbTransaction, part: FramePart) -> None:
        partition = self.partitions.pop(part.number, None)
        if partition is None:
            return
        self._changed.discard(part.number)
        self._journals -= partition.extent.size
        self.table.dropped[part.number] = partition.name
        self.table.strike(transaction, partition, part.value)

    def _save(self, transaction: LmdbTransaction) -> list[int]:
        meta = self.environment.meta
        for number in self._changed:
            self.table.save(transaction, self.partitions[number])
        self._changed = set()
        # The one being written may get more at any time.
        empty = [n for n, living in self.living.items() if not living.chunks and n < self.use]
        for number in self._changed_uses:
            living = self.living[number]
            raw = _living.pack(living.salt, living.file, living.chunks, living.size)
            transaction.put(SEGMENT + SEGMENT_KEY.pack(number), sealed(raw), db=meta)
        self._changed_uses = set()
        for number in empty:
            transaction.delete(SEGMENT + SEGMENT_KEY.pack(number), db=meta)
        transaction.put(_NUMBERS, _number.pack(self.last_number), db=meta)
        transaction.put(APPLIED, sealed(_applied.pack(self.use, self.offset)), db=meta)
        return empty

    # ---- jobs

    def trim_round(self, number: int, trim: Trim, transaction: LmdbTransaction) -> int:
        """Do a bounded part of a trim; answers 1 when there may be more to do."""
        partition = self.partitions.get(number)
        if partition is None:
            return 0
        trim.upto = min(trim.upto, partition.replay_from)
        first, size = partition.extent.first, partition.extent.size
        excess = self._journals - self.retention.bytes_max
        with transaction.cursor(self.environment.values) as cursor:
            shelf = _PlaceShelf(cursor, partition, self._leave)
            try:
                more = trim.round(shelf, partition.extent, excess, TRIM_STEPS)
            finally:
                self._journals += partition.extent.size - size
                if partition.extent.first != first:
                    self._changed.add(number)
        return int(more)

    def sweep_round(self, number: int, transaction: LmdbTransaction) -> int:
        """Forget some chunks of a dropped partition; answers 1 when there may be more of them."""
        dropped = self.table.dropped
        if number not in dropped:
            return 0
        gone = PartitionEntry(number, dropped[number])
        steps = TRIM_STEPS
        with transaction.cursor(self.environment.values) as cursor:
            while cursor.set_range(gone.key(0)) and gone.owns(cursor.key()):
                if steps == 0:
                    return 1
                self._leave(place_at(cursor))
                cursor.delete()
                steps -= 1
        self.table.forget(transaction, number)
        del dropped[number]
        return 0

    @property
    def living_bytes(self) -> int:
        """How much lives in all segments."""
        return sum([living.size for living in list(self.living.values())])


def encode_place(place: ChunkPlace) -> bytes:
    """Return a place as it rests."""
    return sealed(_place.pack(place.use, place.offset, place.end, place.at, place.size))


def decode_place(first: int, raw: memoryview) -> ChunkPlace:
    """Read where the chunk lies that begins at a position."""
    use, offset, end, at, size = _place.unpack(checked(raw, f"the place of position {first}"))
    return ChunkPlace(first, end, at, use, offset, size)


def decode_living(raw: memoryview) -> Living:
    """Read what lives in a segment."""
    return Living(*_living.unpack(checked(raw, "what lives in a segment")))


def decode_applied(raw: memoryview) -> tuple[int, int]:
    """Read up to where the index knows the log: a use, an offset in it."""
    use, offset = _applied.unpack(checked(raw, "where the index ends"))
    return use, offset


def place_at(cursor: LmdbCursor) -> ChunkPlace:
    """Read the place under a cursor."""
    return decode_place(CHUNK_KEY.unpack(cursor.key())[1], cursor.value())


def sealed(raw: bytes) -> bytes:
    """Put a checksum behind a value: the engine has none."""
    return raw + _crc.pack(crc32(raw))


def checked(value: memoryview, what: str) -> memoryview:
    """Take the checksum off a value again."""
    raw = value[: -_crc.size]
    if len(value) < _crc.size or crc32(raw) != _crc.unpack(value[-_crc.size :])[0]:
        raise Corrupt(f"{what} does not fit its checksum")
    return raw


@final
class _PlaceShelf:
    """A partition's chunks inside a transaction."""

    def __init__(
        self, cursor: LmdbCursor, partition: PartitionEntry, leave: Callable[[ChunkPlace], None]
    ) -> None:
        self.cursor: LmdbCursor = cursor
        self.partition: PartitionEntry = partition
        self.leave: Callable[[ChunkPlace], None] = leave

    def seek(self, position: int) -> Chunk | None:
        cursor = self.cursor
        if not cursor.set_range(self.partition.key(position)):
            return None
        if not self.partition.owns(cursor.key()):
            return None
        place = place_at(cursor)
        return Chunk(place.first, place.end, place.at, place.size)

    def drop(self, first: int) -> None:
        if self.cursor.set_key(self.partition.key(first)):
            self.leave(place_at(self.cursor))
            self.cursor.delete()
