"""Bodies that are no more in memory: all that is asked for meanwhile is read by one statement.

A chunk is read as a whole, though few of its messages may be wanted: the last one of each partition
is kept for those who will want its neighbours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.entity.message import Message
from peeklock.store.codec.records import decode_messages
from peeklock.store.figures import StoreFigures
from peeklock.store.postgres.connection import DatabaseSession
from peeklock.store.postgres.statements import BODIES
from peeklock.store.store import Corrupt, Damaged, StoreError, Unavailable

# What one statement reads, and what is kept of it.
STATEMENT_BYTES: Final = 4 << 20
KEPT_BYTES: Final = 16 << 20

# Up to here messages are taken out of their chunk on the loop.
_AT_ONCE: Final = 256 << 10


@final
@dataclass(frozen=True, slots=True)
class _Found:
    """A chunk that holds some of the positions; one without bytes is there and was not read."""

    first: int
    end: int
    data: bytes | None


@final
class Bodies:
    """Reads messages of all partitions."""

    def __init__(self, session: DatabaseSession, figures: StoreFigures) -> None:
        self._session = session
        self._figures = figures
        self._waiting: list[tuple[int, Sequence[int], asyncio.Future[list[_Found]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._kept: dict[int, _Found] = {}
        self._kept_bytes = 0

    async def read(self, number: int, name: str, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions, in the order asked."""
        begun = time.perf_counter()
        found: dict[int, Message] = {}
        damaged: dict[int, Corrupt] = {}
        wanted = list(dict.fromkeys(positions))
        kept = self._kept.get(number)
        if kept is not None:
            wanted = await _take(kept, wanted, found, damaged)
        while wanted:
            chunks = await self._find(number, wanted)
            for chunk in chunks:
                if chunk.data is not None:
                    wanted = await _take(chunk, wanted, found, damaged)
                    self._keep(number, chunk)
            there = [p for p in wanted if any(c.first <= p < c.end for c in chunks)]
            for position in set(wanted).difference(there):
                damaged[position] = Corrupt(f"{name} has no chunk that holds position {position}")
            wanted = there
        self._figures.reads.note(time.perf_counter() - begun)
        if damaged:
            problem = next(iter(damaged.values()))
            raise Damaged(f"bodies of {name} are damaged: {problem}", list(damaged)) from problem
        return [found[position] for position in positions]

    def forget(self, number: int) -> None:
        """Keep nothing of a partition whose chunks may be gone."""
        kept = self._kept.pop(number, None)
        if kept is not None and kept.data is not None:
            self._kept_bytes -= len(kept.data)

    def _keep(self, number: int, chunk: _Found) -> None:
        self.forget(number)
        assert chunk.data is not None
        self._kept[number] = chunk
        self._kept_bytes += len(chunk.data)
        while self._kept_bytes > KEPT_BYTES:
            self.forget(next(iter(self._kept)))

    async def _find(self, number: int, positions: Sequence[int]) -> list[_Found]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[_Found]] = loop.create_future()
        self._waiting.append((number, positions, answer))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            numbers = [number for number, positions, _ in batch for _ in positions]
            places = [position for _, positions, _ in batch for position in positions]
            chunks: dict[int, list[_Found]] = {}
            failure: StoreError | None = None
            try:
                rows = await self._ask(numbers, places)
                for row in rows:
                    one = _Found(row["first_position"], row["end_position"], row["data"])
                    chunks.setdefault(row["number"], []).append(one)
            except StoreError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - who waits is told, whatever it was
                failure = Unavailable(f"reading failed: {error!r}")
            for number, _, answer in batch:
                if answer.done():
                    continue
                if failure is None:
                    answer.set_result(chunks.get(number, []))
                else:
                    answer.set_exception(type(failure)(str(failure)))

    async def _ask(self, numbers: list[int], places: list[int]) -> list[Any]:
        try:
            return await self._session.fetch(BODIES, numbers, places, STATEMENT_BYTES)
        except Unavailable:
            # Reading changes nothing: a session that was lost is made again, once.
            return await self._session.fetch(BODIES, numbers, places, STATEMENT_BYTES)


async def _take(
    chunk: _Found,
    wanted: list[int],
    found: dict[int, Message],
    damaged: dict[int, Corrupt],
) -> list[int]:
    """Take messages out of a chunk; answers the positions that it does not hold."""
    mine = [position for position in wanted if chunk.first <= position < chunk.end]
    if not mine:
        return wanted
    data = chunk.data
    assert data is not None
    if len(data) <= _AT_ONCE:
        _decode(data, mine, found, damaged)
    else:
        await asyncio.to_thread(_decode, data, mine, found, damaged)
    return [position for position in wanted if not chunk.first <= position < chunk.end]


def _decode(
    data: bytes, positions: list[int], found: dict[int, Message], damaged: dict[int, Corrupt]
) -> None:
    try:
        found.update(zip(positions, decode_messages(data, positions), strict=True))
    except Corrupt:
        # Each by itself: what fits its own checksum is whole, whatever else of it is damaged.
        for position in positions:
            try:
                found[position] = decode_messages(data, [position])[0]
            except Corrupt as error:
                damaged[position] = error
