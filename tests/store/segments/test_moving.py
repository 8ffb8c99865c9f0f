"""A store that LMDB has kept, opened as a segment store: all of it is there, whatever happens."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Sequence
from pathlib import Path

import lmdb
import pytest

from peeklock.entity.records import CheckpointBegun
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.retention import Retention
from peeklock.store.segments.disk import Disk, RealDisk
from peeklock.store.segments.frames import Buffer
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import (
    BLOCK,
    Corrupt,
    PartitionId,
    Store,
    StoreError,
    Unavailable,
)
from tests.store.builders import enqueued, shown, told
from tests.store.stores import BILLS, ORDERS, replayed

EMPTY = PartitionId("default", "empty")
GONE = PartitionId("default", "gone")
EACH = BLOCK // 2


async def fill(store: LmdbStore) -> None:
    """Partitions with all that a past can bring: old bodies, a trimmed journal, a lagging entry."""
    await store.open(ORDERS)
    for turn in range(6):
        first = 1 + turn * EACH
        await store.append(ORDERS, 1, first, [enqueued(turn, first, EACH, 20)])
    end = 1 + 6 * EACH
    await store.append(ORDERS, 1, end, [CheckpointBegun(6, 1)], replay_from=end)
    await store.trim(ORDERS, end, [1], now=1 << 40)
    await store.append(ORDERS, 1, end + 1, [enqueued(7, end + 1, 3)])
    await store.open(BILLS, 7)
    for position in range(1, 50):
        await store.append(BILLS, 7, position, [enqueued(5, position, 1)])
    await store.open(EMPTY)
    await store.open(GONE, 30)
    await store.append(GONE, 30, 1, [enqueued(5, 1, 1)])
    await store.drop(GONE)
    await store.close()


async def looked_at(store: Store) -> list[object]:
    """All that anybody can see of it."""
    seen: list[object] = []
    for partition in (ORDERS, BILLS, EMPTY, GONE):
        epoch, first, records = await replayed(store, partition)
        page = await store.journal(partition, 0, 1 << 30)
        seen.append((epoch, first, told(records, False), page.first, page.next, page.chunks))
    bodies = await store.payloads(ORDERS, [EACH + 1, BLOCK, 2 * BLOCK])
    bodies += await store.payloads(BILLS, range(1, 50))
    seen += [shown(message) for message in bodies]
    for gone in (1, 2 * BLOCK + 1):
        with pytest.raises(Corrupt):
            await store.payloads(ORDERS, [gone])
    await store.close()
    return seen


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object]]:
    directory = tmp_path_factory.mktemp("old") / "store"
    asyncio.run(fill(LmdbStore(directory, retention=Retention(age_ms=0))))
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    return directory, asyncio.run(looked_at(LmdbStore(copy)))


def opened(directory: Path, disk: Disk | None = None) -> SegmentStore:
    return SegmentStore(directory, segment_bytes=64 << 10, disk=disk)


def test_all_of_it_is_there_and_goes_on(tmp_path: Path, old: tuple[Path, list[object]]) -> None:
    directory = tmp_path / "store"
    shutil.copytree(old[0], directory)
    assert asyncio.run(looked_at(opened(directory))) == old[1]
    assert sorted(path.name for path in directory.iterdir() if path.is_dir()) == []
    # The file that held everything is the small index now.
    assert (directory / "data.mdb").stat().st_size < (old[0] / "data.mdb").stat().st_size

    async def go_on(store: SegmentStore) -> None:
        epoch = (await store.open(BILLS)).epoch
        await store.append(BILLS, epoch, 50, [enqueued(5, 50, 1)])
        assert await store.trim(ORDERS, 1, [], now=1 << 40) > 0
        await store.close()

    asyncio.run(go_on(opened(directory)))

    async def after(store: SegmentStore) -> None:
        _, _, records = await replayed(store, BILLS)
        assert len(records) == 50
        await store.close()

    asyncio.run(after(opened(directory)))


class Stopping:
    """A disk that ends the work at its n-th step."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.real = RealDisk()

    def make(self, path: Path, size: int) -> None:
        self._step()
        self.real.make(path, size)

    def write(self, file: int, pieces: Sequence[Buffer], offset: int) -> None:
        self._step()
        self.real.write(file, pieces, offset)

    def sync(self, file: int) -> None:
        self._step()
        self.real.sync(file)

    def _step(self) -> None:
        self.steps -= 1
        if self.steps == 0:
            raise OSError(errno.EIO, "the power went")


def test_a_move_that_ends_anywhere_changes_nothing_and_may_be_repeated(
    tmp_path: Path, old: tuple[Path, list[object]]
) -> None:
    steps = 0
    while True:
        steps += 1
        directory = tmp_path / str(steps)
        shutil.copytree(old[0], directory)
        try:
            store = opened(directory, Stopping(steps))
        except (StoreError, OSError):
            # A full disk has its room again.
            assert [path.name for path in directory.iterdir() if "segment" in path.name] == []
            assert not (directory / "moving").exists()
            # As it was for the other engine, too.
            copy = tmp_path / "copy"
            shutil.copytree(directory, copy)
            assert asyncio.run(looked_at(LmdbStore(copy))) == old[1]
            shutil.rmtree(copy)
            assert asyncio.run(looked_at(opened(directory))) == old[1]
        else:
            asyncio.run(store.close())
            break
    assert steps > 10


def test_a_kill_after_the_new_index_is_in_place_leaves_nothing_to_do(
    tmp_path: Path, old: tuple[Path, list[object]]
) -> None:
    directory = tmp_path / "store"
    shutil.copytree(old[0], directory)
    asyncio.run(opened(directory).close())
    (directory / "moving").mkdir()
    (directory / "moving" / "lock.mdb").touch()
    assert asyncio.run(looked_at(opened(directory))) == old[1]
    assert not (directory / "moving").exists()


def test_there_is_no_way_back(tmp_path: Path, old: tuple[Path, list[object]]) -> None:
    directory = tmp_path / "store"
    shutil.copytree(old[0], directory)
    asyncio.run(opened(directory).close())
    with pytest.raises(StoreError, match=r"'peeklock store 2'.*`--store embedded`"):
        LmdbStore(directory)


def test_a_damaged_store_is_repaired_before_it_is_moved(
    tmp_path: Path, old: tuple[Path, list[object]]
) -> None:
    directory = tmp_path / "store"
    shutil.copytree(old[0], directory)
    with lmdb.open(str(directory), max_dbs=2) as environment:
        values = environment.open_db(b"values")
        with environment.begin(db=values, write=True) as transaction:
            assert transaction.delete((2).to_bytes(4, "big") + (3).to_bytes(8, "big"))
    before = (directory / "data.mdb").read_bytes()
    with pytest.raises((Corrupt, Unavailable), match="goes on at 4 where 3 is due") as told:
        opened(directory)
    for words in ("moved to segments", "`peeklock store check`", "`peeklock store repair`"):
        assert words in str(told.value)
    assert not (directory / "moving").exists()
    assert not list(directory.glob("segment*"))
    assert (directory / "data.mdb").read_bytes() == before
