"""Every part of a store damaged in turn: found, told, and given up only when asked."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peeklock.clock import MANUAL_START
from peeklock.entity.commands import (
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    MAIN,
    RECEIVE_AND_DELETE,
    CloseReceiver,
    Grant,
    Requeue,
)
from peeklock.entity.decision import NO_REPLAY, Decision
from peeklock.entity.message import BodyBudget
from peeklock.entity.partition import Partition
from peeklock.entity.replies import Reply
from peeklock.store.damage.inspection import (
    PartitionFindings,
    StoreFindings,
    _judge_missing,
    inspect_store,
)
from peeklock.store.damage.pages import DATA, Pages, why_too_short
from peeklock.store.damage.repair import copy_aside, list_of, rewrite_store, write_list
from peeklock.store.entries import CHUNK_KEY
from peeklock.store.entries import PartitionEntry as Entry
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.segments.contents import Contents
from peeklock.store.segments.moving import has_segments
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import Corrupt, Damaged, PartitionId, Store
from tests.entity.origins import by
from tests.entity.partition_harness import QueueHarness, deliveries
from tests.store.builders import enqueued

QUEUE = PartitionId("ns", "q")
OTHER = PartitionId("ns", "other")


class Written(QueueHarness):
    """A queue whose decisions are remembered, to be stored."""

    def __init__(self, **properties: Any) -> None:
        self.stored: list[Decision] = []
        super().__init__(**properties)

    def keep(self, decision: Decision) -> list[Reply]:
        self.stored.append(decision)
        return super().keep(decision)


def lived(starts_at: int) -> Written:
    """A queue with a past: a checkpoint, messages before and after it, some of them settled."""
    queue = Written()
    queue.now = starts_at
    queue.send("a" * 50, "b" * 50, "c" * 50, "d" * 50)
    queue.settle(COMPLETE, *queue.receive(2))
    queue.now += 10
    queue.checkpoint()
    queue.now += 10
    queue.send("e" * 50, "f" * 50)
    queue.settle(COMPLETE, queue.receive_one())
    queue.settle(DEFER, queue.receive_one())
    queue.send("g" * 50, "later", due=queue.now + 60_000)
    queue.settle(DEAD_LETTER, queue.receive_one())
    queue.send("h" * 50)
    queue.now += 10
    return queue


def engine(directory: Path, kind: str = "") -> Store:
    """Open a store as what it is, or make it."""
    if kind == "segments" or any(directory.glob("segment-*")):
        return SegmentStore(directory, segment_bytes=64 << 10)
    return LmdbStore(directory)


async def store_all(directory: Path, first: Written, second: Written, kind: str) -> None:
    store = engine(directory, kind)
    for partition, queue in ((QUEUE, first), (OTHER, second)):
        epoch = (await store.open(partition)).epoch
        for decision in queue.stored:
            if decision.records:
                replay_from = None if decision.replay_from == NO_REPLAY else decision.replay_from
                await store.append(
                    partition, epoch, decision.first_position, decision.records, replay_from
                )
    await store.close()


@pytest.fixture(scope="module", params=["embedded", "segments"])
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[int]]:
    """A store that is whole, and the numbers that live in each of its partitions."""
    directory = tmp_path_factory.mktemp("whole") / "store"
    queue = lived(MANUAL_START)
    asyncio.run(store_all(directory, queue, lived(MANUAL_START + 1), request.param))
    found = inspect_store(directory, directory / DATA)
    assert found.is_whole
    live = sorted(
        entry.sequence for lane in queue.partition._state.lanes.values() for entry in lane.entries()
    )
    for each in found.partitions:
        assert each.live == live
        assert each.next_sequence == queue.partition.next_sequence
        assert each.end == queue.partition.next_position
    assert [each.name for each in found.partitions] == [QUEUE.key, OTHER.key]
    return directory, live


def places(directory: Path) -> Iterator[tuple[str, bytes]]:
    """What the files hold of the first partition, and which it is."""
    pages = Pages(directory / DATA)
    if any(directory.glob("segment-*")):
        entries = {key: bytes(value) for key, value in pages.entries(b"meta")}
        for _, chunk in Contents(directory, entries, pages.entries(b"values")).chunks[1]:
            yield "chunk", bytes(chunk)
    else:
        for key, value in pages.entries(b"values"):
            if key[:4] == b"\0\0\0\1":
                yield "chunk", bytes(value)
    for key, value in pages.entries(b"meta"):
        if key == b"p\0\0\0\1":
            yield "entry", bytes(value)


def damaged(whole: Path, directory: Path, value: bytes, bit: int) -> None:
    """Copy a store and flip a bit of a value, in all copies of it that the engine has left."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(whole, directory)
    flipped = bytearray(value)
    flipped[bit // 8] ^= 1 << bit % 8
    files = [path for path in directory.iterdir() if value in path.read_bytes()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes().replace(value, bytes(flipped)))


async def opened(directory: Path, partition: PartitionId) -> str:
    """What becomes of a partition: "whole", "bodies" are damaged, or it stays "closed"."""
    store = engine(directory)
    try:
        living = Partition(QueueHarness().described(), 0, BodyBudget(0), lambda: 1)
        opening = await store.open(partition)
        async for replay in opening.replays:
            living.restore(replay.first_position, replay.records)
        living.opened()
        living.check()
        entries = [e for lane in living._state.lanes.values() for e in lane.entries()]
        await store.payloads(partition, [entry.position for entry in entries])
    except Damaged:
        return "bodies"
    except Corrupt:
        return "closed"
    finally:
        await store.close()
    return "whole"


def first_of(findings: StoreFindings) -> PartitionFindings:
    return next(each for each in findings.partitions if each.number == 1)


def look_and_repair(directory: Path, live: list[int]) -> str:
    """Look at a damaged store, compare with what opening it says, repair it, and open it."""
    before = asyncio.run(opened(directory, QUEUE))
    findings = inspect_store(directory, directory / DATA, [QUEUE.key, OTHER.key])
    found = first_of(findings)
    verdict = "closed" if found.is_closed else "bodies" if found.damaged_bodies else "whole"
    assert verdict == before
    assert asyncio.run(opened(directory, OTHER)) == "whole"
    if verdict == "whole":
        assert found.live == live
        return verdict
    if verdict == "bodies":
        assert set(found.damaged_bodies) <= set(live) == set(found.live)
        return verdict
    assert found.entry.name == QUEUE.key
    assert not found.is_hopeless
    copy = copy_aside(directory)
    assert (copy / DATA).read_bytes() == (directory / DATA).read_bytes()
    shutil.rmtree(copy)
    listed = write_list(directory, list_of(findings))
    assert len(listed.read_text().splitlines()) > 0 or not found.holes
    listed.unlink()
    rewrite_store(findings)
    after = inspect_store(directory, directory / DATA)
    assert not after.problems
    mended = first_of(after)
    assert not mended.is_closed
    assert asyncio.run(opened(directory, QUEUE)) != "closed"
    assert asyncio.run(opened(directory, OTHER)) == "whole"
    # Every number that is not as it was is on the list.
    missing = set(live) - set(mended.live)
    assert all(
        any(
            low <= number and (high is None or number <= high) for low, high in found.may_be_missing
        )
        for number in missing
    ), (missing, found.may_be_missing)
    assert set(mended.live) - set(live) <= set(found.may_come_again)
    if found.holes:
        assert mended.next_sequence > max(live)
    return verdict


def flips(directory: Path, count: int) -> Iterator[tuple[bytes, int]]:
    """Bits from all over the values, the heads of chunks among them."""
    random_source = random.Random(5)
    for kind, value in places(directory):
        for bit in random_source.sample(range(8 * 28), 2 if kind == "chunk" else count):
            yield value, bit
        for _ in range(count):
            yield value, random_source.randrange(8 * len(value))


def test_every_flip_is_told_or_harms_nobody(whole: tuple[Path, list[int]], tmp_path: Path) -> None:
    directory, live = whole
    verdicts: list[str] = []
    for value, bit in flips(directory, 4):
        damaged(directory, tmp_path / "store", value, bit)
        verdicts.append(look_and_repair(tmp_path / "store", live))
    assert verdicts.count("closed") > 20
    assert verdicts.count("bodies") > 3


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_every_single_flip_is_told_or_harms_nobody(
    whole: tuple[Path, list[int]], tmp_path: Path
) -> None:
    directory, live = whole
    for _, value in places(directory):
        for bit in range(0, 8 * len(value), 3):
            damaged(directory, tmp_path / "store", value, bit)
            look_and_repair(tmp_path / "store", live)


def damage_page_of(data: Path, wanted: bytes) -> None:
    """Damage what kind of page it is that holds an entry of `values`."""
    value = next(bytes(value) for key, value in Pages(data).entries(b"values") if key == wanted)
    raw = bytearray(data.read_bytes())
    at = raw.find(value)
    while at >= 0:  # in all pages that hold it, those among them that are out of use
        raw[at // 4096 * 4096 + 10] ^= 0x07
        at = raw.find(value, at + 1)
    data.write_bytes(raw)


def test_a_store_whose_tree_is_damaged_is_written_anew(tmp_path: Path) -> None:
    """The pages of the engine have no checksums; whatever is still reached is kept."""

    async def fill() -> None:
        store = LmdbStore(tmp_path / "store")
        await store.open(QUEUE)
        for first in range(40):
            await store.append(QUEUE, 1, first, [enqueued(5, first + 1, 1, 700)])
        await store.close()

    asyncio.run(fill())
    data = tmp_path / "store" / DATA
    damage_page_of(data, CHUNK_KEY.pack(1, 20))
    findings = inspect_store(tmp_path / "store", data, [QUEUE.key])
    assert any("of the tree 'values' is damaged" in each for each in findings.problems)
    listed = list(list_of(findings))
    assert [each["text"] for each in listed if each.get("given_up") == "pages"] == findings.problems
    rewrite_store(findings)
    assert not inspect_store(tmp_path / "store", data).problems
    assert asyncio.run(opened(tmp_path / "store", QUEUE)) in ("whole", "bodies")


def test_a_store_whose_tree_is_lost_from_its_root_is_not_written_anew(
    whole: tuple[Path, list[int]], tmp_path: Path
) -> None:
    """An entry does not tell how far its journal goes: all of it would go without a word."""
    directory, _ = whole
    shutil.copytree(directory, tmp_path / "store")
    data = tmp_path / "store" / DATA
    damage_page_of(data, next(key for key, _ in Pages(data).entries(b"values")))
    expect_lost(data, "of the tree 'values' is damaged: nobody can tell")


def expect_lost(data: Path, text: str) -> None:
    """Nobody can tell what is lost, unless segments tell the same."""
    names = [QUEUE.key, OTHER.key]
    if not has_segments(data.parent):
        with pytest.raises(Corrupt, match=text):
            inspect_store(data.parent, data, names)
        return
    findings = inspect_store(data.parent, data, names)
    assert len(findings.problems) == 1
    assert text in findings.problems[0]
    assert not any(each.is_closed for each in findings.partitions)


def test_a_page_that_says_less_than_it_has_is_found(
    whole: tuple[Path, list[int]], tmp_path: Path
) -> None:
    directory, _ = whole
    shutil.copytree(directory, tmp_path / "store")
    data = tmp_path / "store" / DATA
    value = next(bytes(value) for _, value in Pages(data).entries(b"values"))
    raw = bytearray(data.read_bytes())
    at = raw.find(value)
    while at >= 0:
        page = at // 4096 * 4096
        raw[page + 12 : page + 14] = (18).to_bytes(2, "little")  # one pointer
        at = raw.find(value, at + 1)
    data.write_bytes(raw)
    expect_lost(data, "entries, 1 can be reached")


def test_what_is_missing_at_the_end_of_a_file_is_given_up(
    whole: tuple[Path, list[int]], tmp_path: Path
) -> None:
    directory, _ = whole
    shutil.copytree(directory, tmp_path / "store")
    data = tmp_path / "store" / DATA
    while why_too_short(data) is None:
        os.truncate(data, data.stat().st_size - 4096)
    with pytest.raises(Corrupt, match="shorter"):
        LmdbStore(tmp_path / "store")
    findings = inspect_store(tmp_path / "store", data, [QUEUE.key, OTHER.key])
    assert findings.problems
    rewrite_store(findings)
    for partition in (QUEUE, OTHER):
        assert asyncio.run(opened(tmp_path / "store", partition)) != "closed"


def test_what_was_put_back_before_a_lost_checkpoint_may_be_missing() -> None:
    """It was removed once and lived again; the checkpoint that tells of it is lost."""
    queue = Written()
    queue.send("a", "b", "c")
    queue.open("r", mode=RECEIVE_AND_DELETE)
    taken = deliveries(queue.ask(Grant(by("r"), 2, False)), "r")
    queue.ask(Requeue(MAIN, [taken[1]]), CloseReceiver(by("r"), True))
    history = [(each.first_position, each.records) for each in queue.stored if each.records]
    begins = queue.partition.next_position
    found = PartitionFindings(1, Entry(1, "ns|q|0"))
    found.entry.replay_from = begins
    found.holes = [(begins, begins + 1)]
    _judge_missing(found, history)
    assert found.may_be_missing == [(2, 2), (3, 3), (4, None)]
