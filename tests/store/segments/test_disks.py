"""Disks that fail: nothing that was answered is lost, and nothing is asked of them in vain."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from peeklock.entity.records import CheckpointBegun
from peeklock.store.retention import Retention
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import Broken, Corrupt, Store, Unavailable
from peeklock.store.stores import SwitchedStore
from tests.store.builders import enqueued, told
from tests.store.segments.disks import Faulty, expect, opened, run
from tests.store.stores import ORDERS, replayed


def test_a_failed_sync_breaks_the_store_until_it_is_opened_anew(tmp_path: Path) -> None:
    """Asking again proves nothing, so nobody does."""
    disk = Faulty()

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        disk.sync_error = OSError(errno.EIO, "no")
        with pytest.raises(Broken):
            await store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)])
        disk.sync_error = None
        syncs, writes = disk.syncs, len(disk.writes)
        with pytest.raises(Broken):
            await store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)])
        with pytest.raises(Broken):
            await store.open(ORDERS)
        with pytest.raises(Broken):
            await store.trim(ORDERS, 1, [], 5)
        await store.close()
        assert (disk.syncs, len(disk.writes)) == (syncs, writes)

    run(opened(tmp_path, disk=disk), scenario)

    async def after(store: SegmentStore) -> None:
        epoch, first, records = await replayed(store, ORDERS)
        # The second one was in doubt; it is there or not, and numbers go on behind it.
        end = 1 + sum(len(getattr(record, "messages", [])) for record in records)
        assert first == 1
        assert end in (2, 3)
        await store.append(ORDERS, epoch, end, [enqueued(5, end, 1)])

    run(opened(tmp_path, disk=disk), after)


@pytest.mark.parametrize("mode", ["thread", "inline"])
def test_a_full_disk_refuses_and_the_store_goes_on(tmp_path: Path, mode: str) -> None:
    """Nothing is in doubt: no segment could be made. What trim frees can be filled again."""
    disk = Faulty()

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        disk.make_error = OSError(errno.ENOSPC, "full")
        position = 1
        refused = ""
        while not refused:
            try:
                await store.append(ORDERS, 1, position, [enqueued(5, position, 10, 1000)])
                position += 10
            except Broken:
                raise
            except Unavailable as error:
                refused = str(error)
        assert "full" in refused
        assert position > 50
        await expect_end(store, position)
        # Smaller ones still find room in the segment that is there.
        await store.append(ORDERS, 2, position, [CheckpointBegun(6, 1)], replay_from=position)
        disk.make_error = None
        for step in range(1, 500, 50):
            await store.append(ORDERS, 2, position + step, [enqueued(7, step, 50, 1000)])

    where = "inline" if mode == "inline" else "thread"
    run(opened(tmp_path, disk=disk, commit=where, retention=Retention(age_ms=0)), scenario)


async def expect_end(store: SegmentStore, position: int) -> None:
    _, first, records = await replayed(store, ORDERS)
    assert (first, told(records, False)) == (1, told([enqueued(5, 1, position - 1, 1000)], False))


def test_where_the_disk_is_nearly_full_smaller_segments_do(tmp_path: Path) -> None:
    class Nearly(Faulty):
        def make(self, path: Path, size: int) -> None:
            if size > 2 << 20:
                raise OSError(errno.ENOSPC, "nearly full")
            super().make(path, size)

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        for position in range(1, 3000, 100):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 100, 1000)])
        await expect(store, ORDERS, 3001, 1000)

    run(SegmentStore(tmp_path, segment_bytes=4 << 20, disk=Nearly(), commit="inline"), scenario)
    assert {path.stat().st_size for path in tmp_path.glob("segment-*")} == {1 << 20}


def test_a_write_that_fails_for_want_of_room_may_be_repeated(tmp_path: Path) -> None:
    """Some file systems need room even for what was written before."""
    disk = Faulty()

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        disk.write_error = OSError(errno.ENOSPC, "full")
        with pytest.raises(Unavailable, match="full"):
            await store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)])
        disk.write_error = None
        await store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)])
        disk.write_error = OSError(errno.EIO, "bad")
        with pytest.raises(Broken):
            await store.append(ORDERS, 1, 3, [enqueued(5, 3, 1)])

    run(opened(tmp_path, disk=disk), scenario)
    run(opened(tmp_path), lambda store: expect(store, ORDERS, 3))


def test_a_directory_that_is_gone_breaks_the_store(tmp_path: Path) -> None:
    directory = tmp_path / "store"

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        directory.rename(tmp_path / "aside")
        with pytest.raises(Broken, match="are gone"):
            await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        with pytest.raises(Broken, match="are gone"):
            await store.trim(ORDERS, 1, [], 5)

    run(opened(directory), scenario)


def test_a_store_whose_sync_failed_returns_by_itself(tmp_path: Path) -> None:
    """Whoever opens a partition again brings the store back, and nothing answered is missing."""
    disk = Faulty()

    def factory(_name: str, may_make: bool) -> Store:
        return opened(tmp_path, make=may_make, disk=disk)

    async def scenario() -> None:
        store = SwitchedStore("store", factory)
        assert store.start(may_make=True) is None
        epoch = (await store.open(ORDERS)).epoch
        await store.append(ORDERS, epoch, 1, [enqueued(5, 1, 1)])
        disk.sync_error = OSError(errno.EIO, "no")
        with pytest.raises(Broken):
            await store.append(ORDERS, epoch, 2, [enqueued(5, 2, 1)])
        disk.sync_error = None
        with pytest.raises(Broken):
            await store.open(ORDERS)
        epoch, first, records = await replayed(store, ORDERS)
        assert first == 1
        assert len(records) in (1, 2)
        end = 1 + len(records)
        await store.append(ORDERS, epoch, end, [enqueued(5, end, 1)])
        await store.close()

    asyncio.run(scenario())


def looks_full(store: SegmentStore) -> bool:
    """Ask the store anew: it may have changed its mind."""
    return store.full


def test_the_low_water_mark_counts_the_room_in_segments(tmp_path: Path) -> None:
    now = 0.0
    disk = Faulty()

    async def scenario(store: SegmentStore) -> None:
        nonlocal now
        await store.open(ORDERS)
        # No spare segment is made beside this, in time or too late: it would be room.
        disk.make_error = OSError(errno.ENOSPC, "full")
        position = 1
        while not looks_full(store):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 10, 1000)])
            position += 10
            now += 2.0
        assert position < 200
        disk.make_error = None
        await store.append(ORDERS, 1, position, [enqueued(6, position, 60, 1000)])
        position += 60
        await store.append(ORDERS, 1, position, [CheckpointBegun(7, 1)], replay_from=position)
        # A segment is free again once an index is stored that does not need it: that is room.
        for _ in range(500):
            await store.trim(ORDERS, position, [], now=1 << 40)
            now += 2.0
            if not looks_full(store):
                break
        assert not looks_full(store)

    store = opened(
        tmp_path,
        reserve_bytes=40 << 10,
        free_space=lambda _: 0,
        clock=lambda: now,
        disk=disk,
        retention=Retention(age_ms=0),
    )
    run(store, scenario)


@pytest.mark.parametrize("left", [0.99, 0.5, 0.03])
def test_an_index_that_is_too_short_is_refused_with_a_sentence(tmp_path: Path, left: float) -> None:
    """The engine would end the process."""

    async def fill(store: SegmentStore) -> None:
        await store.open(ORDERS)
        for position in range(1, 600):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1)])

    run(opened(tmp_path), fill)
    data = tmp_path / "data.mdb"
    os.truncate(data, int(data.stat().st_size * left))
    with pytest.raises(Corrupt, match=r"bytes shorter than it was: page .* `peeklock store check`"):
        opened(tmp_path)


def test_a_process_without_a_descriptor_left_takes_nothing_for_damaged(tmp_path: Path) -> None:
    """What the system refuses says nothing of what lies on the disk; the broker asks again."""

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 20, 1000)])
        with no_descriptors(), pytest.raises(Unavailable, match="Too many open files"):
            await store.payloads(ORDERS, [1, 2, 3])
        await expect(store, ORDERS, 21, 1000)

    run(opened(tmp_path), scenario)


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Be at the limit meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
