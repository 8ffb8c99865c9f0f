"""One old message keeps a segment: what pins one is moved, and the disk stays in bounds."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from peeklock.entity.records import CheckpointBegun
from peeklock.store.retention import Retention
from peeklock.store.segments.files import SPARE_MAX
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import PartitionId
from tests.store.builders import enqueued, message_of, shown
from tests.store.segments.disks import Faulty
from tests.store.stores import replayed

QUEUES = 10_000
SEGMENT = 1 << 20
SIZE = 300

BUSY = PartitionId("default", "busy")


def queue(number: int) -> PartitionId:
    return PartitionId("default", f"queue-{number}")


def opened(directory: Path) -> SegmentStore:
    return SegmentStore(
        directory, segment_bytes=SEGMENT, retention=Retention(age_ms=0), commit="inline"
    )


def on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("segment-*"))


async def interleave(store: SegmentStore) -> int:
    """One message for each of very many queues, and much traffic of one queue in between."""
    epoch = (await store.open(BUSY)).epoch
    position = 1
    for begin in range(0, QUEUES, 100):
        queues = [queue(number) for number in range(begin, begin + 100)]
        await asyncio.gather(*(store.open(each) for each in queues))
        appends = [store.append(each, 1, 1, [enqueued(5, 1, 1, SIZE)]) for each in queues]
        busy = store.append(BUSY, epoch, position, [enqueued(5, position, 500, 1000)])
        await asyncio.gather(*appends, busy)
        position += 500
    return position


def test_ten_thousand_old_messages_do_not_hold_the_disk(tmp_path: Path) -> None:
    """Alive and retained twice, and a reserve: never more for long."""
    directory = tmp_path / "store"

    async def scenario() -> None:
        store = opened(directory)
        position = await interleave(store)
        filled = on_disk(directory)
        assert filled > 50 << 20
        begun = [CheckpointBegun(6, position)]
        await store.append(BUSY, 1, position, begun, replay_from=position)
        await store.trim(BUSY, position, [], now=1 << 40)
        alive = store._index.living_bytes
        reserve = (1 + SPARE_MAX) * SEGMENT
        assert alive < QUEUES * (SIZE + 400)
        # Spare ones lie beside those in use.
        assert on_disk(directory) <= 2 * alive + reserve + SPARE_MAX * SEGMENT
        shutil.copytree(directory, tmp_path / "left")
        await store.close()
        for name in ("store", "left"):
            store = opened(tmp_path / name)
            for number in range(0, QUEUES, 333):
                assert (await replayed(store, queue(number)))[1] == 1
                found = await store.payloads(queue(number), [1])
                assert [shown(message) for message in found] == [shown(message_of(1, SIZE))]
            await store.close()

    asyncio.run(scenario())


def test_who_reads_never_meets_a_segment_that_is_used_again(tmp_path: Path) -> None:
    """Old messages are moved while they are read on another thread."""
    old: list[PartitionId] = []

    async def scenario() -> None:
        store = SegmentStore(
            tmp_path, segment_bytes=64 << 10, retention=Retention(age_ms=0), off_loop=True
        )
        busy = asyncio.ensure_future(keep_busy(store, old))
        whole = [shown(message_of(1, SIZE))]
        random_source = random.Random(1)
        reads = 0
        while not busy.done():
            await asyncio.sleep(0)
            if old:
                found = await store.payloads(random_source.choice(old), [1])
                assert [shown(message) for message in found] == whole
                reads += 1
        await busy
        assert reads > 50
        # Each of them had a segment of its own at first.
        assert len(store._index.living) < len(old) // 3
        await store.close()

    asyncio.run(scenario())


async def keep_busy(store: SegmentStore, old: list[PartitionId]) -> None:
    """Write and trim, and let something old lie in each segment."""
    epoch = (await store.open(BUSY)).epoch
    position = 1
    for turn in range(60):
        pinning = queue(turn)
        await store.open(pinning)
        await store.append(pinning, 1, 1, [enqueued(5, 1, 1, SIZE)])
        old.append(pinning)
        await store.append(BUSY, epoch, position, [enqueued(5, position, 50, 1000)])
        position += 50
        begun = [CheckpointBegun(5, position)]
        await store.append(BUSY, epoch, position, begun, replay_from=position)
        await store.trim(BUSY, position, [], now=1 << 40)
        position += 1


async def pin(store: SegmentStore, old: list[PartitionId]) -> int:
    """Something old in each segment, all else to be trimmed; answers up to where."""
    epoch = (await store.open(BUSY)).epoch
    position = 1
    for turn in range(20):
        old.append(queue(turn))
        await store.open(old[-1])
        await store.append(old[-1], 1, 1, [enqueued(5, 1, 1, SIZE)])
        await store.append(BUSY, epoch, position, [enqueued(5, position, 50, 1000)])
        position += 50
    begun = [CheckpointBegun(5, position)]
    await store.append(BUSY, epoch, position, begun, replay_from=position)
    await store._ask(lambda _: 0)
    return position


async def expect_old(store: SegmentStore, old: list[PartitionId]) -> None:
    for each in old:
        found = await store.payloads(each, [1])
        assert [shown(message) for message in found] == [shown(message_of(1, SIZE))]


def test_a_segment_that_cannot_be_read_keeps_nobody_from_trimming(tmp_path: Path) -> None:
    """What lies in it stays there until it can be read; the others are freed."""
    old: list[PartitionId] = []

    async def scenario() -> None:
        store = SegmentStore(tmp_path, segment_bytes=64 << 10, retention=Retention(age_ms=0))
        position = await pin(store, old)
        damaged = store._segments.used[7]
        damaged.path.rename(damaged.path.with_name("aside"))
        store._segments._handles.clear()
        assert await store.trim(BUSY, position, [], now=1 << 40) == position
        damaged.path.with_name("aside").rename(damaged.path)
        assert 7 in store._index.living
        assert len(store._index.living) < 8
        await expect_old(store, old)
        # It was only away: nothing of it is lost, nor does it stay for ever.
        assert store._relocation._unreadable == set()
        await store.close()

    asyncio.run(scenario())


def test_what_could_not_be_moved_is_moved_the_next_time(tmp_path: Path) -> None:
    """A full disk refuses a move; with room again its segment is freed as all others."""
    old: list[PartitionId] = []
    disk = Faulty()

    async def scenario() -> None:
        store = SegmentStore(
            tmp_path, segment_bytes=64 << 10, retention=Retention(age_ms=0), disk=disk
        )
        position = await pin(store, old)
        disk.write_error = OSError(errno.ENOSPC, "full")
        for _ in range(3):
            await store.trim(BUSY, position, [], now=1 << 40)
        assert len(store._index.living) > 15
        disk.write_error = None
        await store.trim(BUSY, position, [], now=1 << 40)
        assert len(store._index.living) < 8
        assert store._relocation._unreadable == set()
        await expect_old(store, old)
        await store.close()

    asyncio.run(scenario())


def test_moves_are_read_on_the_thread_of_the_store(tmp_path: Path) -> None:
    """The threads that all share may be taken by whoever waits for a disk that hangs."""
    old: list[PartitionId] = []

    async def scenario() -> None:
        taken = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(taken)
        store = SegmentStore(tmp_path, segment_bytes=64 << 10, retention=Retention(age_ms=0))
        position = await pin(store, old)
        hanging = threading.Event()
        taken.submit(hanging.wait)
        try:
            await asyncio.wait_for(store.trim(BUSY, position, [], now=1 << 40), 20)
        finally:
            hanging.set()
        assert len(store._index.living) < 8
        await store.close()

    asyncio.run(scenario())
