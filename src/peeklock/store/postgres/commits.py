"""The writing side: what all partitions append in the meantime rests by one statement.

While one statement is under way, the next one gathers. Partitions are in the order of their
numbers, so that two who write the same ones wait for each other, and never both. One that is owned
by somebody else is left out, and the others rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from peeklock.store.appending import NewChunk
from peeklock.store.codec.records import chunk_header
from peeklock.store.committers import Committed, settle
from peeklock.store.figures import StoreFigures
from peeklock.store.postgres.connection import DatabaseSession, DiskFull
from peeklock.store.postgres.statements import APPEND
from peeklock.store.retention import Extent
from peeklock.store.store import Away, Broken, StoreError, Unavailable

# A statement takes no more than this, and the one chunk that passes it.
STATEMENT_BYTES: Final = 8 << 20

# How long sends are refused for want of room before another one may try.
FULL_S: Final = 2.0


@final
class OwnedEntry:
    """What this process knows of a partition."""

    def __init__(self, number: int, name: str) -> None:
        self.number: Final = number
        self.name: Final = name
        self.epoch = 0
        self.replay_from = 0
        self.end = 0
        self.extent = Extent()

    @classmethod
    def of(cls, name: str, row: Any) -> OwnedEntry:
        """Take what its row says."""
        entry = cls(row["number"], name)
        entry.epoch, entry.end = row["epoch"], row["end_position"]
        entry.replay_from = row["replay_from"]
        entry.extent = Extent(row["journal_first"], row["journal_bytes"])
        return entry


@final
@dataclass(frozen=True, slots=True)
class Append:
    """One chunk that is to rest."""

    entry: OwnedEntry
    chunk: NewChunk
    answer: Committed


Batch: TypeAlias = "dict[int, list[Append]]"


@final
class Commits:
    """Gathers appends and has them stored."""

    def __init__(
        self,
        session: DatabaseSession,
        figures: StoreFigures,
        witness: dict[str, tuple[int, int]],
        delay_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`witness` is told the epoch and the end of each partition that was acknowledged."""
        self._session = session
        self._figures = figures
        self._witness = witness
        self._delay_s = delay_s
        self._waiting: list[Append] = []
        self._task: asyncio.Task[None] | None = None
        self._clock = clock
        self._full_until: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether the database had no room a moment ago."""
        return self._full_until is not None and self._clock() < self._full_until

    def submit(self, entry: OwnedEntry, chunk: NewChunk) -> Committed:
        """Have a chunk stored, with whatever else comes until the next statement."""
        loop = asyncio.get_running_loop()
        append = Append(entry, chunk, loop.create_future())
        self._waiting.append(append)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return append.answer

    async def finish(self) -> None:
        """Wait until all that was handed over is answered."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take()
            try:
                await self._store(batch)
            except Broken as error:
                # There was no session to begin with, so that nothing is in doubt.
                _refuse(batch, Away(str(error)))
            except StoreError as error:
                _refuse(batch, error)
            except BaseException as error:
                failed = Unavailable(f"the commit failed: {error!r}")
                _refuse(batch, failed)
                _refuse({0: self._waiting}, failed)
                self._waiting = []
                raise

    def _take(self) -> Batch:
        """Take chunks that follow each other; what does not waits for another statement, which
        will know whether it can."""
        batch: Batch = {}
        left: list[Append] = []
        held: set[int] = set()
        size = 0
        for append in self._waiting:
            number = append.entry.number
            before = batch.get(number)
            if (
                size >= STATEMENT_BYTES
                or number in held
                or (before is not None and not _follows(before[-1].chunk, append.chunk))
            ):
                held.add(number)
                left.append(append)
                continue
            size += append.chunk.size
            batch.setdefault(number, []).append(append)
        self._waiting = left
        return batch

    async def _store(self, batch: Batch) -> None:
        await _encode_late(batch)
        arguments = _arguments(batch)
        begun = time.perf_counter()
        try:
            refused = await self._session.fetch(APPEND, *arguments)
        except DiskFull:
            self._full_until = self._clock() + FULL_S
            raise
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        self._figures.commits.note(time.perf_counter() - begun)
        self._figures.commit_bytes.note(sum(arguments[5]))
        for row in refused:
            for append in batch.pop(row["number"]):
                settle(append.answer, _refusal(append, row["epoch"], row["end_position"]))
        for appends in batch.values():
            self._rest(appends)

    def _rest(self, appends: list[Append]) -> None:
        entry, last = appends[0].entry, appends[-1].chunk
        begins = entry.end == 0
        entry.end = last.end
        if begins:
            entry.replay_from = entry.extent.first = appends[0].chunk.first
        self._witness[entry.name] = (last.epoch, last.end)
        for append in appends:
            chunk = append.chunk
            entry.extent.size += chunk.size
            if chunk.replay_from is not None:
                entry.replay_from = chunk.replay_from
            settle(append.answer, chunk.size)


def _follows(before: NewChunk, chunk: NewChunk) -> bool:
    return chunk.first == before.end and chunk.epoch == before.epoch


async def _encode_late(batch: Batch) -> None:
    """Write down large records beside the loop; one that cannot be fails its partition alone."""
    for number, appends in list(batch.items()):
        for index, append in enumerate(appends):
            if not append.chunk.records:
                continue
            try:
                await asyncio.to_thread(append.chunk.encode, append.entry.name)
            except StoreError as error:
                _refuse({number: appends[index:]}, error)
                del appends[index:]
                break
        if not appends:
            del batch[number]


def _arguments(batch: Batch) -> list[Sequence[Any]]:
    numbers = sorted(batch)
    firsts, lasts = [], []
    replays: list[int | None] = []
    sizes: list[int] = []
    chunks: list[tuple[int, NewChunk]] = []
    for number in numbers:
        mine = [append.chunk for append in batch[number]]
        firsts.append(mine[0])
        lasts.append(mine[-1])
        moved = [chunk.replay_from for chunk in mine if chunk.replay_from is not None]
        replays.append(moved[-1] if moved else None)
        sizes.append(sum([chunk.size for chunk in mine]))
        chunks += [(number, chunk) for chunk in mine]
    return [
        numbers,
        [chunk.epoch for chunk in firsts],
        [chunk.first for chunk in firsts],
        [chunk.end for chunk in lasts],
        replays,
        sizes,
        [number for number, _ in chunks],
        [chunk.first for _, chunk in chunks],
        [chunk.end for _, chunk in chunks],
        [chunk_header(memoryview(chunk.data)).at for _, chunk in chunks],
        [chunk.data for _, chunk in chunks],
    ]


def _refusal(append: Append, epoch: int, end: int) -> StoreError:
    try:
        append.chunk.check(append.entry.name, epoch, end)
    except StoreError as error:
        return error
    # Those before it were refused.
    return Unavailable(f"{append.entry.name} ends at position {end}, and others were to follow")


def _refuse(batch: Batch, error: StoreError) -> None:
    for appends in batch.values():
        for append in appends:
            settle(append.answer, _copy(error))


def _copy(error: StoreError) -> StoreError:
    """One for each who is told: an error remembers where it was raised."""
    copy = type(error)(str(error))
    copy.__cause__ = error.__cause__
    return copy
