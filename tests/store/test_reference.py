"""Whatever is asked of them, the stores on disk answer as the one in memory does."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peeklock.entity.records import CheckpointBegun, Record, width
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.memory import MemoryStore
from peeklock.store.retention import Retention
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import Corrupt, PartitionId, Store, StoreError
from tests.store.builders import enqueued, records, shown, told
from tests.store.postgres.server import shared_server
from tests.store.stores import postgres_store, replayed

RETENTION = Retention(age_ms=20, bytes_max=60_000)
PARTITIONS = [PartitionId("default", name) for name in ("orders", "bills")]

steps = st.one_of(
    st.tuples(st.just("open"), st.none() | st.integers(0, 4)),
    st.tuples(st.just("append"), st.lists(records(), min_size=1, max_size=4)),
    st.tuples(st.just("run"), st.integers(1, 3000)),
    st.tuples(st.just("checkpoint"), st.none()),
    st.tuples(st.just("skip"), st.integers(-2, 2)),
    st.tuples(st.just("payloads"), st.lists(st.integers(0, 9000), max_size=3)),
    st.tuples(st.just("journal"), st.tuples(st.integers(0, 9000), st.integers(0, 4000))),
    st.tuples(
        st.just("trim"),
        st.tuples(st.integers(0, 9000), st.sets(st.integers(0, 2)), st.integers(0, 50)),
    ),
    st.tuples(st.just("drop"), st.none()),
    st.tuples(st.just("reopen"), st.none()),
)
scripts = st.lists(st.tuples(st.sampled_from(PARTITIONS), steps), max_size=25)


@settings(max_examples=80)
@given(scripts)
def test_all_stores_tell_the_same_story(script: list[tuple[PartitionId, Any]]) -> None:
    story = asyncio.run(Teller(memory).tell(script))
    for engine in (embedded, segments):
        with tempfile.TemporaryDirectory() as directory:
            assert asyncio.run(Teller(partial(engine, Path(directory))).tell(script)) == story


@settings(max_examples=25)
@given(scripts)
def test_a_database_tells_the_same_story(script: list[tuple[PartitionId, Any]]) -> None:
    story = asyncio.run(Teller(memory).tell(script))
    url = shared_server().new_database()
    assert asyncio.run(Teller(partial(database, url)).tell(script)) == story


def memory(before: Store | None = None) -> Store:
    return MemoryStore(RETENTION, before if isinstance(before, MemoryStore) else None)


def embedded(directory: Path, _before: Store | None = None) -> Store:
    return LmdbStore(directory, retention=RETENTION, commit="inline")


def segments(directory: Path, _before: Store | None = None) -> Store:
    return SegmentStore(directory, retention=RETENTION, commit="inline", segment_bytes=16 << 10)


def database(url: str, _before: Store | None = None) -> Store:
    return postgres_store(url, RETENTION)


class Teller:
    """Plays a script on a store and writes down every answer."""

    def __init__(self, make: Callable[..., Store]) -> None:
        self.make = make
        self.store = make()
        self.epochs = {partition.key: 0 for partition in PARTITIONS}
        self.ends = {partition.key: 1 for partition in PARTITIONS}
        self.now = 0

    async def tell(self, script: list[tuple[PartitionId, Any]]) -> list[Any]:
        story: list[Any] = [await self.open(PARTITIONS[0], None)]
        for partition, (name, argument) in script:
            self.now += 3
            try:
                story.append(await getattr(self, name)(partition, argument))
            except StoreError as error:
                story.append(type(error))
        await self.store.close()
        return story

    async def open(self, partition: PartitionId, epoch: int | None) -> Any:
        result, first, found = await replayed(self.store, partition, epoch)
        self.epochs[partition.key] = result
        return result, first, told(found, bodies=False)

    async def append(self, partition: PartitionId, batch: list[Record]) -> Any:
        return await self.add(partition, batch, None)

    async def run(self, partition: PartitionId, count: int) -> Any:
        first = self.ends[partition.key]
        return await self.add(partition, [enqueued(self.now, first, count, size=20)], None)

    async def checkpoint(self, partition: PartitionId, _: None) -> Any:
        begun = CheckpointBegun(self.now, 1)
        return await self.add(partition, [begun], self.ends[partition.key])

    async def add(self, partition: PartitionId, batch: list[Record], start: int | None) -> Any:
        key = partition.key
        await self.store.append(partition, self.epochs[key], self.ends[key], batch, start)
        self.ends[key] += sum(width(record) for record in batch)
        return self.ends[key]

    async def skip(self, partition: PartitionId, by: int) -> Any:
        """An owner that lost count is refused, and keeps nothing."""
        first = max(self.ends[partition.key] + by, 1)
        if first != self.ends[partition.key] and self.ends[partition.key] > 1:
            epoch = self.epochs[partition.key]
            await self.store.append(partition, epoch, first, [enqueued(1, 1, 1)])

    async def payloads(self, partition: PartitionId, positions: list[int]) -> Any:
        if not self.epochs[partition.key]:
            # What nobody could open is not there; whether a store has heard of it is its own thing.
            with pytest.raises(Corrupt):
                await self.store.payloads(partition, [*positions, 1])
            return None
        return [shown(message) for message in await self.store.payloads(partition, positions)]

    async def journal(self, partition: PartitionId, argument: tuple[int, int]) -> Any:
        page = await self.store.journal(partition, *argument)
        return page.first, page.next, page.chunks

    async def trim(self, partition: PartitionId, argument: tuple[int, set[int], int]) -> Any:
        upto, keep, later = argument
        return await self.store.trim(partition, upto, keep, self.now + later)

    async def drop(self, partition: PartitionId, _: None) -> None:
        await self.store.drop(partition)
        self.ends[partition.key] = 1

    async def reopen(self, partition: PartitionId, _: None) -> None:
        await self.store.close()
        self.store = self.make(self.store)
