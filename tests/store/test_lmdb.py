"""What only the embedded store promises: one owner, one format, shared commits, bad disks."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import lmdb
import pytest

from peeklock.entity.records import COMPLETED, CheckpointBegun, Removed
from peeklock.store.entries import LmdbTransaction, PartitionEntry
from peeklock.store.environment import OWNER
from peeklock.store.figures import StoreFigures
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.lmdb.writer import LmdbWriter
from peeklock.store.retention import Retention
from peeklock.store.store import (
    Corrupt,
    Fenced,
    PartitionId,
    Store,
    StoreError,
    Unavailable,
)
from tests.store.builders import enqueued, told
from tests.store.stores import BILLS, ORDERS, replayed


def run(store: LmdbStore, scenario: Callable[[LmdbStore], Awaitable[None]]) -> None:
    async def living() -> None:
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(living())


async def nothing(store: LmdbStore) -> None:
    assert not store.full


# ---- the directory


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    async def scenario(store: LmdbStore) -> None:
        with pytest.raises(StoreError, match=f"{tmp_path}.*{os.getpid()}"):
            LmdbStore(tmp_path)

    run(LmdbStore(tmp_path), scenario)
    run(LmdbStore(tmp_path), nothing)


def test_an_owner_in_another_process_counts_too(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from peeklock.store.lmdb.store import LmdbStore\n"
        "store = LmdbStore(pathlib.Path(sys.argv[1])); print('owned', flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"owned\n"
        with pytest.raises(StoreError, match=str(owner.pid)):
            LmdbStore(tmp_path)
        owner.send_signal(signal.SIGKILL)
    run(LmdbStore(tmp_path), nothing)


def test_another_format_is_refused_by_name(tmp_path: Path) -> None:
    run(LmdbStore(tmp_path), nothing)
    with lmdb.open(str(tmp_path), max_dbs=2) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(db=meta, write=True) as transaction:
            transaction.put(b"format", b"peeklock store 9")
    with pytest.raises(StoreError, match=r"'peeklock store 9'.*'peeklock store 1'"):
        LmdbStore(tmp_path)
    # The refusal let go of the directory.
    with pytest.raises(StoreError, match="format"):
        LmdbStore(tmp_path)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not a store at all " * 1000)
    with pytest.raises(StoreError, match=str(tmp_path)):
        LmdbStore(tmp_path)


def test_the_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "stores" / "first"
    run(LmdbStore(directory), nothing)
    assert (directory / OWNER).read_text() == f"{os.getpid()}\n"
    assert (directory / "data.mdb").stat().st_mode & 0o077 == 0


# ---- shared commits


def commits(store: LmdbStore) -> int:
    return store._environment.lmdb.info()["last_txnid"]


def test_what_is_ready_together_is_committed_together(tmp_path: Path) -> None:
    """While a commit waits, the appends of all partitions gather for the next one."""

    async def scenario(store: LmdbStore) -> None:
        partitions = [PartitionId("default", f"queue-{n}") for n in range(10)]
        for partition in partitions:
            await store.open(partition)
        before = commits(store)
        with store._environment.lmdb.begin(write=True) as held:
            appends = [
                asyncio.ensure_future(store.append(partition, 1, 1, [enqueued(5, 1, 1)]))
                for partition in partitions
            ]
            await asyncio.sleep(0)
            held.abort()
        await asyncio.gather(*appends)
        assert commits(store) - before <= 2

    # Only a thread can wait here: on a fast disk the adaptive store commits in the loop itself.
    run(LmdbStore(tmp_path, commit="thread"), scenario)


def test_inline_commits_once_per_turn_of_the_loop(tmp_path: Path) -> None:
    async def scenario(store: LmdbStore) -> None:
        await store.open(ORDERS)
        await store.open(BILLS)
        before = commits(store)
        await asyncio.gather(
            store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)]),
            store.append(BILLS, 1, 1, [enqueued(5, 1, 1)]),
            store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)]),
        )
        assert commits(store) - before == 1

    run(LmdbStore(tmp_path, commit="inline"), scenario)


def test_one_refusal_does_not_spoil_the_commit(tmp_path: Path) -> None:
    async def scenario(store: LmdbStore) -> None:
        await store.open(ORDERS)
        await store.open(BILLS)
        results = await asyncio.gather(
            store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)]),
            store.append(BILLS, 7, 1, [enqueued(5, 1, 1)]),
            store.append(ORDERS, 1, 9, [enqueued(5, 9, 1)]),
            store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)]),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [int, Fenced, Unavailable, int]

    run(LmdbStore(tmp_path, commit="inline"), scenario)


def test_close_commits_what_was_handed_over(tmp_path: Path) -> None:
    async def scenario(store: LmdbStore) -> None:
        await store.open(ORDERS)
        append = asyncio.ensure_future(store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)]))
        await asyncio.sleep(0)
        await store.close()
        await append

    run(LmdbStore(tmp_path), scenario)
    run(LmdbStore(tmp_path, commit="inline"), expect_one_message)


def test_an_append_that_nobody_waits_for_harms_nobody(tmp_path: Path) -> None:
    async def scenario(store: LmdbStore) -> None:
        await store.open(ORDERS)
        append = asyncio.ensure_future(store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)]))
        await asyncio.sleep(0)
        append.cancel()
        await store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)])

    run(LmdbStore(tmp_path), scenario)


@pytest.mark.parametrize("mode", ["thread", "inline"])
def test_a_loop_that_is_gone_harms_nobody(tmp_path: Path, mode: str) -> None:
    store = LmdbStore(tmp_path, commit="inline" if mode == "inline" else "thread")

    async def hand_over() -> None:
        await store.open(ORDERS)
        append = asyncio.ensure_future(store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)]))
        await asyncio.sleep(0)
        append.cancel()

    asyncio.run(hand_over())
    run(store, expect_one_message)


async def expect_one_message(store: Store) -> None:
    _, _, records = await replayed(store, ORDERS)
    assert told(records, False) == told([enqueued(5, 1, 1)], False)


# ---- failures


class Failing:
    """A request that breaks the transaction it is in."""

    def __init__(self, partition: PartitionEntry) -> None:
        self.partition = partition
        self.size = 0

    def apply(self, ledger: LmdbWriter, transaction: LmdbTransaction) -> int:
        raise ZeroDivisionError("what nobody thought of")


@pytest.mark.parametrize("mode", ["thread", "inline"])
def test_a_failed_commit_fails_all_of_it_and_nothing_more(tmp_path: Path, mode: str) -> None:
    async def scenario(store: LmdbStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        with store._environment.lmdb.begin(write=True) as held:
            failing = [
                asyncio.ensure_future(store._access.submit(Failing(store._writer.partition("x")))),
                asyncio.ensure_future(store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)])),
                asyncio.ensure_future(store.append(ORDERS, 1, 3, [enqueued(5, 3, 1)])),
            ]
            if mode == "thread":
                await asyncio.sleep(0)
            held.abort()
        results = await asyncio.gather(*failing, return_exceptions=True)
        assert isinstance(results[0], Unavailable)
        if all(isinstance(result, Unavailable) for result in results):
            # The commit was shared: nothing of it rests, and the same may be tried again.
            await store.append(ORDERS, 1, 2, [enqueued(5, 2, 2)])
        _, _, records = await replayed(store, ORDERS)
        assert told(records, False) == told([enqueued(5, 1, 3)], False)

    run(LmdbStore(tmp_path, commit="inline" if mode == "inline" else "thread"), scenario)


def test_a_full_map_refuses_and_the_store_goes_on(tmp_path: Path) -> None:
    """Nothing is lost, and what trim frees can be filled again."""

    async def scenario(store: LmdbStore) -> None:
        await store.open(ORDERS)
        position = 1
        refused = ""
        while not refused:
            try:
                await store.append(ORDERS, 1, position, [enqueued(5, position, 50, 1000)])
                position += 50
            except Unavailable as error:
                refused = str(error)
        assert "MDB_MAP_FULL" in refused
        assert position > 500
        assert store.full
        _, first, records = await replayed(store, ORDERS)
        assert (first, told(records, False)) == (
            1,
            told([enqueued(5, 1, position - 1, 1000)], False),
        )
        await store.append(ORDERS, 2, position, [CheckpointBegun(6, 1)], replay_from=position)
        assert await store.trim(ORDERS, position, [], now=1 << 40) == position
        # What a commit frees can be used by the second one after it. Small ones find room still:
        # that is what the low-water mark is for.
        for step in (1, 2):
            await store.append(ORDERS, 2, position + step, [Removed(7, 0, COMPLETED, [step])])
        for step in range(3, 503, 50):
            await store.append(ORDERS, 2, position + step, [enqueued(7, step, 50, 1000)])

    run(LmdbStore(tmp_path, map_size=2 << 20, retention=Retention(age_ms=0)), scenario)


FULL_DISK = """
import asyncio, pathlib, resource, sys
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.figures import StoreFigures
from peeklock.store.store import Unavailable
from tests.store.builders import enqueued
from tests.store.stores import ORDERS

async def main() -> None:
    store = LmdbStore(pathlib.Path(sys.argv[1]))
    await store.open(ORDERS)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, resource.RLIM_INFINITY))
    position = 1
    for _ in range(3):
        try:
            while True:
                await store.append(ORDERS, 1, position, [enqueued(5, position, 50, 1000)])
                position += 50
        except Unavailable:
            pass
    print(position, flush=True)
    # There is room again: the store goes on where it was.
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.append(ORDERS, 1, position, [enqueued(5, position, 50, 1000)])
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY,
    reason="the size of files is limited here already",
)
def test_a_disk_that_takes_no_more_loses_nothing(tmp_path: Path) -> None:
    """The kernel refuses to let the file grow, as it does on a full disk."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    position = int(done.stdout)
    assert position > 1000

    async def scenario(store: LmdbStore) -> None:
        _, _, records = await replayed(store, ORDERS)
        assert told(records, False) == told([enqueued(5, 1, position + 49, 1000)], False)
        bodies = await store.payloads(ORDERS, range(1, position + 50))
        assert len({message.content for message in bodies}) == position + 49

    run(LmdbStore(tmp_path), scenario)


def looks_full(store: LmdbStore) -> bool:
    """Ask the store anew: it may have changed its mind."""
    return store.full


def test_the_low_water_mark_follows_the_disk(tmp_path: Path) -> None:
    free = 1 << 30
    now = 0.0

    async def scenario(store: LmdbStore) -> None:
        nonlocal free, now
        assert not looks_full(store)
        free = 63 << 20
        assert not looks_full(store)
        now = 1.0
        assert looks_full(store)
        # Settlements go on all the same.
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        now, free = 2.0, 70 << 20
        assert looks_full(store)
        now, free = 3.0, 80 << 20
        assert not looks_full(store)

    def free_space(directory: Path) -> int:
        assert directory == tmp_path
        return free

    run(LmdbStore(tmp_path, free_space=free_space, clock=lambda: now), scenario)


def test_much_that_was_written_is_a_reason_to_look_again(tmp_path: Path) -> None:
    free = 1 << 30

    async def scenario(store: LmdbStore) -> None:
        nonlocal free
        await store.open(ORDERS)
        assert not looks_full(store)
        free = 0
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 100, 1000)])
        assert not looks_full(store)
        await store.append(ORDERS, 1, 101, [enqueued(5, 101, 500, 1000)])
        assert looks_full(store)

    store = LmdbStore(tmp_path, reserve_bytes=1 << 20, free_space=lambda _: free, clock=lambda: 0.5)
    run(store, scenario)


def test_room_inside_the_file_is_room(tmp_path: Path) -> None:
    """A file never shrinks: what trim gave back must not leave the store full for ever."""
    now = 0.0

    async def scenario(store: LmdbStore) -> None:
        nonlocal now
        await store.open(ORDERS)
        for position in range(1, 4001, 100):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 100, 1000)])
        assert looks_full(store)
        await store.append(ORDERS, 1, 4001, [CheckpointBegun(6, 1)], replay_from=4001)
        await store.trim(ORDERS, 4001, [], now=1 << 40)
        now = 2.0
        assert not looks_full(store)

    store = LmdbStore(
        tmp_path,
        reserve_bytes=1 << 20,
        free_space=lambda _: 0,
        clock=lambda: now,
        retention=Retention(age_ms=0),
    )
    run(store, scenario)


# ---- damage that the engine does not see


def test_a_missing_chunk_is_noticed(tmp_path: Path) -> None:
    async def fill(store: LmdbStore) -> None:
        for partition in (ORDERS, BILLS):
            await store.open(partition)
            for position in range(1, 6):
                await store.append(partition, 1, position, [enqueued(5, position, 1)])

    async def lost(store: LmdbStore) -> None:
        with pytest.raises(Corrupt, match="goes on at 4 where 3 is due"):
            await replayed(store, ORDERS)
        _, first, _ = await replayed(store, BILLS)
        assert first == 1

    run(LmdbStore(tmp_path), fill)
    with lmdb.open(str(tmp_path), max_dbs=2) as environment:
        values = environment.open_db(b"values")
        with environment.begin(db=values, write=True) as transaction:
            assert transaction.delete((1).to_bytes(4, "big") + (3).to_bytes(8, "big"))
    run(LmdbStore(tmp_path), lost)


def test_a_chunk_at_the_wrong_place_is_noticed(tmp_path: Path) -> None:
    async def fill(store: LmdbStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 2)])

    async def moved(store: LmdbStore) -> None:
        with pytest.raises(Corrupt, match="another position"):
            await store.open(ORDERS)
        # Others live on.
        await store.open(BILLS)
        await store.append(BILLS, 1, 1, [enqueued(5, 1, 1)])

    run(LmdbStore(tmp_path), fill)
    with lmdb.open(str(tmp_path), max_dbs=2) as environment:
        values = environment.open_db(b"values")
        with environment.begin(db=values, write=True) as transaction:
            number = (1).to_bytes(4, "big")
            chunk = transaction.get(number + (1).to_bytes(8, "big"))
            assert chunk is not None
            transaction.put(number + (3).to_bytes(8, "big"), chunk)
    run(LmdbStore(tmp_path), moved)


def test_a_damaged_entry_is_noticed(tmp_path: Path) -> None:
    async def fill(store: LmdbStore) -> None:
        await store.open(ORDERS)

    run(LmdbStore(tmp_path), fill)
    with lmdb.open(str(tmp_path), max_dbs=2) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(db=meta, write=True) as transaction:
            key = b"p" + (1).to_bytes(4, "big")
            entry = transaction.get(key)
            assert entry is not None
            transaction.put(key, entry[:-1] + b"?")
    with pytest.raises(Corrupt, match="checksum"):
        run(LmdbStore(tmp_path), fill)


# ---- figures


def test_commits_and_cold_reads_are_counted_as_they_come(tmp_path: Path) -> None:
    figures = StoreFigures()

    async def scenario(store: LmdbStore) -> None:
        await store.open(ORDERS)
        before = figures.commits.count
        await store.append(ORDERS, 1, 1, [enqueued(1, 1, 1)])
        assert figures.commits.count == before + 1
        assert figures.commit_bytes.sum > 0
        assert figures.reads.count == 0
        await store.payloads(ORDERS, [1])
        assert figures.reads.count == 1
        assert figures.free_bytes < 0
        assert not store.full
        assert figures.free_bytes > figures.reserve_bytes > 0

    run(LmdbStore(tmp_path, figures=figures), scenario)
