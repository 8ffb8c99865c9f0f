"""What only the segment store promises: files that never grow, shared commits, bad disks."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from peeklock.entity.records import CheckpointBegun
from peeklock.store.retention import Retention
from peeklock.store.segments.disk import RealDisk
from peeklock.store.segments.files import SPARE_MAX
from peeklock.store.segments.frames import Buffer, decode_header
from peeklock.store.segments.store import SegmentStore
from peeklock.store.segments.tail import Drop
from peeklock.store.store import Broken, Corrupt, Damaged, PartitionId, StoreError, Unavailable
from tests.store.builders import enqueued, message_of, shown, told
from tests.store.homes import BILLS, ORDERS, replayed

SEGMENT = 64 << 10
SIZE = 100


class Faulty:
    """A disk that fails on command and remembers what was asked of it; the rest is real."""

    def __init__(self) -> None:
        self.real = RealDisk()
        self.sync_error: OSError | None = None
        self.write_error: OSError | None = None
        self.make_error: OSError | None = None
        self.writes: list[tuple[str, int, bytes]] = []
        self.before: list[bytes] = []  # what lay there
        self.syncs = 0

    def make(self, path: Path, size: int) -> None:
        if self.make_error is not None:
            raise self.make_error
        self.real.make(path, size)

    def write(self, file: int, pieces: Sequence[Buffer], offset: int) -> None:
        if self.write_error is not None:
            raise self.write_error
        raw = b"".join(pieces)
        self.before.append(os.pread(file, len(raw), offset))
        self.writes.append((os.readlink(f"/proc/self/fd/{file}"), offset, raw))
        self.real.write(file, pieces, offset)

    def sync(self, file: int) -> None:
        self.syncs += 1
        if self.sync_error is not None:
            raise self.sync_error
        self.real.sync(file)


def opened(directory: Path, **options: Any) -> SegmentStore:
    options.setdefault("commit", "inline")
    return SegmentStore(directory, segment_bytes=SEGMENT, **options)


def run(store: SegmentStore, scenario: Callable[[SegmentStore], Awaitable[None]]) -> None:
    async def living() -> None:
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(living())


def copied(directory: Path, name: str) -> Path:
    """A copy of a store as a kill would leave it now."""
    copy = directory.with_name(name)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    return copy


async def expect(store: SegmentStore, partition: PartitionId, end: int, size: int = SIZE) -> None:
    """All messages from 1 up to `end` (excluded) are there, with their bodies."""
    _, first, records = await replayed(store, partition)
    assert (first, told(records, False)) == (1, told([enqueued(5, 1, end - 1, size)], False))
    positions = list(range(1, end))
    bodies = await store.payloads(partition, positions)
    assert [shown(m) for m in bodies] == [shown(message_of(p, size)) for p in positions]


# ---- commits


def test_all_partitions_share_one_write_and_one_sync(tmp_path: Path) -> None:
    disk = Faulty()

    async def scenario(store: SegmentStore) -> None:
        partitions = [PartitionId("default", f"queue-{n}") for n in range(10)]
        await asyncio.gather(*(store.open(partition) for partition in partitions))
        writes, syncs = len(disk.writes), disk.syncs
        await asyncio.gather(
            *(store.append(partition, 1, 1, [enqueued(5, 1, 1)]) for partition in partitions)
        )
        assert (len(disk.writes) - writes, disk.syncs - syncs) == (1, 1)

    run(opened(tmp_path, disk=disk), scenario)


def test_segments_are_used_again_and_never_grow(tmp_path: Path) -> None:
    """Much more is written than ever lies on the disk."""
    disk = Faulty()

    async def scenario(store: SegmentStore) -> None:
        epoch = (await store.open(ORDERS)).epoch
        position = 1
        for _ in range(100):
            await store.append(ORDERS, epoch, position, [enqueued(5, position, 20, 1000)])
            position += 20
            begun = [CheckpointBegun(5, position)]
            await store.append(ORDERS, epoch, position, begun, replay_from=position)
            await store.trim(ORDERS, position, [], now=1 << 40)
            position += 1

    run(opened(tmp_path, disk=disk, retention=Retention(age_ms=0)), scenario)
    sizes = sizes_in(tmp_path)
    assert len(sizes) <= 2 + SPARE_MAX
    assert set(sizes) == {SEGMENT}
    assert sum(len(raw) for _, _, raw in disk.writes) > 5 * sum(sizes)


def sizes_in(directory: Path) -> list[int]:
    return [path.stat().st_size for path in directory.glob("segment-*")]


def test_a_commit_that_is_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        await store.append(ORDERS, 1, 2, [enqueued(5, 2, 3000, 1000)])
        await store.append(ORDERS, 1, 3002, [enqueued(5, 3002, 1)])
        found = await store.payloads(ORDERS, [1, 2, 77, 3001, 3002])
        assert [len(message.content) for message in found][2:4] == [1000, 1000]

    async def after(store: SegmentStore) -> None:
        _, _, records = await replayed(store, ORDERS)
        assert sum(len(getattr(record, "messages", [])) for record in records) == 3002
        await store.open(BILLS)
        await store.append(BILLS, 1, 1, [enqueued(5, 1, 10, 1000)])
        await store.drop(ORDERS)

    run(opened(tmp_path), scenario)
    assert max(sizes_in(tmp_path)) > 3_000_000
    run(opened(tmp_path), after)
    assert max(sizes_in(tmp_path)) == SEGMENT


def test_what_the_index_does_not_know_is_found_by_an_opening(tmp_path: Path) -> None:
    """A kill at any moment: the index may lag as far as it likes."""
    directory = tmp_path / "store"

    async def scenario(store: SegmentStore) -> None:
        for partition in (ORDERS, BILLS):
            await store.open(partition)
        for position in range(1, 200):
            await asyncio.gather(
                store.append(ORDERS, 1, position, [enqueued(5, position, 1)]),
                store.append(BILLS, 1, position, [enqueued(5, position, 1, 900)]),
            )
        await store.drop(PartitionId("default", "nobody"))
        for position in range(200, 300):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1)])
        # A checkpoint, a new partition and a drop behind the index, too.
        await store.append(BILLS, 1, 200, [CheckpointBegun(6, 1)], replay_from=200)
        await store.open(PartitionId("default", "new"))
        await store.open(PartitionId("default", "gone"), 9)
        await store._submit(Drop(store._tails["default|gone|0"]))
        copied(directory, "left")

    async def after(store: SegmentStore) -> None:
        await expect(store, ORDERS, 300)
        assert (await replayed(store, BILLS))[:2] == (2, 200)
        assert len(await store.payloads(BILLS, [1, 199])) == 2
        assert (await store.open(PartitionId("default", "new"))).epoch == 2
        assert (await store.open(PartitionId("default", "gone"))).epoch == 10

    run(opened(directory, lag_s=1000), scenario)
    run(opened(tmp_path / "left"), after)
    run(opened(tmp_path / "left"), lambda store: expect(store, ORDERS, 300))


# ---- what lies behind the end


@pytest.mark.parametrize("seed", range(12))
def test_a_torn_commit_is_left_out_and_its_place_is_used(tmp_path: Path, seed: int) -> None:
    """Any part of the last write may be missing, also in a segment that was used before."""
    directory = tmp_path / "store"
    chance = random.Random(seed)
    disk = Faulty()
    count = chance.randrange(1, 60)

    async def scenario(store: SegmentStore) -> None:
        await store.open(BILLS)
        await wear(store, chance.randrange(0, 12))
        await store.open(ORDERS)
        for position in range(1, count):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1, 900)])
        copied(directory, "before")
        await store.append(ORDERS, 1, count, [enqueued(5, count, 20, 900)])
        copied(directory, "torn")

    run(opened(directory, disk=disk, lag_s=1000, retention=Retention(age_ms=0)), scenario)
    tear(tmp_path / "torn", disk, chance)

    async def after(store: SegmentStore) -> None:
        await expect(store, ORDERS, count, 900)
        await store.append(ORDERS, 2, count, [enqueued(5, count, 3, 900)])

    run(opened(tmp_path / "torn", lag_s=1000), after)
    run(opened(tmp_path / "torn"), lambda store: expect(store, ORDERS, count + 3, 900))


async def wear(store: SegmentStore, turns: int) -> None:
    """Use segments again and again."""
    position = 1
    for _ in range(turns):
        await store.append(BILLS, 1, position, [enqueued(5, position, 50, 900)])
        position += 50
        await store.append(BILLS, 1, position, [CheckpointBegun(5, 1)], replay_from=position)
        await store.trim(BILLS, position, [], now=1 << 40)
        position += 1


def tear(directory: Path, disk: Faulty, chance: random.Random) -> None:
    """Leave out some sectors of the last write, one of the frame's own at least."""
    path, offset, raw = disk.writes[-1]
    before = disk.before[-1]
    sectors = list(range(0, len(raw), 512))
    changed = [at for at in sectors if raw[at : at + 512] != before[at : at + 512]]
    missing = chance.sample(changed, chance.randrange(1, len(changed) + 1))
    with (directory / Path(path).name).open("r+b") as file:
        for at in missing:
            file.seek(offset + at)
            file.write(before[at : at + 512])


def test_a_damaged_commit_with_others_behind_it_is_no_torn_one(tmp_path: Path) -> None:
    """Nobody knows whose commits were lost: the store says so and stays closed."""
    directory = tmp_path / "store"
    disk = Faulty()

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        for position in range(1, 10):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1)])
        copied(directory, "damaged")

    run(opened(directory, disk=disk, lag_s=1000), scenario)
    path, offset, _ = disk.writes[5]
    flip(tmp_path / "damaged" / Path(path).name, offset + 60)
    with pytest.raises(Corrupt, match=r"damaged at .*, and commits lie behind that"):
        opened(tmp_path / "damaged")
    flip(tmp_path / "damaged" / Path(path).name, offset + 60)
    run(opened(tmp_path / "damaged"), lambda store: expect(store, ORDERS, 10))


def test_a_missing_segment_behind_the_index_is_noticed(tmp_path: Path) -> None:
    directory = tmp_path / "store"

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        for position in range(1, 200):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1, 900)])
        copied(directory, "left")

    run(opened(directory, lag_s=1000), scenario)
    for path in sorted((tmp_path / "left").glob("segment-*")):
        use = decode_header(path.read_bytes())
        if use is not None and use.number == 2:
            path.unlink()
    with pytest.raises(Corrupt, match="segment 2 is missing, and 3 is there"):
        opened(tmp_path / "left")


def test_segments_without_an_index_are_no_new_store(tmp_path: Path) -> None:
    run(opened(tmp_path), lambda store: wear_once(store))
    (tmp_path / "data.mdb").unlink()
    with pytest.raises(Corrupt, match="has segments, but the index"):
        opened(tmp_path)


async def wear_once(store: SegmentStore) -> None:
    await store.open(BILLS)
    await store.append(BILLS, 1, 1, [enqueued(5, 1, 1)])


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)


# ---- damage


def test_a_flipped_bit_in_a_body_costs_that_body(tmp_path: Path) -> None:
    """Also of a chunk that is read in parts, and whether the index knows it or not."""
    directory = tmp_path / "store"

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 120, 700)])
        await store.append(ORDERS, 1, 121, [enqueued(5, 121, 2, 700)])
        copied(directory, "early")

    run(opened(directory, lag_s=1000), scenario)
    copied(directory, "late")

    async def after(store: SegmentStore) -> None:
        await replayed(store, ORDERS)
        with pytest.raises(Damaged, match="position 23") as caught:
            await store.payloads(ORDERS, [22, 23, 122])
        assert caught.value.positions == {23}
        around = [22, 24, 122, 1, 120]
        found = await store.payloads(ORDERS, around)
        assert [shown(m) for m in found] == [shown(message_of(p, 700)) for p in around]

    for name in ("early", "late"):
        for path in (tmp_path / name).glob("segment-*"):
            at = path.read_bytes().find(message_of(23, 700).content)
            if at > 0:
                flip(path, at + 500)
        run(opened(tmp_path / name), after)


def test_flipped_bits_anywhere_never_give_wrong_messages(tmp_path: Path) -> None:
    """Found, or without consequence: never another message, never one less without a word."""
    directory = tmp_path / "store"

    async def fill(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.open(BILLS)
        for position in range(1, 101):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1, 300)])
        for position in range(1, 121, 10):
            await store.append(BILLS, 1, position, [enqueued(5, position, 10, 300)])
        copied(directory, "early")

    run(opened(directory, lag_s=1000), fill)
    copied(directory, "late")
    chance = random.Random(3)
    found = 0
    for number in range(80):
        name = chance.choice(["early", "late"])
        copy = copied(tmp_path / name, "flipped")
        path = chance.choice(sorted(copy.glob("segment-*")))
        # The last commit cannot be told from a torn one while the index does not know it.
        flip(path, chance.randrange(0, 36_000 if name == "early" else path.stat().st_size))
        try:
            run(opened(copy), whole)
        except StoreError:
            found += 1
        except AssertionError as error:
            raise AssertionError(f"flip {number} in {path.name} of {name}") from error
    assert found > 20


async def whole(store: SegmentStore) -> None:
    await expect(store, ORDERS, 101, 300)
    await expect(store, BILLS, 121, 300)


# ---- bad disks


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

    run(opened(directory), scenario)
