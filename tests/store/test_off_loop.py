"""Nothing on the event loop waits for a disk that is one of several, nor for what is large."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from peeklock.entity.message import Message
from peeklock.entity.records import Enqueued
from peeklock.store.appending import ENCODED_AT_ONCE, POSITIONS_AT_ONCE
from peeklock.store.codec.large import encode_large
from peeklock.store.codec.records import encode_chunk
from peeklock.store.committers import Submission, Threaded
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.lmdb.writer import LmdbAppend
from peeklock.store.reading import INLINE_BYTES_MAX, Reading
from peeklock.store.segments.store import SegmentStore
from peeklock.store.segments.tail import LogAppend
from peeklock.store.store import PartitionId, StoreError

ORDERS = PartitionId("ns", "orders")


class HangingDisk:
    """Says how much room there is, once it is let go: each commit asks before it is answered."""

    def __init__(self) -> None:
        self.goes = threading.Event()
        self.goes.set()

    def free_space(self, _: Path) -> int:
        self.goes.wait(20)
        return 1 << 40


Engine = LmdbStore | SegmentStore


@pytest.fixture(params=[LmdbStore, SegmentStore])
def engine(request: pytest.FixtureRequest) -> type[Engine]:
    found: type[Engine] = request.param
    return found


async def opened(engine: type[Engine], directory: Path, **choices: Any) -> tuple[Engine, int]:
    if engine is SegmentStore:
        choices["segment_bytes"] = 1 << 20
    store = engine(directory, **choices)
    return store, (await store.open(ORDERS)).epoch


def enqueued(first: int, *bodies: bytes) -> list[Enqueued]:
    return [Enqueued(5, first, [Message(b"", body) for body in bodies])]


def test_a_disk_that_hangs_stops_only_its_own_store(tmp_path: Path, engine: type[Engine]) -> None:
    """The loop goes on, and so does the other store."""

    async def scenario() -> None:
        one, first = await opened(engine, tmp_path / "one", off_loop=True)
        other, second = await opened(engine, tmp_path / "other", off_loop=True)
        hangs = threading.Event()
        committer = one._access._committer
        assert isinstance(committer, Threaded)
        commit = committer._commit

        def hang(batch: list[Submission]) -> list[int | StoreError]:
            hangs.wait(20)
            return commit(batch)

        committer._commit = hang
        waits = asyncio.ensure_future(one.append(ORDERS, first, 1, enqueued(1, b"x")))
        for number in range(20):
            await other.append(ORDERS, second, 1 + number, enqueued(1 + number, b"y"))
        [found] = await other.payloads(ORDERS, [3])
        assert found.content == b"y"
        assert not waits.done()
        hangs.set()
        await waits
        await one.close()
        await other.close()

    asyncio.run(scenario())


def test_a_look_for_room_that_hangs_stops_nobody(tmp_path: Path, engine: type[Engine]) -> None:
    async def scenario() -> None:
        disk = HangingDisk()
        store, epoch = await opened(
            engine, tmp_path / "store", off_loop=True, free_space=disk.free_space, reserve_bytes=64
        )
        disk.goes.clear()
        assert not store.full
        await store.append(ORDERS, epoch, 1, enqueued(1, b"x"))
        assert not store.full
        disk.goes.set()
        await store.close()

    asyncio.run(scenario())


def test_what_is_full_is_known_a_moment_later(tmp_path: Path, engine: type[Engine]) -> None:
    async def scenario() -> None:
        store, _ = await opened(
            engine,
            tmp_path / "store",
            off_loop=True,
            free_space=lambda _: 10,
            reserve_bytes=1 << 20,
        )
        told = [store.full]
        assert store._access._look is not None
        assert await store._access._look
        told.append(store.full)
        assert told == [False, True]
        await store.close()

    asyncio.run(scenario())


def test_bodies_are_read_on_the_loop_only_while_they_are_small_and_quick() -> None:
    reading = Reading("store", off_loop=False)
    assert not reading.is_inline(2)  # nobody knows yet
    for _ in range(60):
        reading.found(10, 1_000, 0.00005)
    assert reading.is_inline(10)
    assert not reading.is_inline(1_000)
    reading.found(1, 4 * INLINE_BYTES_MAX, 0.0001)
    assert not reading.is_inline(1)
    for _ in range(100):
        reading.found(10, 1_000, 0.010)  # a slow disk
    assert not reading.is_inline(1)
    assert not Reading("one of several", off_loop=True).is_inline(1)


def test_large_bodies_are_read_beside_the_loop(tmp_path: Path, engine: type[Engine]) -> None:
    async def scenario() -> None:
        store, epoch = await opened(engine, tmp_path / "store")
        bodies = [b"x" * 200_000, b"y" * 10]
        await store.append(ORDERS, epoch, 1, enqueued(1, *bodies))
        for _ in range(3):
            found = await store.payloads(ORDERS, [1, 2])
            assert [message.content for message in found] == bodies
        assert store._access._reading._thread is not None
        await store.close()
        assert not store._access._reading._thread.is_alive()

    asyncio.run(scenario())


def test_large_records_are_written_down_beside_the_loop(
    tmp_path: Path, engine: type[Engine]
) -> None:
    """A transaction of many messages is one commit, and no step of the loop is as long."""

    async def scenario() -> None:
        store, epoch = await opened(engine, tmp_path / "store", off_loop=True)
        committer = store._access._committer
        assert isinstance(committer, Threaded)
        commit = committer._commit
        came: list[int] = []

        def look(batch: list[Submission]) -> list[int | StoreError]:
            came.extend(
                len(each.chunk.data)
                for each, _ in batch
                if isinstance(each, (LmdbAppend, LogAppend))
            )
            return commit(batch)

        committer._commit = look
        bodies = [bytes([at]) * (ENCODED_AT_ONCE // 8) for at in range(12)]
        large = enqueued(1, *bodies, b"x" * (3 << 20))
        chunk = encode_chunk(1, large)
        assert encode_large(1, large) == chunk
        assert await store.append(ORDERS, epoch, 1, large) == len(chunk)
        assert await store.append(ORDERS, epoch, 14, enqueued(14, b"small")) > 0
        assert came[0] == 0  # it was not a chunk yet when it left the loop
        assert came[1] > 0
        many = enqueued(15, *[b""] * (POSITIONS_AT_ONCE + 1))
        assert await store.append(ORDERS, epoch, 15, many) == len(encode_chunk(15, many))
        assert came[2] == 0
        found = await store.payloads(ORDERS, [12, 13, 14])
        assert [message.content for message in found] == [bodies[11], b"x" * (3 << 20), b"small"]
        await store.close()

    asyncio.run(scenario())
