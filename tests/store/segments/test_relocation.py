"""One old message keeps a segment: what pins one is moved, and the disk stays in bounds."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

from peeklock.entity.records import CheckpointBegun
from peeklock.store.retention import Retention
from peeklock.store.segments.files import SPARE_MAX
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import PartitionId
from tests.store.builders import enqueued, message_of, shown
from tests.store.homes import replayed

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
        chance = random.Random(1)
        reads = 0
        while not busy.done():
            await asyncio.sleep(0)
            if old:
                found = await store.payloads(chance.choice(old), [1])
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


def test_a_segment_that_cannot_be_read_keeps_nobody_from_trimming(tmp_path: Path) -> None:
    """What lies in it stays there; the others are freed."""
    old: list[PartitionId] = []

    async def scenario() -> None:
        store = SegmentStore(tmp_path, segment_bytes=64 << 10, retention=Retention(age_ms=0))
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
        damaged = store._segments.used[7]
        damaged.path.rename(damaged.path.with_name("aside"))
        store._segments._handles.clear()
        assert await store.trim(BUSY, position, [], now=1 << 40) == position
        damaged.path.with_name("aside").rename(damaged.path)
        assert 7 in store._index.living
        assert len(store._index.living) < 8
        for each in old:
            found = await store.payloads(each, [1])
            assert [shown(message) for message in found] == [shown(message_of(1, SIZE))]
        await store.close()

    asyncio.run(scenario())
