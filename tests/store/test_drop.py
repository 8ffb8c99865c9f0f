"""Dropping a partition: nothing of it is left, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from peeklock.store.entries import TRIM_STEPS
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.lmdb.writer import LmdbDrop, LmdbSweep
from peeklock.store.store import Corrupt, Fenced, PartitionId, Unavailable
from tests.store.builders import enqueued
from tests.store.stores import BILLS, KINDS, ORDERS, StoreUnderTest, replayed

CHUNKS = 3 * TRIM_STEPS


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUnderTest:
    return StoreUnderTest(request.param, tmp_path)


async def filled(home: StoreUnderTest, partition: PartitionId, chunks: int) -> int:
    epoch = (await home.store.open(partition)).epoch
    appends = [
        home.store.append(partition, epoch, position, [enqueued(5, position, 1)])
        for position in range(1, 1 + chunks)
    ]
    await asyncio.gather(*appends)
    return epoch


@pytest.mark.parametrize("returns", [True, False], ids=["reopened", "living"])
def test_a_dropped_partition_starts_empty(home: StoreUnderTest, returns: bool) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        epoch = await filled(home, ORDERS, 5)
        await filled(home, BILLS, 5)
        await home.store.drop(ORDERS)
        if returns:
            await home.reopen()
        assert (await home.store.journal(ORDERS, 0, 1 << 20)).chunks == []
        assert await home.store.trim(ORDERS, 99, [], 99) == 0
        with pytest.raises(Corrupt):
            await home.store.payloads(ORDERS, [1])
        with pytest.raises(Fenced):
            await home.store.append(ORDERS, epoch, 6, [enqueued(5, 6, 1)])
        later, first, records = await replayed(home.store, ORDERS)
        assert (first, records) == (-1, [])
        assert later > epoch
        await home.store.append(ORDERS, later, 1, [enqueued(7, 1, 2)])
        _, first, records = await replayed(await home.reopen(), ORDERS)
        assert (first, [record.at for record in records]) == (1, [7])
        assert (await replayed(home.store, BILLS))[1] == 1

    home.run(scenario)


def test_an_older_owner_stays_fenced(home: StoreUnderTest) -> None:
    """Also when it comes with its epoch to a partition that was made anew."""

    async def scenario(home: StoreUnderTest) -> None:
        old = (await home.store.open(ORDERS, 7)).epoch
        await home.store.drop(ORDERS)
        await home.reopen()
        for epoch in (1, old):
            with pytest.raises(Fenced):
                await home.store.open(ORDERS, epoch)
        assert (await home.store.open(ORDERS)).epoch == old + 1
        with pytest.raises(Fenced):
            await home.store.append(ORDERS, old, 1, [enqueued(5, 1, 1)])

    home.run(scenario)


def test_a_drop_may_be_repeated(home: StoreUnderTest) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await home.store.drop(ORDERS)
        await filled(home, ORDERS, 3)
        await asyncio.gather(home.store.drop(ORDERS), home.store.drop(ORDERS))
        await home.store.drop(ORDERS)
        assert (await replayed(await home.reopen(), ORDERS))[1:] == (-1, [])

    home.run(scenario)


def test_a_replay_ends_when_its_partition_is_dropped(home: StoreUnderTest) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await filled(home, ORDERS, 3)
        opening = await home.store.open(ORDERS)
        await home.store.drop(ORDERS)
        with pytest.raises(Fenced):
            await anext(opening.replays)

    home.run(scenario)


# ---- on disk


def run_on_disk(tmp_path: Path, *scenarios: Callable[[StoreUnderTest], Awaitable[None]]) -> None:
    """Run scenarios one after another, each on the store opened anew."""
    for scenario in scenarios:
        StoreUnderTest("embedded", tmp_path).run(scenario)


def engine(home: StoreUnderTest) -> LmdbStore:
    assert isinstance(home.store, LmdbStore)
    return home.store


def chunks_of(home: StoreUnderTest) -> int:
    environment = engine(home)._environment
    with environment.lmdb.begin() as transaction:
        return transaction.stat(environment.values)["entries"]


def traces_of(home: StoreUnderTest) -> list[bytes]:
    environment = engine(home)._environment
    with environment.lmdb.begin(db=environment.meta) as transaction:
        return [bytes(key[:1]) for key, _ in transaction.cursor()]


def test_its_chunks_go_in_slices_between_which_others_commit(tmp_path: Path) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await filled(home, ORDERS, CHUNKS)
        epoch = await filled(home, BILLS, 1)
        dropping = asyncio.ensure_future(home.store.drop(ORDERS))
        position = 2
        seen = set()
        while not dropping.done():
            await home.store.append(BILLS, epoch, position, [enqueued(5, position, 1)])
            seen.add(chunks_of(home) - position)
            position += 1
        await dropping
        assert len(seen) > 2
        assert chunks_of(home) == position - 1
        assert traces_of(home) == [b"e", b"f", b"p"]

    run_on_disk(tmp_path, scenario)


def test_what_a_crash_leaves_goes_with_the_next_trim(tmp_path: Path) -> None:
    """The partition is gone from the first commit on, however far the rest got."""

    async def crash(home: StoreUnderTest) -> None:
        await filled(home, BILLS, 2)
        await filled(home, ORDERS, CHUNKS)
        store = engine(home)
        kept = store._writer.partitions[ORDERS.key]
        assert await store._access.submit(LmdbDrop(kept)) == 1
        assert await store._access.submit(LmdbSweep(kept)) == 1
        with pytest.raises(Fenced):
            await store.open(ORDERS)

    async def come_back(home: StoreUnderTest) -> None:
        assert (await replayed(home.store, ORDERS))[1:] == (-1, [])
        assert await filled(home, ORDERS, 3) > 2
        assert chunks_of(home) == CHUNKS - TRIM_STEPS + 2 + 3
        await home.store.trim(BILLS, 0, [], 0)
        assert chunks_of(home) == 2 + 3
        assert traces_of(home) == [b"e", b"f", b"p", b"p"]
        assert len(await home.store.payloads(ORDERS, [1, 2, 3])) == 3

    run_on_disk(tmp_path, crash, come_back)


def test_a_drop_that_fails_leaves_the_partition_as_it_was(tmp_path: Path) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await filled(home, ORDERS, 3)
        with contextlib.ExitStack() as aside:
            aside.callback((tmp_path / "aside").rename, tmp_path / "data.mdb")
            (tmp_path / "data.mdb").rename(tmp_path / "aside")
            with pytest.raises(Unavailable):
                await home.store.drop(ORDERS)
        _, first, records = await replayed(home.store, ORDERS)
        assert (first, len(records)) == (1, 3)

    run_on_disk(tmp_path, scenario)
