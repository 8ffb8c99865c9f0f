"""A store that is a PostgreSQL database: whoever has the highest epoch of a partition writes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, Final, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.appending import NewChunk
from peeklock.store.codec.records import decode_chunk
from peeklock.store.figures import StoreFigures
from peeklock.store.postgres.bodies import Bodies
from peeklock.store.postgres.commits import Commits, OwnedEntry
from peeklock.store.postgres.connection import ANSWER_S, DatabaseSession, Identity, shown
from peeklock.store.postgres.openings import Openings
from peeklock.store.postgres.statements import DROP, DROPPED, FIND, PAGE, REPLAY, SWEEP
from peeklock.store.postgres.trimming import TRIM_STEPS, Shared, find_totals, trim
from peeklock.store.replay import records_from
from peeklock.store.retention import Retention
from peeklock.store.store import (
    Corrupt,
    Fenced,
    JournalPage,
    Opening,
    PartitionId,
    Replay,
    Unavailable,
)

# How much of a replay is read at once, and of a journal by their number.
_PAGE_BYTES: Final = 1 << 20
_PAGE_CHUNKS: Final = 256

# Up to here records are decoded on the loop.
_AT_ONCE: Final = 32 << 10


@final
class PostgresStore:
    """Keeps the records of many partitions in one database.

    It has three sessions, made when they are needed: commits never wait for anything else.
    """

    def __init__(
        self,
        url: str,
        identity: Identity,
        *,
        retention: Retention | None = None,
        figures: StoreFigures | None = None,
        witness: dict[str, tuple[int, int]] | None = None,
        commit_delay_s: float = 0.0,
        answer_s: float = ANSWER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`identity` is what `prepare` found; `witness` outlives it: the epoch and the end of each
        partition that this process was told of."""
        self._url = url
        self._retention = retention or Retention()
        figures = figures or StoreFigures()
        witness = {} if witness is None else witness
        self._commit_session = DatabaseSession(url, identity, answer_s=answer_s)
        self._upkeep_session = DatabaseSession(url, identity, answer_s=answer_s)
        self._read_session = DatabaseSession(url, identity, answer_s=answer_s)
        self._commits = Commits(self._commit_session, figures, witness, commit_delay_s, clock)
        self._openings = Openings(self._upkeep_session, witness)
        self._bodies = Bodies(self._read_session, figures)
        self._sweeping = Shared(self._sweep)
        self._totals = Shared(lambda: find_totals(self._upkeep_session))
        self._witness = witness
        self._entries: dict[str, OwnedEntry] = {}
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether the database had no room a moment ago: then sends are refused for a while."""
        return self._commits.is_full

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Fence older owners durably, then give the records from the last checkpoint on."""
        self._check_open()
        entry = await self._openings.open(partition.key, epoch)
        known = self._entries.get(partition.key)
        if known is not None and known.number == entry.number:
            # Whoever still has it in hand sees the new epoch.
            known.epoch, known.end, known.replay_from = entry.epoch, entry.end, entry.replay_from
            known.extent = entry.extent
        else:
            self._entries[partition.key] = entry
        return Opening(entry.epoch, self._replay(entry, entry.epoch))

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Awaitable[int]:
        """Hand the records over at once; they rest when the answer comes."""
        self._check_open()
        chunk = NewChunk(epoch, first_position, records, replay_from)
        entry = self._entries.get(partition.key)
        if entry is None:
            return self._append_unopened(partition, chunk)
        return self._commits.submit(entry, chunk)

    async def _append_unopened(self, partition: PartitionId, chunk: NewChunk) -> int:
        entry = await self._entry(partition)
        if entry is None:
            raise Fenced(f"{partition.key} was never opened")
        return await self._commits.submit(entry, chunk)

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions, in the order asked."""
        self._check_open()
        entry = await self._entry(partition)
        if entry is None:
            raise Corrupt(f"{partition.key} is not known here")
        if not positions:
            return []
        return await self._bodies.read(entry.number, entry.name, positions)

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Copy raw chunks from position `after` on, at least one if there is any."""
        self._check_open()
        entry = await self._entry(partition)
        if entry is None:
            return JournalPage(0, 0, [])
        # Nobody is so far that a number of the database cannot say it.
        after = min(after, (1 << 63) - 1)
        rows = await self._read_session.fetch(
            PAGE, entry.number, after, min(limit_bytes, (1 << 63) - 1), 4 * _PAGE_CHUNKS
        )
        if not rows:
            return JournalPage(0, 0, [])
        first, end = rows[0]["journal_first"], rows[0]["partition_end"]
        position = max(after, first)
        chunks = [row for row in rows if row["data"] is not None]
        for number, row in enumerate(chunks):
            _check_follows(entry.name, row["first_position"], position, begins=number == 0)
            position = row["end_position"]
        return JournalPage(first, min(position, end), [row["data"] for row in chunks])

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Drop whole chunks that neither retention nor a live body asks for."""
        self._check_open()
        await self._sweeping.result()
        entry = await self._entry(partition)
        if entry is None:
            return 0
        self._bodies.forget(entry.number)
        session, keep = self._upkeep_session, frozenset(keep_blocks)
        totals = await self._totals.result()
        return await trim(session, entry, totals, upto, keep, now, self._retention)

    async def drop(self, partition: PartitionId) -> None:
        """Remove all of a partition: at once for everybody who asks, in slices from the disk."""
        self._check_open()
        await self._upkeep_session.fetch(DROP, partition.key)
        entry = self._entries.pop(partition.key, None)
        self._witness.pop(partition.key, None)
        if entry is not None:
            entry.epoch = 0
            self._bodies.forget(entry.number)
        await self._sweep()

    async def close(self) -> None:
        """Commit what was handed over, then end the sessions."""
        if self._closed:
            return
        self._closed = True
        await self._commits.finish()
        await self._openings.finish()
        for session in (self._commit_session, self._upkeep_session, self._read_session):
            await session.close()

    async def _sweep(self) -> None:
        """Delete what dropped partitions left, here or before a crash."""
        for row in await self._upkeep_session.fetch(DROPPED):
            swept = TRIM_STEPS
            while swept == TRIM_STEPS:
                rows = await self._upkeep_session.fetch(SWEEP, row["number"], TRIM_STEPS)
                swept = rows[0][0]

    async def _entry(self, partition: PartitionId) -> OwnedEntry | None:
        """Find a partition; one that was not opened here is looked for."""
        entry = self._entries.get(partition.key)
        if entry is None:
            rows = await self._read_session.fetch(FIND, partition.key)
            if rows:
                entry = OwnedEntry.of(partition.key, rows[0])
                entry = self._entries.setdefault(partition.key, entry)
        return entry

    async def _replay(self, entry: OwnedEntry, epoch: int) -> AsyncIterator[Replay]:
        position, end = entry.replay_from, entry.end
        while position < end:
            self._check_open()
            rows = await self._read_session.fetch(
                REPLAY, entry.number, position, _PAGE_BYTES, _PAGE_CHUNKS
            )
            if not rows or rows[0]["epoch"] != epoch:
                raise Fenced(f"epoch {epoch} of {entry.name} ended during its replay")
            chunks = [row for row in rows if row["data"] is not None]
            if not chunks:
                raise Corrupt(f"{entry.name} has no chunk that holds position {position}")
            size = sum([len(row["data"]) for row in chunks])
            if size <= _AT_ONCE:
                replay, position = _decoded(entry.name, chunks, position, size)
            else:
                replay, position = await asyncio.to_thread(
                    _decoded, entry.name, chunks, position, size
                )
            if replay is not None:
                yield replay

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"the store in {shown(self._url)} is closed")


def _decoded(name: str, rows: list[Any], position: int, size: int) -> tuple[Replay | None, int]:
    """Decode the records of some chunks from a position on; answers the position after them."""
    records: list[Record] = []
    replay_first = position
    for number, row in enumerate(rows):
        _check_follows(name, row["first_position"], position, begins=number == 0)
        first, decoded = decode_chunk(row["data"], bodies=False)
        if not records:
            replay_first, decoded = records_from(position, first, decoded)
        records += decoded
        position = row["end_position"]
    return (Replay(replay_first, records, size) if records else None), position


def _check_follows(name: str, first: int, position: int, *, begins: bool) -> None:
    """Refuse a gap: only the first chunk of a page may begin before the position."""
    if first > position or (first < position and not begins):
        raise Corrupt(f"{name} goes on at {first} where {position} is due")
