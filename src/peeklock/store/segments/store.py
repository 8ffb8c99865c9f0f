"""The segment store: one write and one sync for all that is ready, in files that never grow.

Appends are encoded on the caller's thread, unless they are large; `committers` says where they are
committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, cast, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record, width
from peeklock.step import LARGE_BYTES, STEP
from peeklock.store.committers import COMMITTERS, Answer, Committer, Waiting
from peeklock.store.embedded import ENCODED_AT_ONCE, POSITIONS_AT_ONCE, RESERVE_BYTES, SHORT
from peeklock.store.environment import Environment
from peeklock.store.figures import StoreFigures
from peeklock.store.ledger import Transaction
from peeklock.store.reading import Reading, timed
from peeklock.store.records import bodies_size, encode_chunk
from peeklock.store.retention import Retention, Trim
from peeklock.store.segments.disk import Disk, RealDisk
from peeklock.store.segments.files import SEGMENT_BYTES, SPARE_MAX, Segments
from peeklock.store.segments.index import FORMAT, Index, Job
from peeklock.store.segments.keeper import LAG_S, Keeper
from peeklock.store.segments.log import Log
from peeklock.store.segments.moving import make_way
from peeklock.store.segments.opening import open_log
from peeklock.store.segments.reader import Reader
from peeklock.store.segments.relocation import Relocation
from peeklock.store.segments.tail import Append, Drop, Move, Open, Request, Tail
from peeklock.store.space import Space, free_space
from peeklock.store.store import (
    Broken,
    Corrupt,
    Fenced,
    JournalPage,
    Opening,
    PartitionId,
    Replay,
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
        commit: Literal["adaptive", "thread", "inline"] = "adaptive",
        off_loop: bool = False,
        reserve_bytes: int = RESERVE_BYTES,
        commit_delay_s: float = 0.0,
        figures: StoreFigures | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        lag_s: float = LAG_S,
        disk: Disk | None = None,
        free_space: Callable[[Path], int] = free_space,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `make` a directory that holds no store is an error: its disk may be missing.

        With `off_loop` nothing on the event loop ever waits for this disk: it is one of several.
        """
        disk = disk or RealDisk()
        make_way(directory, disk, segment_bytes)
        self._environment = Environment(directory, FORMAT, make=make)
        try:
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
        self._number = max([*tails, *self._index.dropped, *self._index.damaged], default=0)
        self._reader = Reader(self._index, self._segments)
        kept_bytes = (1 + SPARE_MAX) * segment_bytes
        self._relocation = Relocation(self._index, self._segments, kept_bytes)
        self._relocating = asyncio.Lock()
        self._free_space = free_space
        self._figures = StoreFigures() if figures is None else figures
        self._figures.reserve_bytes = reserve_bytes
        self._space = Space(reserve_bytes, self._left, clock)
        self._look: asyncio.Task[bool] | None = None
        self._closed = False
        self._commit_delay_s = commit_delay_s
        self._off_loop = off_loop
        self._reading = Reading(directory.name, off_loop=off_loop)
        self._short_bytes = max(reserve_bytes, 2 * segment_bytes)
        self._keeper = Keeper(
            self._log, self._index, self._segments, directory.name, lag_s, self._is_short
        )
        self._keeper.start()
        where = "thread" if off_loop else commit
        self._committer: Committer = COMMITTERS[where](self._commit, directory.name)

    @property
    def full(self) -> bool:
        """Whether sends are to be refused, so that settlements and trim keep room."""
        if self._off_loop:
            is_full = self._space.last
            if self._space.is_due:
                self._look_soon()
        else:
            is_full = self._space.full
        self._figures.free_bytes = self._space.left_bytes
        # What the index has to learn later is kept in memory: there must be an end to it.
        return is_full or self._keeper.is_behind

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Fence older owners durably, then give the records from the last checkpoint on."""
        self._check_open()
        tail = self._tail(partition.key)
        in_force = await self._submit(Open(tail, epoch))
        return Opening(in_force, self._replay(tail, in_force, tail.replay_from, tail.end))

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Answer:
        """Hand the records over at once; they rest when the answer comes."""
        tail = self._tails.get(partition.key)
        if tail is None:
            raise Fenced(f"{partition.key} was never opened")
        end = first_position
        for record in records:
            end += width(record)
        size = bodies_size(records)
        if size > ENCODED_AT_ONCE or end - first_position > POSITIONS_AT_ONCE:
            late = Append(tail, epoch, first_position, end, b"", replay_from, records, size)
            return self._submit(late)
        chunk = encode_chunk(first_position, records)
        return self._submit(Append(tail, epoch, first_position, end, chunk, replay_from))

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions, in the order asked."""
        self._check_open()
        tail = self._tails.get(partition.key)
        if tail is None:
            raise Corrupt(f"{partition.key} is not known here")
        if not positions:
            return []
        reading = self._reading
        read = partial(timed, partial(self._reader.payloads, tail, positions))
        is_inline = reading.is_inline(len(positions))
        found, took_s = read() if is_inline else await reading.run(read)
        self._figures.reads.note(took_s)
        size = sum([message.size for message in found])
        reading.found(len(found), size, took_s)
        if is_inline and size > LARGE_BYTES:
            STEP.works_on(size, max([message.size for message in found]))
        return found

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Copy raw chunks from position `after` on, at least one if there is any."""
        self._check_open()
        tail = self._tails.get(partition.key)
        if tail is None:
            return JournalPage(0, 0, [])
        return await self._reading.run(partial(self._reader.journal, tail, after, limit_bytes))

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
        self._check_open()
        tail = self._tails.get(partition.key)
        if tail is not None:
            await self._submit(Drop(tail))
            if tail.dropped and self._tails.get(tail.name) is tail:
                del self._tails[tail.name]
        try:
            await self._sweep()
        except Broken:
            raise
        except Unavailable as error:
            # It is gone all the same; the next trim or drop sweeps.
            _LOG.warning("store-sweep-failed error=%r", str(error))

    async def close(self) -> None:
        """Commit what was handed over, then let the directory go."""
        if not self._closed:
            self._closed = True
            async with self._relocating:
                await self._committer.finish()
            await self._reading.finish()
            await self._keeper.finish()
            self._log.close()
            self._segments.close()
            self._environment.close()

    def _tail(self, name: str) -> Tail:
        """Find a partition or give it a number; nothing rests before it is opened."""
        tail = self._tails.get(name)
        if tail is None:
            for problem in self._index.damaged.values():
                # It may be the one whose name cannot be read: an empty one must not take its place.
                raise Corrupt(f"{name} is not found, and {problem}")
            # Never one that was given before: somebody may still have that partition in hand.
            self._number += 1
            tail = self._tails[name] = self._log.tails[self._number] = Tail(self._number, name)
        return tail

    async def _sweep(self) -> None:
        """Forget what dropped partitions left, here or before a crash."""
        # The index may only learn now which were dropped.
        await self._ask(_nothing)
        for number in list(self._index.dropped):
            while await self._ask(partial(self._index.sweep_round, number)):
                pass

    async def _relocate(self) -> None:
        """Move what pins segments, as long as they take too much."""
        if self._relocating.locked():
            return
        async with self._relocating:
            try:
                while not self._closed and self._relocation.is_due:
                    parts = await self._reading.run(self._relocation.next)
                    if parts is None:
                        break
                    if parts:
                        await self._submit(Move(parts))
                        # The segment is free when the index knows of it.
                        await self._ask(_nothing)
            except BaseException:
                self._relocation.start_over()
                raise

    def _look_soon(self) -> None:
        """Look for the room that is left beside the loop: even that can hang with a disk."""
        if self._look is None or self._look.done():
            look = self._reading.run(lambda: self._space.full)
            self._look = asyncio.get_running_loop().create_task(look)

    def _ask(self, job: Job) -> Answer:
        self._check_open()
        return self._keeper.submit(job)

    def _submit(self, request: Request) -> Answer:
        self._check_open()
        answer: Answer = asyncio.get_running_loop().create_future()
        self._committer.submit((request, answer))
        return answer

    def _commit(self, batch: list[Waiting]) -> list[int | StoreError]:
        if not self._environment.is_in_place():
            # The log would go on in files that nobody will ever find again.
            where = self._environment.directory
            return [Broken(f"the files of the store in {where} are gone") for _ in batch]
        begun = time.perf_counter()
        requests = [cast(Request, request) for request, _ in batch]
        results = self._log.commit(requests)
        if self._commit_delay_s:
            time.sleep(self._commit_delay_s)  # the disk that a benchmark wants to see
        size = sum([len(each.chunk) for each in requests if isinstance(each, Append)])
        self._figures.commits.note(time.perf_counter() - begun)
        self._figures.commit_bytes.note(size)
        self._space.wrote(size)
        return results

    def _committed(self) -> None:
        self._keeper.wake()

    async def _replay(
        self, tail: Tail, epoch: int, position: int, end: int
    ) -> AsyncIterator[Replay]:
        while position < end:
            self._check_open()
            if tail.epoch != epoch:
                raise Fenced(f"epoch {epoch} of {tail.name} ended during its replay")
            read = partial(self._reader.replay, tail, position)
            is_short = end - position <= SHORT and not self._off_loop
            replay, position = read() if is_short else await self._reading.run(read)
            if replay is not None:
                yield replay
            await asyncio.sleep(0)

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

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"the store in {self._environment.directory} is closed")


def _nothing(_transaction: Transaction) -> int:
    """Only learn what was committed."""
    return 0
