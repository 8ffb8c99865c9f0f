"""Several stores: each can go and come back, and the others do not notice."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from peeklock.store.catalog import EmbeddedCatalog
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.memory import MemoryStores
from peeklock.store.store import Broken, Corrupt, PartitionId, Store, Unavailable
from peeklock.store.stores import RETRY_S, Stores, UnknownStore, store_names
from tests.store.builders import enqueued
from tests.store.failing import FailingStore
from tests.store.stores import BILLS, ORDERS, replayed

Scenario = Callable[[Stores], Awaitable[None]]

PAIR = store_names(2)


class Disk:
    """A data directory, the factory of the stores in it, and a clock that stands still."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.now = 100.0
        self.engines: dict[str, FailingStore] = {}

    def factory(self, name: str, may_make: bool) -> Store:
        store = LmdbStore(self.data / name, make=may_make, commit="thread")
        self.engines[name] = FailingStore(store)
        return self.engines[name]

    def stores(self, *made: str) -> Stores:
        return Stores.of(self.factory, PAIR, made, lambda: self.now)

    def run(self, scenario: Scenario, *made: str) -> None:
        async def living() -> None:
            stores = self.stores(*made)
            try:
                await scenario(stores)
            finally:
                await stores.close()

        asyncio.run(living())


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def written(store: Store, partition: PartitionId = ORDERS) -> int:
    """Open a partition and append one message; answers the epoch."""
    epoch, _, records = await replayed(store, partition)
    position = 1 + len(records)
    await store.append(partition, epoch, position, [enqueued(5, position, 1)])
    return epoch


async def refused(store: Store, epoch: int, match: str) -> None:
    """Everything that can be asked of it is refused at once."""
    with pytest.raises(Unavailable, match=match):
        await store.open(ORDERS)
    with pytest.raises(Unavailable, match=match):
        await store.append(ORDERS, epoch, 2, [enqueued(5, 2, 1)])
    with pytest.raises(Unavailable, match=match):
        await store.payloads(ORDERS, [1])
    with pytest.raises(Unavailable, match=match):
        await store.journal(ORDERS, 0, 100)
    with pytest.raises(Unavailable, match=match):
        await store.trim(ORDERS, 1, [], 0)
    with pytest.raises(Unavailable, match=match):
        await store.drop(ORDERS)
    assert not store.full


# ---- names and places


def test_a_lone_store_has_the_name_it_always_had() -> None:
    assert store_names(1) == ["store"]
    assert store_names(4) == ["store", "store-2", "store-3", "store-4"]


@pytest.mark.parametrize(
    ("count", "used", "expected"),
    [
        (1, {}, ["store"]),
        (1, {"store": 3, "store-2": 2, "store-3": 2}, ["store-2"]),
        (2, {"store": 1}, ["store-2", "store-3"]),
        (4, {"store": 1}, ["store-2", "store-3", "store", "store-2"]),
        (3, {"store-9": 1}, ["store", "store-2", "store-3"]),
        (0, {}, []),
    ],
)
def test_partitions_are_spread_and_begin_where_the_fewest_are(
    count: int, used: dict[str, int], expected: list[str]
) -> None:
    """R-P1: losing one store costs a part of an entity, never all of it."""
    assert Stores.of(MemoryStores(), store_names(3)).place(count, used) == expected


def test_sixteen_partitions_are_spread_evenly() -> None:
    placed = Stores.of(MemoryStores(), store_names(4)).place(16, {"store": 40, "store-3": 2})
    assert {name: placed.count(name) for name in placed} == dict.fromkeys(store_names(4), 4)


def test_nothing_is_placed_where_nothing_can_rest_now() -> None:
    async def scenario() -> None:
        stores = Stores.of(MemoryStores(), PAIR)
        await stores.offline("store")
        assert stores.place(2, {}) == ["store-2", "store-2"]
        await stores.offline("store-2")
        assert stores.place(2, {}) == PAIR

    asyncio.run(scenario())


# ---- going and coming


def test_each_store_has_a_directory_of_its_own(disk: Disk) -> None:
    async def scenario(stores: Stores) -> None:
        for name in PAIR:
            await written(stores.get(name))
        assert [(s.name, s.is_online, s.text) for s in stores.states()] == [
            ("store", True, ""),
            ("store-2", True, ""),
        ]
        assert sorted(path.name for path in disk.data.iterdir()) == PAIR

    disk.run(scenario)


def test_a_store_goes_and_comes_back_with_all_it_had(disk: Disk) -> None:
    """R-P1: the rest goes on meanwhile, and the directory may be carried away."""

    async def scenario(stores: Stores) -> None:
        stays, goes = (stores.get(name) for name in PAIR)
        epoch = await written(goes)
        switched: list[bool] = []
        goes.on_switched = switched.append
        await stores.offline("store-2")
        await stores.offline("store-2")
        await refused(goes, epoch, "'store-2' was taken offline")
        await written(stays)
        state = stores.states()[1]
        assert (state.is_online, state.text) == (False, "the store 'store-2' was taken offline")
        (disk.data / "store-2").rename(disk.data / "away")
        shutil.copytree(disk.data / "away", disk.data / "store-2")
        shutil.rmtree(disk.data / "away")
        await stores.online("store-2")
        await stores.online("store-2")
        assert switched == [False, True]
        assert stores.states()[1].text == ""
        assert (await goes.journal(ORDERS, 0, 1 << 20)).next == 2
        _, first, records = await replayed(goes, ORDERS)
        assert (first, len(records)) == (1, 1)
        assert len(await goes.payloads(ORDERS, [1])) == 1

    disk.run(scenario)


def test_a_partition_is_opened_anew_after_its_store_was_away(disk: Disk) -> None:
    """An owner that slept through it does not write into files that it does not know."""

    async def scenario(stores: Stores) -> None:
        store = stores.get("store-2")
        epoch = await written(store)
        await stores.offline("store-2")
        await stores.online("store-2")
        with pytest.raises(Unavailable, match="opened anew"):
            await store.append(ORDERS, epoch, 2, [enqueued(5, 2, 1)])
        with pytest.raises(Unavailable, match="opened anew"):
            await store.payloads(ORDERS, [1])
        with pytest.raises(Unavailable, match="opened anew"):
            await store.trim(ORDERS, 1, [], 0)
        assert await written(store) == epoch + 1
        await store.drop(ORDERS)
        assert (await replayed(store, ORDERS))[1] == -1

    disk.run(scenario)


def test_what_is_under_way_finishes_before_the_store_is_gone(disk: Disk) -> None:
    """R-T1: none of it is acknowledged and lost."""

    async def scenario(stores: Stores) -> None:
        store = stores.get("store-2")
        epoch = (await store.open(ORDERS)).epoch
        appends = [
            asyncio.ensure_future(store.append(ORDERS, epoch, n, [enqueued(5, n, 1)]))
            for n in range(1, 50)
        ]
        await stores.offline("store-2")
        await asyncio.gather(*appends)
        await stores.online("store-2")
        assert len((await replayed(store, ORDERS))[2]) == 49

    disk.run(scenario)


def test_a_replay_ends_when_its_store_goes(disk: Disk) -> None:
    async def scenario(stores: Stores) -> None:
        store = stores.get("store-2")
        await written(store)
        opening = await store.open(ORDERS)
        await stores.offline("store-2")
        with pytest.raises(Unavailable):
            await anext(opening.replays)

    disk.run(scenario)


def test_without_its_files_a_store_stays_offline(disk: Disk) -> None:
    """A missing disk must not look like a store without messages."""

    async def scenario(stores: Stores) -> None:
        store = stores.get("store-2")
        epoch = await written(store)
        await stores.offline("store-2")
        (disk.data / "store-2").rename(disk.data / "away")
        (disk.data / "store-2").mkdir()
        with pytest.raises(Unavailable, match="there is no store in"):
            await stores.online("store-2")
        # Nor does it try by itself: somebody may be copying its files.
        (disk.data / "store-2").rmdir()
        (disk.data / "away").rename(disk.data / "store-2")
        disk.now += RETRY_S
        await refused(store, epoch, "cannot be opened: there is no store in")
        shutil.rmtree(disk.data / "store-2")
        await stores.online("store-2", may_make=True)
        assert (await replayed(store, ORDERS))[1] == -1

    disk.run(scenario)


def test_a_closed_house_has_no_stores(disk: Disk) -> None:
    async def scenario(stores: Stores) -> None:
        epoch = await written(stores.get("store"))
        await stores.close()
        await refused(stores.get("store"), epoch, "is closed")

    disk.run(scenario)


def test_a_store_in_memory_comes_back_too() -> None:
    async def scenario() -> None:
        stores = Stores.of(MemoryStores(), PAIR)
        await written(stores.get("store"))
        await stores.offline("store")
        await stores.online("store")
        assert (await replayed(stores.get("store"), ORDERS))[1] == 1

    asyncio.run(scenario())


# ---- names that nobody configured


def test_a_store_that_is_not_configured_is_never_there(disk: Disk) -> None:
    async def scenario(stores: Stores) -> None:
        store = stores.get("store-3")
        assert store is stores.get("store-3")
        await refused(store, 1, "the store 'store-3' is not configured")
        for switch in (stores.offline, stores.online):
            with pytest.raises(UnknownStore, match="'store-3' is not configured"):
                await switch("store-3")
        assert [state.name for state in stores.states()] == [*PAIR, "store-3"]
        assert not stores.states()[2].is_online

    disk.run(scenario)


# ---- stores that cannot be opened


def spoil(directory: Path) -> None:
    directory.mkdir()
    (directory / "data.mdb").write_bytes(b"not a store at all " * 1000)


def test_a_spoilt_store_keeps_nobody_from_starting(disk: Disk) -> None:
    """R-P1: and it returns by itself when it can be opened, but is not tried all the time."""
    spoil(disk.data / "store")

    async def scenario(stores: Stores) -> None:
        await written(stores.get("store-2"))
        state = stores.states()[0]
        assert not state.is_online
        assert "cannot be opened" in state.text
        assert str(disk.data / "store") in state.text
        (disk.data / "store" / "data.mdb").unlink()
        await LmdbStore(disk.data / "store").close()
        with pytest.raises(Unavailable):
            await written(stores.get("store"))
        disk.now += RETRY_S
        await written(stores.get("store"))
        assert stores.states()[0].is_online

    disk.run(scenario)


def test_without_any_store_nothing_starts(disk: Disk) -> None:
    for name in PAIR:
        spoil(disk.data / name)
    with pytest.raises(Corrupt, match=str(disk.data / "store")):
        disk.stores()
    with pytest.raises(Corrupt):
        Stores.of(disk.factory, ["store"])


def test_a_store_in_use_is_told_with_its_owner(disk: Disk) -> None:
    async def scenario(stores: Stores) -> None:
        assert f"in use by process {os.getpid()}" in stores.states()[0].text

    owner = LmdbStore(disk.data / "store")
    disk.run(scenario)
    asyncio.run(owner.close())


def test_the_catalog_knows_which_stores_were_made(disk: Disk) -> None:
    """An empty directory in place of a missing disk is noticed at the next start."""

    async def start() -> Stores:
        catalog = EmbeddedCatalog(disk.data / "catalog")
        try:
            return await Stores.open(disk.factory, PAIR, catalog)
        finally:
            await catalog.close()

    async def scenario() -> None:
        stores = await start()
        await written(stores.get("store-2"))
        await stores.close()
        (disk.data / "store-2").rename(disk.data / "away")
        (disk.data / "store-2").mkdir()
        stores = await start()
        assert [state.is_online for state in stores.states()] == [True, False]
        (disk.data / "store-2").rmdir()
        (disk.data / "away").rename(disk.data / "store-2")
        await stores.online("store-2")
        assert (await replayed(stores.get("store-2"), ORDERS))[1] == 1
        await stores.close()

    asyncio.run(scenario())


# ---- stores that fail while they are in use


def test_a_failed_operation_may_be_tried_again(disk: Disk) -> None:
    async def scenario(stores: Stores) -> None:
        store = stores.get("store-2")
        epoch = await written(store)
        engine = disk.engines["store-2"]
        engine.failure = lambda: Unavailable("the disk is slow today")
        await refused(store, epoch, "slow today")
        assert stores.states()[1].is_online
        engine.failure = None
        await store.append(ORDERS, epoch, 2, [enqueued(5, 2, 1)])
        assert disk.engines["store-2"] is engine

    disk.run(scenario)


def test_a_broken_engine_is_exchanged(disk: Disk) -> None:
    async def scenario(stores: Stores) -> None:
        store = stores.get("store-2")
        epoch = await written(store)
        await written(store, BILLS)
        engine = disk.engines["store-2"]
        engine.failure = lambda: Broken("it gave up")
        with pytest.raises(Broken):
            await store.append(ORDERS, epoch, 2, [enqueued(5, 2, 1)])
        openings = [store.open(partition) for partition in (ORDERS, BILLS)]
        answers = await asyncio.gather(*openings, return_exceptions=True)
        assert any(isinstance(answer, Broken) for answer in answers)
        assert disk.engines["store-2"] is not engine
        await written(store)
        await written(store, BILLS)

    disk.run(scenario)


def test_files_that_vanish_are_noticed_and_found_again(disk: Disk) -> None:
    """R-T1: nothing is acknowledged that the next start would not find."""

    async def scenario(stores: Stores) -> None:
        stays, goes = (stores.get(name) for name in PAIR)
        epoch = await written(goes)
        (disk.data / "store-2").rename(disk.data / "away")
        with pytest.raises(Broken, match="are gone"):
            await goes.append(ORDERS, epoch, 2, [enqueued(5, 2, 1)])
        with pytest.raises(Unavailable, match="there is no store in"):
            await goes.open(ORDERS)
        assert not stores.states()[1].is_online
        assert not (disk.data / "store-2").exists()
        await written(stays)
        (disk.data / "away").rename(disk.data / "store-2")
        disk.now += RETRY_S
        _, first, records = await replayed(goes, ORDERS)
        assert (first, len(records)) == (1, 1)

    disk.run(scenario)


def handles(data: Path) -> list[int]:
    """The handles by which this process writes a file."""
    names = Path("/proc/self/fd")
    return [
        int(link.name)
        for link in names.iterdir()
        if link.is_symlink() and os.path.realpath(link) == str(data)
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and /dev/full")
@pytest.mark.parametrize(
    ("place", "returns"), [("/dev/full", "by command"), ("/dev/zero", "by itself")]
)
def test_a_disk_that_takes_no_writes_is_survived(disk: Disk, place: str, returns: str) -> None:
    """The engine's own handles fail, all of them at once, as on a broken disk.

    A full disk may get room again, so that the engine stays; other errors last.
    """

    async def scenario(stores: Stores) -> None:
        store = stores.get("store-2")
        epoch = await written(store)
        spoilt = handles(disk.data / "store-2" / "data.mdb")
        assert spoilt
        spoil_handles(spoilt, place)
        with pytest.raises(Unavailable, match="failed"):
            await store.append(ORDERS, epoch, 2, [enqueued(5, 2, 1)])
        if returns == "by command":
            await stores.offline("store-2")
            await stores.online("store-2")
        _, first, records = await recovered(store)
        assert (first, len(records)) == (1, 1)

    disk.run(scenario)


def spoil_handles(handles: list[int], place: str) -> None:
    """Let handles lead elsewhere: to a full disk, or to where nothing can be written at all."""
    mode = os.O_RDWR if place == "/dev/full" else os.O_RDONLY
    elsewhere = os.open(place, mode)
    for handle in handles:
        os.dup2(elsewhere, handle)
    os.close(elsewhere)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and /dev/full")
def test_an_engine_in_panic_is_opened_anew(disk: Disk) -> None:
    """When the page that names the last commit cannot be written, the engine gives up for good."""

    async def scenario(stores: Stores) -> None:
        store = stores.get("store-2")
        epoch = await written(store)
        before = disk.engines["store-2"]
        spoil_handles([max(handles(disk.data / "store-2" / "data.mdb"))], "/dev/full")
        for position in (2, 3):
            with pytest.raises(Unavailable):
                await store.append(ORDERS, epoch, position, [enqueued(5, position, 1)])
        _, first, records = await recovered(store)
        assert first == 1
        assert len(records) in (1, 2)  # the commit that failed is in doubt
        assert disk.engines["store-2"] is not before

    disk.run(scenario)


async def recovered(store: Store) -> tuple[int, int, list[object]]:
    """Knock as an owner does, which may be refused a few times."""
    for _ in range(3):
        try:
            epoch, first, records = await replayed(store, ORDERS)
            await store.append(ORDERS, epoch, 1 + len(records), [enqueued(6, 9, 1)])
            return epoch, first, list(records)
        except Unavailable:
            continue
    pytest.fail("the store did not come back")
