"""A store of LMDB alone: a directory of its own, one durable transaction for all that is ready."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Unpack, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.access import AccessOptions, EngineAccess
from peeklock.store.appending import NewChunk
from peeklock.store.backups.snapshot import EnvironmentSnapshot
from peeklock.store.committers import Committed
from peeklock.store.entries import PartitionEntry
from peeklock.store.environment import Environment
from peeklock.store.lmdb.walk import walking
from peeklock.store.lmdb.writer import (
    LmdbAppend,
    LmdbDrop,
    LmdbOpen,
    LmdbSweep,
    LmdbTrim,
    LmdbWriter,
)
from peeklock.store.reader import ChunkReader
from peeklock.store.retention import Retention, Trim
from peeklock.store.space import free_space
from peeklock.store.store import Corrupt, Fenced, JournalPage, Opening, PartitionId

FORMAT: Final = "peeklock store 1"


@final
class LmdbStore:
    """Keeps the records of many partitions in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        make: bool = True,
        retention: Retention | None = None,
        map_size: int | None = None,
        free_space: Callable[[Path], int] = free_space,
        **options: Unpack[AccessOptions],
    ) -> None:
        """Without `make` a directory that holds no store is an error: its disk may be missing."""
        self._environment = Environment(directory, FORMAT, map_size, make=make)
        try:
            self._writer = LmdbWriter(self._environment, retention or Retention())
        except BaseException:
            self._environment.close()
            raise
        self._free_space = free_space
        reader = ChunkReader(partial(walking, self._writer))
        self._access = EngineAccess(
            self._environment, reader, self._writer.commit, self._left, options
        )

    @property
    def full(self) -> bool:
        """Whether sends are to be refused, so that settlements and trim keep room."""
        return self._access.is_full

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Fence older owners durably, then give the records from the last checkpoint on."""
        kept = self._writer.partition(partition.key)
        in_force = await self._access.submit(LmdbOpen(kept, epoch))
        return self._access.opening(kept, in_force)

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Committed:
        """Hand the records over at once; they rest when the answer comes."""
        kept = self._writer.partitions.get(partition.key)
        if kept is None:
            raise Fenced(f"{partition.key} was never opened")
        chunk = NewChunk(epoch, first_position, records, replay_from)
        return self._access.submit(LmdbAppend(kept, chunk))

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions, in the order asked."""
        self._access.check_open()
        kept = self._writer.partitions.get(partition.key)
        if kept is None:
            raise Corrupt(f"{partition.key} is not known here")
        return await self._access.payloads(kept, positions)

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Copy raw chunks from position `after` on, at least one if there is any."""
        self._access.check_open()
        kept = self._writer.partitions.get(partition.key)
        return await self._access.journal(kept, after, limit_bytes)

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Drop whole chunks that neither retention nor a live body asks for.

        It is done in rounds of bounded work, each in a commit that others may share.
        """
        await self._sweep()
        kept = self._writer.partitions.get(partition.key)
        if kept is None:
            return 0
        partitions = len(self._writer.partitions)
        trim = Trim(upto, frozenset(keep_blocks), now, self._writer.retention, partitions)
        while await self._access.submit(LmdbTrim(kept, trim)):
            pass
        return kept.extent.first

    async def drop(self, partition: PartitionId) -> None:
        """Remove all of a partition: at once for everybody who asks, in slices from the disk."""
        self._access.check_open()
        kept = self._writer.partitions.get(partition.key)
        if kept is not None:
            await self._access.submit(LmdbDrop(kept))
            self._writer.forget(kept)
        await self._sweep()

    def snapshot(self) -> EnvironmentSnapshot:
        """Hold what rests now."""
        self._access.check_open()
        return EnvironmentSnapshot(self._environment)

    async def close(self) -> None:
        """Commit what was handed over, then let the directory go."""
        if not self._access.is_closed:
            self._access.is_closed = True
            await self._access.finish()
            await self._environment.all_let_go()
            self._environment.close()

    async def _sweep(self) -> None:
        """Delete what dropped partitions left, here or before a crash."""
        dropped = self._writer.table.dropped
        for number, name in list(dropped.items()):
            while await self._access.submit(LmdbSweep(PartitionEntry(number, name))):
                pass
            dropped.pop(number, None)

    def _left(self) -> int:
        # Of the pages inside the file only half are counted: big chunks need pages in a row.
        inside = self._environment.slack() // 2
        grows = min(self._free_space(self._environment.directory), self._environment.room())
        return grows + inside
