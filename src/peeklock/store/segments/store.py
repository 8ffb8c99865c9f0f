"""The segment store: one write and one sync for all that is ready, in files that never grow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Unpack, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.access import AccessOptions, EngineAccess
from peeklock.store.appending import NewChunk
from peeklock.store.backups.snapshot import EnvironmentSnapshot, SegmentSnapshot
from peeklock.store.committers import Committed
from peeklock.store.environment import Environment
from peeklock.store.reader import ChunkReader
from peeklock.store.retention import Retention, Trim
from peeklock.store.segments.disk import Disk, RealDisk
from peeklock.store.segments.files import SEGMENT_BYTES, SPARE_MAX, Segments
from peeklock.store.segments.index import FORMAT, Index, Job
from peeklock.store.segments.keeper import LAG_S, Keeper, only_learn
from peeklock.store.segments.log import Log
from peeklock.store.segments.moving import index_told_of, make_way
from peeklock.store.segments.opening import open_log
from peeklock.store.segments.relocation import Relocation
from peeklock.store.segments.tail import LogAppend, LogDrop, LogMove, LogOpen, Tail
from peeklock.store.segments.walk import walking
from peeklock.store.space import free_space
from peeklock.store.store import (
    Broken,
    Corrupt,
    Fenced,
    JournalPage,
    Opening,
    PartitionId,
    StoreError,
    Unavailable,
)

# The index grows by less than this part of what is written to segments.
_INDEX_SHARE: Final = 4

_LOG: Final = logging.getLogger("peeklock.store")


@final
class SegmentStore:
    """Keeps the records of many partitions in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        make: bool = True,
        retention: Retention | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        lag_s: float = LAG_S,
        disk: Disk | None = None,
        free_space: Callable[[Path], int] = free_space,
        **options: Unpack[AccessOptions],
    ) -> None:
        """Without `make` a directory that holds no store is an error: its disk may be missing."""
        disk = disk or RealDisk()
        make_way(directory, disk, segment_bytes)
        with index_told_of(directory):
            self._environment = Environment(directory, FORMAT, make=make)
        try:
            with index_told_of(directory):
                self._index = Index(self._environment, retention or Retention())
            self._segments = Segments(directory, disk, segment_bytes)
            self._log = Log(self._segments, {}, self._committed)
            open_log(self._index, self._segments, self._log)
        except BaseException:
            self._environment.close()
            raise
        tails = self._log.tails
        # By name, those that can be opened.
        self._tails = {tail.name: tail for tail in tails.values() if not tail.dropped}
        self._number = max([*tails, self._index.last_number])
        kept_bytes = (1 + SPARE_MAX) * segment_bytes
        self._relocation = Relocation(self._index, self._segments, kept_bytes)
        self._relocating = asyncio.Lock()
        self._free_space = free_space
        reader = ChunkReader(partial(walking, self._index, self._segments))
        self._access = EngineAccess(
            self._environment, reader, self._log.commit, self._left, options
        )
        self._short_bytes = max(self._access.reserve_bytes, 2 * segment_bytes)
        self._keeper = Keeper(
            self._log, self._index, self._segments, directory.name, lag_s, self._is_short
        )
        self._keeper.start()

    @property
    def full(self) -> bool:
        """Whether sends are to be refused, so that settlements and trim keep room."""
        # What the index has to learn later is kept in memory: there must be an end to it.
        return self._access.is_full or self._keeper.is_behind

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Fence older owners durably, then give the records from the last checkpoint on."""
        self._access.check_open()
        tail = self._tail(partition.key)
        in_force = await self._access.submit(LogOpen(tail, epoch))
        return self._access.opening(tail, in_force)

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Committed:
        """Hand the records over at once; they rest when the answer comes."""
        tail = self._tails.get(partition.key)
        if tail is None:
            raise Fenced(f"{partition.key} was never opened")
        chunk = NewChunk(epoch, first_position, records, replay_from)
        return self._access.submit(LogAppend(tail, chunk))

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions, in the order asked."""
        self._access.check_open()
        tail = self._tails.get(partition.key)
        if tail is None:
            raise Corrupt(f"{partition.key} is not known here")
        return await self._access.payloads(tail, positions)

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Copy raw chunks from position `after` on, at least one if there is any."""
        self._access.check_open()
        tail = self._tails.get(partition.key)
        return await self._access.journal(tail, after, limit_bytes)

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Drop whole chunks that neither retention nor a live body asks for.

        It is done in rounds of bounded work. Then whatever pins a segment is moved.
        """
        await self._sweep()
        tail = self._tails.get(partition.key)
        if tail is None:
            return 0
        index = self._index
        trim = Trim(upto, frozenset(keep_blocks), now, index.retention, len(self._tails))
        while await self._ask(partial(index.trim_round, tail.number, trim)):
            pass
        try:
            await self._relocate()
        except StoreError as error:
            # The journal was trimmed all the same; the next trim tries again.
            _LOG.warning("store-relocation-failed error=%r", str(error))
        kept = index.partitions.get(tail.number)
        return 0 if kept is None else kept.extent.first

    async def drop(self, partition: PartitionId) -> None:
        """Remove all of a partition: at once for everybody who asks, by and by from the disk."""
        self._access.check_open()
        tail = self._tails.get(partition.key)
        if tail is not None:
            await self._access.submit(LogDrop(tail))
            if tail.dropped and self._tails.get(tail.name) is tail:
                del self._tails[tail.name]
        try:
            await self._sweep()
        except Broken:
            raise
        except Unavailable as error:
            # It is gone all the same; the next trim or drop sweeps.
            _LOG.warning("store-sweep-failed error=%r", str(error))

    def snapshot(self) -> SegmentSnapshot:
        """Hold what rests now: files stay as they are, and the index and an end are noted.

        In this order: what the index knows lies in segments that are in use before or after, and
        before the end.
        """
        self._access.check_open()
        release = self._segments.pin()
        try:
            before = self._segments.in_use()
            index = EnvironmentSnapshot(self._environment)
        except BaseException:
            release()
            raise
        end = self._log.end
        return SegmentSnapshot(index, before | self._segments.in_use(), end, release)

    async def close(self) -> None:
        """Commit what was handed over, then let the directory go."""
        if not self._access.is_closed:
            self._access.is_closed = True
            async with self._relocating:
                await self._access.finish()
            await self._keeper.finish()
            await self._environment.all_let_go()
            self._log.close()
            self._segments.close()
            self._environment.close()

    def _tail(self, name: str) -> Tail:
        """Find a partition or give it a number; nothing rests before it is opened."""
        tail = self._tails.get(name)
        if tail is None:
            self._index.table.refuse_damaged(name)
            # Never one that was given before: somebody may still have that partition in hand.
            self._number += 1
            tail = self._tails[name] = self._log.tails[self._number] = Tail(self._number, name)
        return tail

    async def _sweep(self) -> None:
        """Forget what dropped partitions left, here or before a crash."""
        # The index may only learn now which were dropped.
        await self._ask(only_learn)
        for number in list(self._index.table.dropped):
            while await self._ask(partial(self._index.sweep_round, number)):
                pass

    async def _relocate(self) -> None:
        """Move what pins segments, as long as they take too much."""
        if self._relocating.locked():
            return
        async with self._relocating:
            try:
                while not self._access.is_closed and self._relocation.is_due:
                    parts = await self._access.beside(self._relocation.next)
                    if parts is None:
                        break
                    if parts:
                        await self._access.submit(LogMove(parts))
                        # The segment is free when the index knows of it.
                        await self._ask(only_learn)
            except BaseException:
                self._relocation.start_over()
                raise

    def _ask(self, job: Job) -> Committed:
        self._access.check_open()
        return self._keeper.submit(job)

    def _committed(self) -> None:
        self._keeper.wake()

    def _left(self) -> int:
        """Count what can be written, to segments and to the index beside them.

        The index takes a part of what they take, and finds no room in them.
        """
        free = self._free_space(self._environment.directory)
        inside = self._log.left_bytes + self._segments.spare_bytes
        return min(free + inside, _INDEX_SHARE * (free + self._environment.slack()))

    def _is_short(self) -> bool:
        try:
            return self._free_space(self._environment.directory) < self._short_bytes
        except OSError:
            return False
