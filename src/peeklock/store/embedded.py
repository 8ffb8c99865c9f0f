"""The embedded store: LMDB in a directory of its own, one durable commit for all that is ready.

Appends are encoded on the caller's thread and committed on another one: while a commit waits for
the disk the next requests gather, and the following commit takes them all. Each commit wakes the
event loop once. With `commit="inline"` the commits are done on the event loop instead, once per
turn of it: cheaper where the disk answers at once, but everything waits for the disk.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Literal, TypeAlias, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record, width
from peeklock.store.environment import Environment
from peeklock.store.ledger import Append, Ledger, Open, Partition, Request, TrimRound
from peeklock.store.reader import Reader
from peeklock.store.records import encode_chunk
from peeklock.store.retention import Retention, Trim
from peeklock.store.space import Space, free_space
from peeklock.store.store import (
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

Answer: TypeAlias = "asyncio.Future[int]"
Waiting: TypeAlias = tuple[Request, Answer]


@final
class EmbeddedStore:
    """Keeps the records of many partitions in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        retention: Retention | None = None,
        commit: Literal["thread", "inline"] = "thread",
        reserve_bytes: int = RESERVE_BYTES,
        map_size: int | None = None,
        free_space: Callable[[Path], int] = free_space,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment = Environment(directory, FORMAT, map_size)
        try:
            self._ledger = Ledger(self._environment, retention or Retention())
        except BaseException:
            self._environment.close()
            raise
        self._reader = Reader(self._ledger)
        self._free_space = free_space
        self._space = Space(reserve_bytes, self._left, clock)
        self._closed = False
        self._committer: _Inline | _Thread = (
            _Inline(self._commit) if commit == "inline" else _Thread(self._commit, directory.name)
        )

    @property
    def full(self) -> bool:
        """Whether sends are to be refused, so that settlements and trim keep room."""
        return self._space.full

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
        chunk = encode_chunk(first_position, records)
        return self._submit(Append(kept, epoch, first_position, end, chunk, replay_from))

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions, in the order asked."""
        self._check_open()
        kept = self._ledger.partitions.get(partition.key)
        if kept is None:
            raise Corrupt(f"{partition.key} is not known here")
        return self._reader.payloads(kept, positions)

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Copy raw chunks from position `after` on, at least one if there is any."""
        self._check_open()
        kept = self._ledger.partitions.get(partition.key)
        if kept is None:
            return JournalPage(0, after, [])
        return self._reader.journal(kept, after, limit_bytes)

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Drop whole chunks that neither retention nor a live body asks for.

        It is done in rounds of bounded work, each in a commit that others may share.
        """
        kept = self._ledger.partitions.get(partition.key)
        if kept is None:
            return 0
        partitions = len(self._ledger.partitions)
        trim = Trim(upto, frozenset(keep_blocks), now, self._ledger.retention, partitions)
        while await self._submit(TrimRound(kept, trim)):
            pass
        return kept.extent.first

    async def close(self) -> None:
        """Commit what was handed over, then let the directory go."""
        if not self._closed:
            self._closed = True
            await self._committer.finish()
            self._environment.close()

    def _submit(self, request: Request) -> Answer:
        self._check_open()
        answer: Answer = asyncio.get_running_loop().create_future()
        self._committer.submit((request, answer))
        return answer

    def _commit(self, batch: list[Waiting]) -> list[int | StoreError]:
        results = self._ledger.commit([request for request, _ in batch])
        self._space.wrote(
            sum(len(request.chunk) for request, _ in batch if isinstance(request, Append))
        )
        return results

    async def _replay(
        self, partition: Partition, epoch: int, position: int, end: int
    ) -> AsyncIterator[Replay]:
        while position < end:
            self._check_open()
            if partition.epoch != epoch:
                raise Fenced(f"epoch {epoch} of {partition.name} ended during its replay")
            replay, position = self._reader.replay(partition, position)
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


@final
class _Thread:
    """Commits on a thread of its own, as soon as the last commit ends."""

    def __init__(
        self, commit: Callable[[list[Waiting]], list[int | StoreError]], name: str
    ) -> None:
        self._commit = commit
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        # A daemon: a process that ends without close loses nothing that was answered.
        self._thread = threading.Thread(target=self._run, name=f"commit-{name}", daemon=True)
        self._thread.start()

    def submit(self, waiting: Waiting) -> None:
        self._queue.put(waiting)

    async def finish(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        going = True
        while going:
            batch: list[Waiting] = []
            going = self._take(batch)
            if batch:
                self._answer(batch, self._commit(batch))

    def _take(self, batch: list[Waiting]) -> bool:
        """Wait for a request and take all that came with it; answers whether to go on."""
        queue = self._queue
        while True:
            waiting = queue.get()
            if waiting is None:
                return False
            batch.append(waiting)
            if queue.empty():
                return True

    def _answer(self, batch: list[Waiting], results: list[int | StoreError]) -> None:
        # Nearly always there is one loop, and it is woken once.
        for loop in {answer.get_loop() for _, answer in batch}:
            try:
                loop.call_soon_threadsafe(_resolve, loop, batch, results)
            except RuntimeError:
                # The loop was closed while its requests were being committed: nobody waits.
                continue


@final
class _Inline:
    """Commits on the event loop, once for all requests of one turn of it."""

    def __init__(self, commit: Callable[[list[Waiting]], list[int | StoreError]]) -> None:
        self._commit = commit
        self._waiting: list[Waiting] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, waiting: Waiting) -> None:
        loop = waiting[1].get_loop()
        # What a closed loop left behind is committed with the first request of the next one.
        if not self._waiting or loop is not self._loop:
            self._loop = loop
            loop.call_soon(self._run)
        self._waiting.append(waiting)

    async def finish(self) -> None:
        if self._waiting:
            self._run()

    def _run(self) -> None:
        batch, self._waiting = self._waiting, []
        if batch:
            _resolve(batch[-1][1].get_loop(), batch, self._commit(batch))


def _resolve(
    loop: asyncio.AbstractEventLoop, batch: list[Waiting], results: list[int | StoreError]
) -> None:
    """Answer those requests of a batch that this loop waits for."""
    for (_, answer), result in zip(batch, results, strict=True):
        if answer.done() or answer.get_loop() is not loop:
            continue
        if isinstance(result, StoreError):
            answer.set_exception(result)
        else:
            answer.set_result(result)
