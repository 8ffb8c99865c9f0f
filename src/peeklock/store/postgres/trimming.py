"""Trim in a database: what it decides by comes in pages, and what it decides is one statement."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, final

from peeklock.store.postgres.commits import OwnedEntry
from peeklock.store.postgres.connection import DatabaseSession
from peeklock.store.postgres.statements import JOURNAL, JOURNALS, SHELF, TRIM
from peeklock.store.retention import Chunk, Extent, Retention, Trim
from peeklock.store.store import Fenced

# How many chunks one round looks at: no statement holds the partition for long.
TRIM_STEPS: Final = 256


_T = TypeVar("_T")


@final
class Shared(Generic[_T]):
    """Work that is done once for all who ask meanwhile: a look trims all partitions together."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self._work: Final = work
        self._task: asyncio.Task[_T] | None = None

    async def result(self) -> _T:
        """Begin it, unless it is under way, and wait for it."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())
        # Who gives up does not end it for the others.
        return await asyncio.shield(self._task)


@final
@dataclass(slots=True)
class JournalTotals:
    """All partitions together: how many there are, and how many bytes their journals hold."""

    partitions: int
    bytes: int


async def find_totals(session: DatabaseSession) -> JournalTotals:
    """Ask how much there is."""
    row = (await session.fetch(JOURNALS))[0]
    return JournalTotals(row["partitions"], row["total"])


class _PageEnds(Exception):
    """What comes next was not fetched."""


async def trim(
    session: DatabaseSession,
    entry: OwnedEntry,
    totals: JournalTotals,
    upto: int,
    keep_blocks: frozenset[int],
    now: int,
    retention: Retention,
) -> int:
    """Drop chunks that neither retention nor a live body asks for; answers where the journal now
    begins. Whoever trims with the same `totals` knows what others have freed."""
    while True:
        rows = await session.fetch(JOURNAL, entry.number)
        if not rows or rows[0]["epoch"] != entry.epoch:
            raise Fenced(f"{entry.name} is not owned with epoch {entry.epoch}")
        row = rows[0]
        rules = Trim(min(upto, row["replay_from"]), keep_blocks, now, retention, totals.partitions)
        extent = Extent(row["journal_first"], row["journal_bytes"], entry.extent.swept)
        shelf = _PageShelf(
            await session.fetch(SHELF, entry.number, extent.swept, extent.first, TRIM_STEPS),
            extent.first,
        )
        try:
            more = rules.round(shelf, extent, totals.bytes - retention.bytes_max, TRIM_STEPS)
        except _PageEnds:
            more = True
        if shelf.dropped or extent.first != row["journal_first"]:
            freed = row["journal_bytes"] - extent.size
            arguments = (entry.number, entry.epoch, extent.first, freed, shelf.dropped)
            if not (await session.fetch(TRIM, *arguments))[0][0]:
                raise Fenced(f"{entry.name} is not owned with epoch {entry.epoch}")
            totals.bytes -= freed
        entry.extent = extent
        if not more:
            return extent.first


@final
class _PageShelf:
    """Chunks of two pages: below the journal, and from its beginning on."""

    def __init__(self, rows: Sequence[Any], journal_first: int) -> None:
        self.dropped: Final[list[int]] = []
        self._journal_first = journal_first
        self._chunks = [
            Chunk(row["first_position"], row["end_position"], row["written_at"], row["size"])
            for row in rows
        ]
        self._firsts = [chunk.first for chunk in self._chunks]
        self._below = bisect_left(self._firsts, journal_first)

    def seek(self, position: int) -> Chunk | None:
        index = bisect_left(self._firsts, position)
        if position < self._journal_first:
            if index == self._below == TRIM_STEPS:
                raise _PageEnds
        elif index == len(self._chunks) and index - self._below == TRIM_STEPS:
            raise _PageEnds
        return self._chunks[index] if index < len(self._chunks) else None

    def drop(self, first: int) -> None:
        self.dropped.append(first)
