"""What only the segment store promises: files that never grow, shared commits, bad disks."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from peeklock.entity.records import CheckpointBegun
from peeklock.store.retention import Retention
from peeklock.store.segments.files import SPARE_MAX
from peeklock.store.segments.frames import decode_header
from peeklock.store.segments.store import SegmentStore
from peeklock.store.segments.tail import LogDrop
from peeklock.store.store import Corrupt, Damaged, PartitionId, StoreError
from tests.store.builders import enqueued, message_of, shown
from tests.store.segments.disks import SEGMENT, Faulty, copied, expect, opened, run
from tests.store.stores import BILLS, ORDERS, replayed

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
        await store._access.submit(LogDrop(store._tails["default|gone|0"]))
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
    random_source = random.Random(seed)
    disk = Faulty()
    count = random_source.randrange(1, 60)

    async def scenario(store: SegmentStore) -> None:
        await store.open(BILLS)
        await wear(store, random_source.randrange(0, 12))
        await store.open(ORDERS)
        for position in range(1, count):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1, 900)])
        copied(directory, "before")
        await store.append(ORDERS, 1, count, [enqueued(5, count, 20, 900)])
        copied(directory, "torn")

    run(opened(directory, disk=disk, lag_s=1000, retention=Retention(age_ms=0)), scenario)
    tear(tmp_path / "torn", disk, random_source)

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


def tear(directory: Path, disk: Faulty, random_source: random.Random) -> None:
    """Leave out some sectors of the last write, one of the frame's own at least."""
    path, offset, raw = disk.writes[-1]
    before = disk.before[-1]
    sectors = list(range(0, len(raw), 512))
    changed = [at for at in sectors if raw[at : at + 512] != before[at : at + 512]]
    missing = random_source.sample(changed, random_source.randrange(1, len(changed) + 1))
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
    random_source = random.Random(3)
    found = 0
    for number in range(50):
        name = random_source.choice(["early", "late"])
        copy = copied(tmp_path / name, "flipped")
        path = random_source.choice(sorted(copy.glob("segment-*")))
        # The last commit cannot be told from a torn one while the index does not know it.
        flip(path, random_source.randrange(0, 36_000 if name == "early" else path.stat().st_size))
        try:
            run(opened(copy), whole)
        except StoreError:
            found += 1
        except AssertionError as error:
            raise AssertionError(f"flip {number} in {path.name} of {name}") from error
    assert found > 12


async def whole(store: SegmentStore) -> None:
    await expect(store, ORDERS, 101, 300)
    await expect(store, BILLS, 121, 300)
