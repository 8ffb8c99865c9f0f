"""The index is lost or damaged: the segments and its last copy say the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from peeklock.entity.records import Record
from peeklock.store.damage.inspection import inspect_store
from peeklock.store.damage.pages import DATA, why_too_short
from peeklock.store.damage.repair import rewrite_store
from peeklock.store.retention import Retention
from peeklock.store.segments.index_copy import COPY, newest_copy
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import Corrupt, PartitionId, Unavailable
from tests.store.builders import enqueued, message_of, shown, told
from tests.store.segments.disks import SEGMENT, SIZE, copied, opened, run
from tests.store.stores import BILLS, ORDERS, replayed

OLD = PartitionId("default", "old")
GONE = PartitionId("default", "gone")
NAMES = [ORDERS.key, BILLS.key, OLD.key]
LATER = 1 << 40
# The first position that replay needs, and the end.
BEGIN, END = 5501, 6001
OLD_END = 13


def lose(data: Path) -> None:
    data.unlink()


def empty(data: Path) -> None:
    data.write_bytes(b"")


def cut(data: Path) -> None:
    while why_too_short(data) is None:
        os.truncate(data, data.stat().st_size - 4096)


def scratch(data: Path) -> None:
    """The first pages are those that name the last transactions."""
    with data.open("r+b") as file:
        file.write(bytes(8192))


def soil(data: Path) -> None:
    """All behind the first pages is something else."""
    size = data.stat().st_size
    with data.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))


@pytest.fixture(scope="module", params=["closed", "killed"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose first segments were used again long ago; one partition is older than that."""
    directory = tmp_path_factory.mktemp("lost") / "store"
    killed = directory.with_name("killed")

    async def scenario(store: SegmentStore) -> None:
        await store.open(GONE)
        await store.append(GONE, 1, 1, [enqueued(5, 1, 3)])
        for partition in (OLD, ORDERS, BILLS):
            await store.open(partition)
        await store.drop(GONE)
        for position in range(1, END, 50):
            # What replay needs begins later and later.
            replay_from = position if position % 500 == 1 else None
            await store.append(ORDERS, 1, position, [enqueued(5, position, 50)], replay_from)
            if replay_from is not None:
                old = position // 500 + 1
                await store.append(OLD, 1, old, [enqueued(5, old, 1)])
                await store.trim(ORDERS, position, [], LATER)
        await store.append(BILLS, 1, 1, [enqueued(5, 1, 2)])
        assert min(store._segments.used) > 1
        copied(directory, killed.name)

    store = opened(directory, retention=Retention(age_ms=0), lag_s=0.01)
    # So little is kept that what is old has to move.
    store._relocation._reserve_bytes = 2 * SEGMENT
    run(store, scenario)
    return directory if request.param == "closed" else killed


async def check(store: SegmentStore) -> None:
    """Everything is there that anybody was told of, and nothing else."""
    for partition, begin, end in ((ORDERS, BEGIN, END), (BILLS, 1, 3), (OLD, 1, OLD_END)):
        epoch, first, records = await replayed(store, partition)
        expected: list[Record] = [enqueued(5, begin, end - begin, SIZE)]
        assert (epoch, first, told(records, False)) == (2, begin, told(expected, False))
        positions = list(range(begin, end))
        bodies = await store.payloads(partition, positions)
        assert [shown(m) for m in bodies] == [shown(message_of(p, SIZE)) for p in positions]
    # An owner of before is fenced, and what was dropped stays gone.
    assert await replayed(store, GONE) == (2, -1, [])


@pytest.mark.parametrize("damage", [lose, empty, cut, scratch, soil])
def test_all_of_it_comes_from_the_segments(
    whole: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    directory = tmp_path / "store"
    shutil.copytree(whole, directory)
    damage(directory / DATA)
    with pytest.raises((Corrupt, Unavailable), match="peeklock store") as caught:
        opened(directory)
    assert "repair" in str(caught.value) or "check" in str(caught.value)
    findings = inspect_store(directory, directory / DATA, NAMES)
    assert findings.problems[0].startswith("the index cannot be used")
    assert len(findings.problems) == 1
    assert [each.name for each in findings.partitions if each.is_closed] == []
    rewrite_store(findings)
    assert inspect_store(directory, directory / DATA, NAMES).is_whole
    assert not list(directory.glob(f"{COPY}*"))
    run(opened(directory), check)
    run(opened(directory), lambda store: replayed_once(store))


async def replayed_once(store: SegmentStore) -> None:
    assert (await replayed(store, ORDERS))[:2] == (3, BEGIN)


def test_a_whole_index_is_believed(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    shutil.copytree(whole, directory)
    assert inspect_store(directory, directory / DATA, NAMES).is_whole
    run(opened(directory), check)


def test_a_copy_that_is_not_whole_gives_way_to_the_other(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    shutil.copytree(whole, directory)
    newest = newest_copy(directory)
    for path in sorted(directory.glob(f"{COPY}*")):
        kept = path.read_bytes()
        path.write_bytes(kept[:-1])
        assert newest_copy(directory)
        path.write_bytes(kept)
    assert newest_copy(directory) == newest


def test_what_is_missing_of_the_segments_as_well_is_told(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    shutil.copytree(whole, directory)
    (directory / DATA).unlink()
    for path in sorted(directory.glob("segment-*")):
        with path.open("r+b") as file:
            file.seek(20_000)
            file.write(bytes(8192))
    findings = inspect_store(directory, directory / DATA, NAMES)
    assert any("nobody can tell whose commits were there" in each for each in findings.problems)
    assert not findings.is_whole


def test_a_number_is_never_given_again(tmp_path: Path) -> None:
    """What a partition that is gone left in segments must not pass for another one's."""

    async def first(store: SegmentStore) -> None:
        for partition in (ORDERS, GONE):
            await store.open(partition)
        await store.drop(GONE)
        await store.trim(ORDERS, 0, [], LATER)
        assert not store._index.table.dropped

    async def second(store: SegmentStore) -> None:
        await store.open(BILLS)
        assert store._tails[BILLS.key].number == 3

    run(opened(tmp_path / "store"), first)
    run(opened(tmp_path / "store"), second)
