"""A full disk: the index is behind, the log goes on, and everything comes back with the room."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from peeklock.entity.records import CheckpointBegun
from peeklock.store.entries import LmdbTransaction
from peeklock.store.retention import Retention
from peeklock.store.segments import keeper
from peeklock.store.segments.index import Index
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import Broken, StoreError, Unavailable
from tests.store.builders import enqueued
from tests.store.segments.disks import Faulty, copied, expect, opened, run
from tests.store.stores import ORDERS, replayed

ENDS_S = 20.0
MUCH = 40
FULL = lmdb.DiskError("mdb_txn_commit: No space left on device")
# What the engine says of some file systems when they are full.
BAD = lmdb.Error("mdb_txn_commit: Input/output error")


class Failing:
    """Lets transactions of the index fail at their ends, when all else is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # A sync takes long enough: it need not be thousands of commits.
        monkeypatch.setattr(keeper, "PENDING_MAX", MUCH)
        self.error: Exception | None = None
        self.count = 0
        save = Index._save

        def failing(index: Index, transaction: LmdbTransaction) -> list[int]:
            empty = save(index, transaction)
            if self.error is not None:
                self.count += 1
                raise self.error
            return empty

        monkeypatch.setattr(Index, "_save", failing)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(monkeypatch)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(ENDS_S):
        while not is_so():  # noqa: ASYNC110 - another thread makes it so
            await asyncio.sleep(0)


async def fails(store: SegmentStore) -> None:
    """Ask the index for something that it cannot do now."""
    with pytest.raises(Unavailable) as caught:
        await store.trim(ORDERS, 1, [], 5)
    assert not isinstance(caught.value, Broken)


@pytest.mark.parametrize("error", [FULL, BAD])
def test_an_index_that_finds_no_room_is_behind(
    tmp_path: Path, failing: Failing, error: Exception
) -> None:
    """Nobody sends meanwhile, the log takes what is settled, and nothing is missing."""

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        failing.error = error
        await fails(store)
        assert store.full
        end = MUCH + 100
        for position in range(2, end):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1)])
        await fails(store)
        run_copy(copied(tmp_path / "store", "copy"), end)
        failing.error = None
        await until(lambda: not store.full)
        await store.trim(ORDERS, 1, [], 5)
        await expect(store, ORDERS, end)
        assert len(store._log.pending) <= 1

    def run_copy(copy: Path, end: int) -> None:
        """What a kill would leave now is whole."""
        failing.error = None
        store = opened(copy)
        tails = [tail.end for tail in store._log.tails.values()]
        failing.error = error
        assert tails == [end]
        store._log.close()
        store._environment.close()

    store = opened(tmp_path / "store", lag_s=0.05, free_space=lambda _: 60 << 10, reserve_bytes=0)
    run(store, scenario)
    run(opened(tmp_path / "store"), lambda store: expect(store, ORDERS, MUCH + 100))


@pytest.mark.parametrize("error", [FULL, BAD])
def test_a_store_whose_index_fails_can_be_closed(
    tmp_path: Path, failing: Failing, error: Exception
) -> None:
    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        failing.error = error
        for position in range(1, MUCH + 100):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1)])
        await until(lambda: failing.count > 0)
        async with asyncio.timeout(ENDS_S):
            await store.close()
        failing.error = None

    run(opened(tmp_path, free_space=lambda _: 0), scenario)
    run(opened(tmp_path), lambda store: expect(store, ORDERS, MUCH + 100))


@pytest.mark.usefixtures("failing")
def test_a_store_whose_log_failed_can_be_closed_however_far_the_index_is(tmp_path: Path) -> None:
    disk = Faulty()

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        disk.sync_error = OSError(errno.EIO, "no")
        with pytest.raises(Broken):
            await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        store._log.pending.extend(store._log.pending * MUCH)
        store._committed()
        async with asyncio.timeout(ENDS_S):
            await store.close()

    run(opened(tmp_path, disk=disk, lag_s=1000), scenario)


def test_an_index_that_fails_on_a_disk_with_room_breaks_the_store(
    tmp_path: Path, failing: Failing
) -> None:
    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        failing.error = BAD
        with pytest.raises(Broken):
            await store.trim(ORDERS, 1, [], 5)
        with pytest.raises(Broken):
            await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])

    run(opened(tmp_path, free_space=lambda _: 1 << 40), scenario)


def test_what_is_gone_is_gone_although_the_index_cannot_learn_it(
    tmp_path: Path, failing: Failing
) -> None:
    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        failing.error = FULL
        await store.drop(ORDERS)
        failing.error = None
        _, _, records = await replayed(store, ORDERS)
        assert records == []

    run(opened(tmp_path), scenario)


def test_a_segment_that_cannot_be_made_is_not_tried_with_every_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Counting(Faulty):
        count = 0

        def make(self, path: Path, size: int) -> None:
            if self.make_error is not None:
                self.count += 1
            super().make(path, size)

    disk = Counting()

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        disk.make_error = OSError(errno.ENOSPC, "full")
        for position in range(1, 35):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1, 1000)])
            await store.trim(ORDERS, 1, [], 5)

    with caplog.at_level(logging.WARNING, "peeklock.store"):
        run(opened(tmp_path, disk=disk), scenario)
    assert 1 <= disk.count <= 8
    told = [each for each in caplog.messages if each.startswith("store-segment-failed")]
    assert len(told) == 1


def test_the_index_needs_room_that_segments_cannot_give(tmp_path: Path) -> None:
    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        assert store._log.left_bytes > 1 << 20
        assert store.full

    store = SegmentStore(
        tmp_path, reserve_bytes=1 << 20, free_space=lambda _: 4096, segment_bytes=4 << 20
    )
    run(store, scenario)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 16 MB."""
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(directory)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_a_small_disk_that_somebody_else_fills(small: Path) -> None:
    """Settling goes on while segments have room; when there is room again, all is well."""
    ballast = small / "ballast"

    def open_store() -> SegmentStore:
        return SegmentStore(
            small / "store",
            segment_bytes=4 << 20,
            reserve_bytes=1 << 20,
            lag_s=0.05,
            retention=Retention(age_ms=0),
        )

    async def settle(store: SegmentStore, position: int) -> int:
        """Write until the disk takes no more."""
        while True:
            try:
                await store.append(ORDERS, 1, position, [CheckpointBegun(6, 1)])
            except Broken:
                raise
            except StoreError:
                return position
            position += 1

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        fill(ballast)
        end = await settle(store, 2)
        assert end > 1000
        await until(lambda: store.full)
        async with asyncio.timeout(ENDS_S):
            await store.close()

    async def after(store: SegmentStore) -> None:
        """It opens on the full disk, too."""
        tail = store._tail(ORDERS.key)
        ballast.unlink()
        await until(lambda: not store.full)
        epoch = (await store.open(ORDERS)).epoch
        await store.append(ORDERS, epoch, tail.end, [CheckpointBegun(7, 1)], tail.end)
        await store.trim(ORDERS, tail.end, [], 1 << 40)

    run(open_store(), scenario)
    run(open_store(), after)


def fill(path: Path) -> None:
    """Write until not a byte more is taken."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(os.urandom(size))
