"""What every store promises, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from peeklock.entity.records import (
    COMPLETED,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    Enqueued,
    Record,
    Removed,
)
from peeklock.store.codec.records import chunk_header, decode_chunk
from peeklock.store.retention import Retention
from peeklock.store.store import BLOCK, Corrupt, Fenced, PartitionId, Store, Unavailable
from tests.store.builders import enqueued, message_of, shown, told
from tests.store.stores import BILLS, KINDS, ORDERS, StoreUnderTest, replayed

HomeMaker = Callable[..., StoreUnderTest]


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> HomeMaker:
    def make(retention: Retention | None = None) -> StoreUnderTest:
        return StoreUnderTest(request.param, tmp_path, retention)

    return make


# ---- opening and epochs


def test_a_new_partition_is_empty(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        assert await replayed(home.store, ORDERS) == (1, -1, [])

    home().run(scenario)


def test_what_was_appended_is_replayed_without_bodies(home: HomeMaker) -> None:
    """R-T1: what was acknowledged is there after the store was opened again."""
    written: list[Record] = [enqueued(5, 1, 3), Removed(6, 0, COMPLETED, [1, 3]), enqueued(7, 4, 2)]

    async def scenario(home: StoreUnderTest) -> None:
        epoch, _, _ = await replayed(home.store, ORDERS)
        await home.store.append(ORDERS, epoch, 1, written[:1])
        await home.store.append(ORDERS, epoch, 4, written[1:])
        _, first, records = await replayed(await home.reopen(), ORDERS)
        assert first == 1
        assert told(records, bodies=False) == told(written, bodies=False)
        assert isinstance(records[0], Enqueued)
        assert [len(message.content) for message in records[0].messages] == [0, 0, 0]

    home().run(scenario)


def test_epochs_grow_and_outlive_the_store(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        epochs = [(await home.store.open(ORDERS)).epoch for _ in range(2)]
        store = await home.reopen()
        epochs.append((await store.open(ORDERS)).epoch)
        epochs.append((await store.open(ORDERS, 10)).epoch)
        epochs.append((await (await home.reopen()).open(ORDERS, 10)).epoch)
        assert epochs == [1, 2, 3, 10, 10]
        with pytest.raises(Fenced):
            await home.store.open(ORDERS, 9)

    home().run(scenario)


def test_an_older_owner_is_fenced(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        store = home.store
        old = (await store.open(ORDERS)).epoch
        await store.append(ORDERS, old, 1, [enqueued(5, 1, 1)])
        new = (await store.open(ORDERS)).epoch
        for epoch in (old, new + 1):
            with pytest.raises(Fenced):
                await store.append(ORDERS, epoch, 2, [enqueued(5, 2, 1)])
        await store.append(ORDERS, new, 2, [enqueued(6, 2, 1)])
        _, _, records = await replayed(store, ORDERS)
        assert [record.at for record in records] == [5, 6]

    home().run(scenario)


def test_who_never_opened_a_partition_is_fenced(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        with pytest.raises(Fenced):
            await home.store.append(ORDERS, 0, 1, [enqueued(5, 1, 1)])

    home().run(scenario)


def test_a_replay_ends_when_another_owner_comes(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        opening = await home.store.open(ORDERS)
        await home.store.append(ORDERS, opening.epoch, 1, [enqueued(5, 1, 1)])
        older = await home.store.open(ORDERS)
        await home.store.open(ORDERS)
        with pytest.raises(Fenced):
            await anext(older.replays)

    home().run(scenario)


def test_replay_starts_at_the_checkpoint(home: HomeMaker) -> None:
    """The place to start may lie inside a chunk."""
    checkpoint: list[Record] = [
        CheckpointBegun(6, 4),
        CheckpointSlice(6, 0, []),
        CheckpointEnded(6, 5),
    ]

    async def scenario(home: StoreUnderTest) -> None:
        epoch = (await home.store.open(ORDERS)).epoch
        await home.store.append(ORDERS, epoch, 1, [enqueued(5, 1, 3)])
        await home.store.append(ORDERS, epoch, 4, [enqueued(6, 4, 1), *checkpoint], replay_from=5)
        await home.store.append(ORDERS, epoch, 8, [enqueued(7, 5, 1)])
        _, first, records = await replayed(await home.reopen(), ORDERS)
        assert first == 5
        assert told(records, False) == told([*checkpoint, enqueued(7, 5, 1)], False)

    home().run(scenario)


def test_many_chunks_are_replayed_in_order(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        epoch = (await home.store.open(ORDERS)).epoch
        appends = [
            home.store.append(ORDERS, epoch, position, [enqueued(5, position, 1)])
            for position in range(1, 600)
        ]
        await asyncio.gather(*appends)
        opening = await (await home.reopen()).open(ORDERS)
        position = 1
        async for replay in opening.replays:
            assert replay.first_position == position
            position += len(replay.records)
        assert position == 600

    home().run(scenario)


# ---- appending


def test_an_append_must_follow_the_last_one(home: HomeMaker) -> None:
    """What comes behind a failed append would leave a gap: it fails, too."""

    async def scenario(home: StoreUnderTest) -> None:
        epoch = (await home.store.open(ORDERS)).epoch
        await home.store.append(ORDERS, epoch, 1, [enqueued(5, 1, 3)])
        for position in (1, 3, 5):
            with pytest.raises(Unavailable):
                await home.store.append(ORDERS, epoch, position, [enqueued(5, 9, 1)])
        await home.store.append(ORDERS, epoch, 4, [enqueued(5, 4, 1)])

    home().run(scenario)


def test_partitions_do_not_touch_each_other(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        store = home.store
        partitions = [PartitionId("default", f"queue-{n}", n % 2) for n in range(8)]
        epochs = [(await store.open(partition)).epoch for partition in partitions]
        for turn in range(4):
            appends = [
                store.append(partition, epoch, 1 + turn, [enqueued(5, 100 * n + turn + 1, 1)])
                for n, (partition, epoch) in enumerate(zip(partitions, epochs, strict=True))
            ]
            await asyncio.gather(*appends)
        store = await home.reopen()
        for n, partition in enumerate(partitions):
            _, first, records = await replayed(store, partition)
            assert first == 1
            assert told(records, False) == told(
                [enqueued(5, 100 * n + turn + 1, 1) for turn in range(4)], False
            )

    home().run(scenario)


def test_names_are_compared_without_case(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        epoch = (await home.store.open(PartitionId("Default", "Orders"))).epoch
        await home.store.append(ORDERS, epoch, 1, [enqueued(5, 1, 1)])
        _, first, _ = await replayed(home.store, PartitionId("default", "ORDERS"))
        assert first == 1

    home().run(scenario)


def test_a_closed_store_says_so(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await home.store.open(ORDERS)
        await home.store.close()
        with pytest.raises(Unavailable):
            await home.store.open(ORDERS)
        with pytest.raises(Unavailable):
            await home.store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        with pytest.raises(Unavailable):
            await home.store.payloads(ORDERS, [1])
        with pytest.raises(Unavailable):
            await home.store.journal(ORDERS, 0, 100)
        with pytest.raises(Unavailable):
            await home.store.trim(ORDERS, 1, [], 0)
        with pytest.raises(Unavailable):
            await home.store.drop(ORDERS)

    home().run(scenario)


# ---- bodies


@pytest.mark.parametrize(
    "positions",
    [[1], [1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1], [2, 2, 5], [3, 4, 1], [6], []],
    ids=str,
)
def test_bodies_come_in_the_order_asked(home: HomeMaker, positions: list[int]) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        epoch = (await home.store.open(ORDERS)).epoch
        await home.store.append(ORDERS, epoch, 1, [enqueued(5, 1, 3)])
        await home.store.append(ORDERS, epoch, 4, [enqueued(5, 4, 1)])
        await home.store.append(ORDERS, epoch, 5, [enqueued(5, 5, 2)])
        found = await home.store.payloads(ORDERS, positions)
        assert [shown(m) for m in found] == [shown(message_of(p)) for p in positions]

    home().run(scenario)


def test_a_position_without_a_message_is_an_error(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        for partition in (ORDERS, BILLS):
            epoch = (await home.store.open(partition)).epoch
            records: list[Record] = [enqueued(5, 1, 1), Removed(5, 0, COMPLETED, [1])]
            await home.store.append(partition, epoch, 1, records)
        for position in (0, 2, 3, 99):
            with pytest.raises(Corrupt):
                await home.store.payloads(ORDERS, [position])
            with pytest.raises(Corrupt):
                await home.store.payloads(BILLS, [1, position])
        with pytest.raises(Corrupt):
            await home.store.payloads(PartitionId("default", "nobody"), [1])

    home().run(scenario)


# ---- the journal


async def fill(store: Store, partition: PartitionId, chunks: int, each: int, at: int = 0) -> int:
    """Append so many chunks of so many messages, one per instant; answers the epoch."""
    epoch = (await store.open(partition)).epoch
    for n in range(chunks):
        first = 1 + n * each
        await store.append(partition, epoch, first, [enqueued(at + n, first, each)])
    return epoch


def test_the_journal_is_read_page_by_page(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await fill(home.store, ORDERS, 10, 2)
        await fill(home.store, BILLS, 10, 2)
        position, pages, read = 0, 0, []
        while True:
            page = await home.store.journal(ORDERS, position, 1000)
            assert page.first == 1
            if not page.chunks:
                break
            pages += 1
            position = page.next
            for chunk in page.chunks:
                read += decode_chunk(chunk, bodies=True)[1]
        assert told(read) == told([enqueued(n, 1 + 2 * n, 2) for n in range(10)])
        assert position == 21
        assert 1 < pages < 10

    home().run(scenario)


def test_a_page_holds_at_least_one_chunk(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await fill(home.store, ORDERS, 3, 2)
        page = await home.store.journal(ORDERS, 3, 0)
        assert [chunk_header(chunk).first for chunk in page.chunks] == [3]
        assert page.next == 5

    home().run(scenario)


def test_a_page_begins_with_the_chunk_that_holds_the_position(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await fill(home.store, ORDERS, 3, 5)
        page = await home.store.journal(ORDERS, 8, 1 << 20)
        assert [chunk_header(chunk).first for chunk in page.chunks] == [6, 11]

    home().run(scenario)


def test_who_asks_for_more_than_there_is_learns_where_the_journal_ends(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await fill(home.store, ORDERS, 3, 5)
        for after in (16, 17, 1 << 60):
            page = await home.store.journal(ORDERS, after, 1 << 20)
            assert (page.first, page.next, page.chunks) == (1, 16, [])
        page = await home.store.journal(BILLS, 7, 1 << 20)
        assert (page.first, page.next, page.chunks) == (0, 0, [])

    home().run(scenario)


def test_a_partition_without_records_has_an_empty_journal(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        await home.store.open(ORDERS)
        for partition in (ORDERS, BILLS):
            page = await home.store.journal(partition, 0, 1 << 20)
            assert (page.first, page.next, page.chunks) == (0, 0, [])

    home().run(scenario)


# ---- trim


async def checkpoint(store: Store, epoch: int, position: int, at: int) -> None:
    """Append what a partition with nothing alive writes, so that all before it may go."""
    records: list[Record] = [CheckpointBegun(at, 1), CheckpointEnded(at, position)]
    await store.append(ORDERS, epoch, position, records, replay_from=position)


def test_the_journal_ends_where_retention_does(home: HomeMaker) -> None:
    """A reader that fell behind is told the first position still there."""

    async def scenario(home: StoreUnderTest) -> None:
        epoch = await fill(home.store, ORDERS, 10, 2)
        await checkpoint(home.store, epoch, 21, at=10)
        assert await home.store.trim(ORDERS, 21, [], now=99) == 1
        assert await home.store.trim(ORDERS, 21, [], now=104) == 11
        store = await home.reopen()
        page = await store.journal(ORDERS, 3, 1 << 20)
        assert (page.first, page.next) == (11, 23)
        assert chunk_header(page.chunks[0]).first == 11
        with pytest.raises(Corrupt):
            await store.payloads(ORDERS, [10])
        assert len(await store.payloads(ORDERS, [11])) == 1

    home(Retention(age_ms=100)).run(scenario)


def test_nothing_that_opening_needs_is_dropped(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        epoch = await fill(home.store, ORDERS, 4, 2)
        assert await home.store.trim(ORDERS, 9, [], now=1 << 40) == 1
        await checkpoint(home.store, epoch, 9, at=4)
        assert await home.store.trim(ORDERS, 5, [], now=1 << 40) == 5
        assert await home.store.trim(ORDERS, 999, [], now=1 << 40) == 9
        _, first, records = await replayed(await home.reopen(), ORDERS)
        assert first == 9
        assert len(records) == 2

    home(Retention(age_ms=0)).run(scenario)


def test_live_blocks_stay_but_leave_the_journal(home: HomeMaker) -> None:
    """A year-old body holds its chunk; the journal goes on without it."""

    async def scenario(home: StoreUnderTest) -> None:
        each = BLOCK // 2
        epoch = await fill(home.store, ORDERS, 6, each)
        end = 1 + 6 * each
        await checkpoint(home.store, epoch, end, at=6)
        assert await home.store.trim(ORDERS, end, [1], now=1 << 40) == end
        page = await home.store.journal(ORDERS, 0, 1 << 30)
        assert page.first == end
        assert [chunk_header(chunk).first for chunk in page.chunks] == [end]
        # Block 1 reaches from 4096 to 8191: the chunks at 2049, 4097 and 6145 touch it.
        store = await home.reopen()
        assert len(await store.payloads(ORDERS, [2049, 4096, 8192])) == 3
        for gone in (1, 2048, 8193):
            with pytest.raises(Corrupt):
                await store.payloads(ORDERS, [gone])
        assert await store.trim(ORDERS, end, [], now=1 << 40) == end
        with pytest.raises(Corrupt):
            await store.payloads(ORDERS, [4096])

    home(Retention(age_ms=0)).run(scenario)


def test_more_chunks_than_one_round_are_trimmed(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        epoch = (await home.store.open(ORDERS)).epoch
        count = 3 * BLOCK
        appends = [
            home.store.append(ORDERS, epoch, 1 + n, [enqueued(n, 1 + n, 1, size=20)])
            for n in range(count)
        ]
        await asyncio.gather(*appends)
        end = 1 + count
        await checkpoint(home.store, epoch, end, at=count)
        assert await home.store.trim(ORDERS, end, {0, 2}, now=1 << 40) == end
        assert len(await home.store.payloads(ORDERS, [1, BLOCK - 1, 2 * BLOCK])) == 3
        with pytest.raises(Corrupt):
            await home.store.payloads(ORDERS, [BLOCK])
        assert await home.store.trim(ORDERS, end, {0}, now=1 << 40) == end
        assert len(await home.store.payloads(ORDERS, [1, BLOCK - 1])) == 2
        with pytest.raises(Corrupt):
            await home.store.payloads(ORDERS, [2 * BLOCK])

    home(Retention(age_ms=0)).run(scenario)


def test_the_journals_of_a_store_have_a_size(home: HomeMaker) -> None:
    """Who holds more than its share gives way, also after the store was opened again."""

    async def scenario(home: StoreUnderTest) -> None:
        epoch = (await home.store.open(ORDERS)).epoch
        for n in range(40):
            await home.store.append(ORDERS, epoch, 1 + n, [enqueued(n, 1 + n, 1, size=1000)])
        await checkpoint(home.store, epoch, 41, at=40)
        few = (await home.store.open(BILLS)).epoch
        await home.store.append(BILLS, few, 1, [enqueued(0, 1, 3, size=1000)])
        await home.store.append(BILLS, few, 4, [CheckpointBegun(1, 4)], replay_from=4)
        store = await home.reopen()
        for partition in (ORDERS, BILLS):
            await store.open(partition)
        assert await store.trim(BILLS, 4, [], now=50) == 1
        first = await store.trim(ORDERS, 41, [], now=50)
        assert 20 < first < 40
        page = await store.journal(ORDERS, first, 1 << 20)
        assert sum(len(chunk) for chunk in page.chunks) <= 20_000
        assert await store.trim(ORDERS, 41, [], now=50) == first

    home(Retention(bytes_max=20_000)).run(scenario)


def test_trim_of_an_unknown_partition_does_nothing(home: HomeMaker) -> None:
    async def scenario(home: StoreUnderTest) -> None:
        assert await home.store.trim(ORDERS, 100, [], now=0) == 0

    home().run(scenario)
