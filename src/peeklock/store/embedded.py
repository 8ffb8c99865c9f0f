"""The embedded store: LMDB in a directory of its own, one durable commit for all that is ready.

Appends are encoded on the caller's thread, unless they are large; `committers` says where they are
committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal, cast, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record, width
from peeklock.step import LARGE_BYTES, STEP
from peeklock.store.committers import COMMITTERS, Answer, Committer, Waiting
from peeklock.store.environment import Environment
from peeklock.store.figures import StoreFigures
from peeklock.store.ledger import (
    Append,
    Drop,
    Ledger,
    Open,
    Partition,
    Request,
    SweepRound,
    TrimRound,
)
from peeklock.store.reader import Reader
from peeklock.store.reading import Reading, timed
from peeklock.store.records import bodies_size, encode_chunk
from peeklock.store.retention import Retention, Trim
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

FORMAT: Final = "peeklock store 1"
RESERVE_BYTES: Final = 64 << 20

# A tail of so many positions is read where it is asked for: most partitions have no more.
SHORT: Final = 64

# Records whose messages have more bytes, or are more, are written down by the thread that commits
# them: a transaction, a large message, a long batch. Nobody changes them before their commit is
# answered.
ENCODED_AT_ONCE: Final = 2 << 20
POSITIONS_AT_ONCE: Final = 8_192


@final
class EmbeddedStore:
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
        map_size: int | None = None,
        free_space: Callable[[Path], int] = free_space,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `make` a directory that holds no store is an error: its disk may be missing.

        With `off_loop` nothing on the event loop ever waits for this disk: it is one of several.
        """
        self._environment = Environment(directory, FORMAT, map_size, make=make)
        try:
            self._ledger = Ledger(self._environment, retention or Retention())
        except BaseException:
            self._environment.close()
            raise
        self._reader = Reader(self._ledger)
        self._free_space = free_space
        self._figures = StoreFigures() if figures is None else figures
        self._figures.reserve_bytes = reserve_bytes
        self._space = Space(reserve_bytes, self._left, clock)
        self._look: asyncio.Task[bool] | None = None
        self._closed = False
        self._commit_delay_s = commit_delay_s
        self._off_loop = off_loop
        self._reading = Reading(directory.name, off_loop=off_loop)
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
        return is_full

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Fence older owners durably, then give the records from the last checkpoint on."""
        kept = self._ledger.partition(partition.key)
        in_force = await self._submit(Open(kept, epoch))
        return Opening(in_force, self._replay(kept, in_force, kept.replay_from, kept.end))

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Answer:
        """Hand the records over at once; they rest when the answer comes."""
        kept = self._ledger.partitions.get(partition.key)
        if kept is None:
            raise Fenced(f"{partition.key} was never opened")
        end = first_position
        for record in records:
            end += width(record)
        size = bodies_size(records)
        if size > ENCODED_AT_ONCE or end - first_position > POSITIONS_AT_ONCE:
            late = Append(kept, epoch, first_position, end, b"", replay_from, records, size)
            return self._submit(late)
        chunk = encode_chunk(first_position, records)
        return self._submit(Append(kept, epoch, first_position, end, chunk, replay_from))

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions, in the order asked."""
        self._check_open()
        kept = self._ledger.partitions.get(partition.key)
        if kept is None:
            raise Corrupt(f"{partition.key} is not known here")
        if not positions:
            return []
        reading = self._reading
        read = partial(timed, partial(self._reader.payloads, kept, positions))
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
        kept = self._ledger.partitions.get(partition.key)
        if kept is None:
            return JournalPage(0, 0, [])
        return await self._reading.run(partial(self._reader.journal, kept, after, limit_bytes))

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Drop whole chunks that neither retention nor a live body asks for.

        It is done in rounds of bounded work, each in a commit that others may share.
        """
        await self._sweep()
        kept = self._ledger.partitions.get(partition.key)
        if kept is None:
            return 0
        partitions = len(self._ledger.partitions)
        trim = Trim(upto, frozenset(keep_blocks), now, self._ledger.retention, partitions)
        while await self._submit(TrimRound(kept, trim)):
            pass
        return kept.extent.first

    async def drop(self, partition: PartitionId) -> None:
        """Remove all of a partition: at once for everybody who asks, in slices from the disk."""
        self._check_open()
        kept = self._ledger.partitions.get(partition.key)
        if kept is not None:
            await self._submit(Drop(kept))
            self._ledger.forget(kept)
        await self._sweep()

    async def close(self) -> None:
        """Commit what was handed over, then let the directory go."""
        if not self._closed:
            self._closed = True
            await self._committer.finish()
            await self._reading.finish()
            self._environment.close()

    async def _sweep(self) -> None:
        """Delete what dropped partitions left, here or before a crash."""
        for gone in list(self._ledger.dropped.values()):
            while await self._submit(SweepRound(gone)):
                pass
            self._ledger.dropped.pop(gone.number, None)

    def _look_soon(self) -> None:
        """Look for the room that is left beside the loop: even that can hang with a disk."""
        if self._look is None or self._look.done():
            look = self._reading.run(lambda: self._space.full)
            self._look = asyncio.get_running_loop().create_task(look)

    def _submit(self, request: Request) -> Answer:
        self._check_open()
        answer: Answer = asyncio.get_running_loop().create_future()
        self._committer.submit((request, answer))
        return answer

    def _commit(self, batch: list[Waiting]) -> list[int | StoreError]:
        if not self._environment.is_in_place():
            # The engine would go on in files that nobody will ever find again.
            where = self._environment.directory
            return [Broken(f"the files of the store in {where} are gone") for _ in batch]
        begun = time.perf_counter()
        results = self._ledger.commit([cast(Request, request) for request, _ in batch])
        if self._commit_delay_s:
            time.sleep(self._commit_delay_s)  # the disk that a benchmark wants to see
        size = sum(len(request.chunk) for request, _ in batch if isinstance(request, Append))
        self._figures.commits.note(time.perf_counter() - begun)
        self._figures.commit_bytes.note(size)
        self._space.wrote(size)
        return results

    async def _replay(
        self, partition: Partition, epoch: int, position: int, end: int
    ) -> AsyncIterator[Replay]:
        while position < end:
            self._check_open()
            if partition.epoch != epoch:
                raise Fenced(f"epoch {epoch} of {partition.name} ended during its replay")
            read = partial(self._reader.replay, partition, position)
            is_short = end - position <= SHORT and not self._off_loop
            replay, position = read() if is_short else await self._reading.run(read)
            if replay is not None:
                yield replay
            await asyncio.sleep(0)

    def _left(self) -> int:
        # Of the pages inside the file only half are counted: big chunks need pages in a row.
        inside = self._environment.slack() // 2
        grows = min(self._free_space(self._environment.directory), self._environment.room())
        return grows + inside

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"the store in {self._environment.directory} is closed")
