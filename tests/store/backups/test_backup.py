"""Snapshots of stores that go on, and backups that are whole or refused."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from peeklock.store.backups.backup import (
    MANIFEST,
    Stopped,
    is_name,
    read_manifest,
    restore_backup,
    write_backup,
)
from peeklock.store.backups.snapshot import Advance, KeepsSnapshots, Snapshot
from peeklock.store.catalog import EmbeddedCatalog
from peeklock.store.memory import MemoryStores
from peeklock.store.retention import Retention
from peeklock.store.store import Corrupt, StoreError
from peeklock.store.stores import Stores
from tests.store.builders import enqueued, told
from tests.store.stores import BILLS, ORDERS, StoreUnderTest, replayed

KINDS = ("embedded", "embedded-inline", "segments", "segments-inline")


def nothing(_: int) -> None:
    """Nobody watches."""


def backed_up(directory: Path, snapshots: dict[str, Snapshot]) -> Path:
    write_backup(directory, snapshots, 1_790_000_000_000, "x", directory / "no-tls", nothing)
    return directory


def held(store: object) -> Snapshot:
    assert isinstance(store, KeepsSnapshots)
    return store.snapshot()


@pytest.mark.parametrize("kind", KINDS)
def test_what_rested_is_there_and_what_came_later_is_not(kind: str, tmp_path: Path) -> None:
    """The store goes on while it is copied: it fills segments, trims them, drops partitions."""
    retention = Retention(age_ms=0, bytes_max=0)
    under_test = StoreUnderTest(kind, tmp_path / "store", retention)
    before = [enqueued(5, 1 + 10 * n, 10) for n in range(40)]

    async def scenario(under_test: StoreUnderTest) -> None:
        store = under_test.store
        for partition in (ORDERS, BILLS):
            await store.open(partition)
        at = 1
        for record in before:
            await store.append(ORDERS, 1, at, [record])
            await store.append(BILLS, 1, at, [record])
            at += len(record.messages)
        snapshot = held(store)
        for n in range(40):
            later = enqueued(5, at, 200)
            await store.append(ORDERS, 1, at, [later], at if n == 39 else None)
            at += len(later.messages)
        await store.trim(ORDERS, at - 200, (), 1 << 42)
        await store.drop(BILLS)
        backed_up(tmp_path / "backup", {"store": snapshot})
        # Nothing is held any more.
        await store.trim(ORDERS, at - 200, (), 1 << 42)

    under_test.run(scenario)
    restore_backup(tmp_path / "backup", tmp_path / "data", nothing)
    copy = StoreUnderTest(kind, tmp_path / "data" / "store", retention)

    async def look(copy: StoreUnderTest) -> None:
        for partition in (ORDERS, BILLS):
            _, first, records = await replayed(copy.store, partition)
            assert first == 1
            assert told(records, False) == told([*before], False)
            messages = await copy.store.payloads(partition, [1, 205, 400])
            assert [message.size for message in messages] == [
                message.size for message in (before[0].messages[0],) * 3
            ]
        # It can be written to, as after any other start.
        await copy.store.append(ORDERS, 2, 401, [enqueued(5, 401, 3)])

    copy.run(look)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_held_is_closed_later_and_nobody_else_waits(
    kind: str, tmp_path: Path
) -> None:
    """It was waited for on the loop: nothing was served until that store was copied."""
    under_test = StoreUnderTest(kind, tmp_path / "store")

    async def scenario(under_test: StoreUnderTest) -> None:
        first, second = held(under_test.store), held(under_test.store)
        closing = asyncio.ensure_future(under_test.store.close())
        # Others have their turns, and what is held can be copied.
        await asyncio.to_thread(first.copy, tmp_path / "copy", nothing)
        await asyncio.to_thread(first.release)
        assert not closing.done()
        with pytest.raises(StoreError):
            held(under_test.store)
        await asyncio.to_thread(second.release)
        await asyncio.wait_for(closing, 60)

    under_test.run(scenario)


def test_all_are_held_or_none(tmp_path: Path) -> None:
    stores = Stores.of(MemoryStores(Retention()), ["store", "store-2"])
    with pytest.raises(StoreError, match="is of a kind that has no backups"):
        stores.snapshots()


def small_backup(tmp_path: Path) -> Path:
    async def made() -> Path:
        catalog = EmbeddedCatalog(tmp_path / "catalog")
        await catalog.save("ns", "queue", "q", "{}")
        path = backed_up(tmp_path / "backup", {"catalog": catalog.snapshot()})
        await catalog.close()
        return path

    return asyncio.run(made())


def test_a_backup_is_never_replaced(tmp_path: Path) -> None:
    small_backup(tmp_path)
    with pytest.raises(StoreError, match="already; choose another name"):
        small_backup(tmp_path)
    manifest = read_manifest(tmp_path / "backup")
    assert list(manifest.files) == ["catalog/data.mdb"]


def no_room(_: int) -> None:
    raise OSError(errno.ENOSPC, "no room")


def enough(_: int) -> None:
    raise Stopped("enough")


def enough_when_all_is_copied(count: int) -> None:
    if not count:
        raise Stopped("enough")


@pytest.mark.parametrize("advance", [no_room, enough, enough_when_all_is_copied])
def test_one_that_was_given_up_leaves_nothing(tmp_path: Path, advance: Advance) -> None:
    async def stopped() -> None:
        catalog = EmbeddedCatalog(tmp_path / "catalog")
        snapshots: dict[str, Snapshot] = {"catalog": catalog.snapshot()}
        with pytest.raises(StoreError, match=r"enough|no room"):
            write_backup(tmp_path / "all" / "one", snapshots, 0, "x", tmp_path / "tls", advance)
        # It would wait for ever if the snapshot were still held.
        await catalog.close()

    asyncio.run(stopped())
    assert list((tmp_path / "all").iterdir()) == []


def test_nobody_loses_what_has_a_similar_name(tmp_path: Path) -> None:
    """What was there with `.partial` at the end was removed."""
    mine = [tmp_path / "backup.partial", tmp_path / "data.partial"]
    for path in mine:
        path.mkdir()
    backup = small_backup(tmp_path)
    restore_backup(backup, tmp_path / "data", nothing)
    assert all(path.is_dir() for path in mine)
    with pytest.raises(StoreError, match="could not be restored"):
        restore_backup(backup, tmp_path / "other", no_room)
    there = sorted(path.name for path in tmp_path.iterdir())
    assert there == ["backup", "backup.partial", "catalog", "data", "data.partial"]


@pytest.mark.parametrize("damage", ["missing", "shorter", "other", "manifest", "elsewhere"])
def test_what_is_not_whole_is_not_restored(tmp_path: Path, damage: str) -> None:
    backup = small_backup(tmp_path)
    file, manifest = backup / "catalog" / "data.mdb", backup / MANIFEST
    if damage == "missing":
        file.unlink()
    elif damage == "shorter":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "other":
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    elif damage == "manifest":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text().replace("catalog/", "../catalog/"))
    with pytest.raises(Corrupt):
        restore_backup(backup, tmp_path / "data", nothing)
    assert not (tmp_path / "data").exists()


def test_nothing_is_restored_over_something(tmp_path: Path) -> None:
    backup = small_backup(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").touch()
    with pytest.raises(StoreError, match="has something in it"):
        restore_backup(backup, tmp_path / "data", nothing)
    (tmp_path / "data" / "mine").unlink()
    restore_backup(backup, tmp_path / "data", nothing)

    async def look() -> None:
        catalog = EmbeddedCatalog(tmp_path / "data" / "catalog")
        assert await catalog.load() == [("ns", "queue", "q", "{}")]
        await catalog.close()

    asyncio.run(look())


def test_names_lead_nowhere_else() -> None:
    assert all(map(is_name, ["nightly", "2026-11-16T15.04", "a_b"]))
    assert not any(map(is_name, ["", "..", ".x", "a/b", "ü", "a b", "x" * 101, "a.partial"]))
