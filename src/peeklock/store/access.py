"""What every engine on disk does alike: it commits where that is cheap, reads beside the loop what
may take long, counts both, and knows how much room is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, final

from peeklock.entity.message import Message
from peeklock.step import LARGE_BYTES, STEP
from peeklock.store.committers import BULKY, COMMITTERS, Committed, Committer, Submission
from peeklock.store.environment import Environment
from peeklock.store.figures import StoreFigures
from peeklock.store.reader import ChunkReader, Owned
from peeklock.store.reading import Reading, timed
from peeklock.store.space import Space
from peeklock.store.store import (
    Broken,
    Fenced,
    JournalPage,
    Opening,
    Replay,
    StoreError,
    Unavailable,
)

RESERVE_BYTES: Final = 64 << 20

# A tail of so many positions is read where it is asked for: most partitions have no more.
SHORT: Final = 64

T = TypeVar("T")


class AccessOptions(TypedDict, total=False):
    """How an engine is used: where it commits, what it keeps free, who counts."""

    commit: Literal["adaptive", "thread", "inline"]
    # Nothing on the event loop ever waits for this disk: it is one of several.
    off_loop: bool
    reserve_bytes: int
    # The disk that a benchmark wants to see.
    commit_delay_s: float
    figures: StoreFigures
    clock: Callable[[], float]


@final
class EngineAccess(Generic[Owned]):
    """The way of all requests to one engine."""

    def __init__(
        self,
        environment: Environment,
        reader: ChunkReader[Owned],
        commit: Callable[[list[Any]], list[int | StoreError]],
        left: Callable[[], int],
        options: AccessOptions,
    ) -> None:
        """`commit` carries out requests durably; `left` counts the bytes that can be written."""
        self._environment = environment
        self._reader = reader
        self._write = commit
        self._off_loop = options.get("off_loop", False)
        self._delay_s = options.get("commit_delay_s", 0.0)
        self._figures = options.get("figures") or StoreFigures()
        self.reserve_bytes: Final = options.get("reserve_bytes", RESERVE_BYTES)
        self._figures.reserve_bytes = self.reserve_bytes
        self._space = Space(self.reserve_bytes, left, options.get("clock", time.monotonic))
        self._look: asyncio.Task[bool] | None = None
        self.is_closed = False
        name = environment.directory.name
        self._reading = Reading(name, off_loop=self._off_loop)
        where = "thread" if self._off_loop else options.get("commit", "adaptive")
        self._committer: Committer = COMMITTERS[where](self._commit, name)

    @property
    def is_full(self) -> bool:
        """Whether sends are to be refused, so that settlements and trim keep room."""
        if self._off_loop:
            is_full = self._space.last
            if self._space.is_due:
                self._look_soon()
        else:
            is_full = self._space.full
        self._figures.free_bytes = self._space.left_bytes
        return is_full

    def check_open(self) -> None:
        """Refuse everything once it is closed."""
        if self.is_closed:
            raise Unavailable(f"the store in {self._environment.directory} is closed")

    def submit(self, request: Any) -> Committed:
        """Have a request committed."""
        self.check_open()
        answer: Committed = asyncio.get_running_loop().create_future()
        self._committer.submit((request, answer))
        return answer

    async def beside(self, read: Callable[[], T]) -> T:
        """Read on the thread that reads."""
        return await self._reading.run(read)

    def opening(self, partition: Owned, epoch: int) -> Opening:
        """Return the records of a partition that was just opened."""
        replays = self._replay(partition, epoch, partition.replay_from, partition.end)
        return Opening(epoch, replays)

    async def payloads(self, partition: Owned, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions, in the order asked."""
        if not positions:
            return []
        reading = self._reading
        read = partial(timed, partial(self._reader.payloads, partition, positions))
        is_inline = reading.is_inline(len(positions))
        found, took_s = read() if is_inline else await reading.run(read)
        self._figures.reads.note(took_s)
        size = sum([message.size for message in found])
        reading.found(len(found), size, took_s)
        if is_inline and size > LARGE_BYTES:
            STEP.works_on(size, max([message.size for message in found]))
        return found

    async def journal(self, partition: Owned | None, after: int, limit_bytes: int) -> JournalPage:
        """Copy raw chunks from position `after` on, at least one if there is any."""
        if partition is None:
            return JournalPage(0, 0, [])
        return await self.beside(partial(self._reader.journal, partition, after, limit_bytes))

    async def finish(self) -> None:
        """Carry out what was handed over."""
        await self._committer.finish()
        await self._reading.finish()

    def _look_soon(self) -> None:
        """Look for the room that is left beside the loop: even that can hang with a disk."""
        if self._look is None or self._look.done():
            look = self._reading.run(lambda: self._space.full)
            self._look = asyncio.get_running_loop().create_task(look)

    def _commit(self, batch: list[Submission]) -> list[int | StoreError]:
        if not self._environment.is_in_place():
            # The engine would go on in files that nobody will ever find again.
            where = self._environment.directory
            return [Broken(f"the files of the store in {where} are gone") for _ in batch]
        begun = time.perf_counter()
        requests = [request for request, _ in batch]
        results = self._write(requests)
        if self._delay_s:
            time.sleep(self._delay_s)
        size = sum([request.size for request in requests if request.size < BULKY])
        self._figures.commits.note(time.perf_counter() - begun)
        self._figures.commit_bytes.note(size)
        self._space.wrote(size)
        return results

    async def _replay(
        self, partition: Owned, epoch: int, position: int, end: int
    ) -> AsyncIterator[Replay]:
        while position < end:
            self.check_open()
            if partition.epoch != epoch:
                raise Fenced(f"epoch {epoch} of {partition.name} ended during its replay")
            read = partial(self._reader.replay, partition, position)
            is_short = end - position <= SHORT and not self._off_loop
            replay, position = read() if is_short else await self._reading.run(read)
            if replay is not None:
                yield replay
            await asyncio.sleep(0)
