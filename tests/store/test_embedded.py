"""Which engine keeps an embedded store: new ones are segments, what is there stays what it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from peeklock.store.damage.inspection import inspect_store
from peeklock.store.damage.pages import DATA
from peeklock.store.damage.repair import rewrite_store
from peeklock.store.embedded import EMBEDDED, LMDB, SEGMENTS, open_embedded
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import Corrupt, StoreError, Unavailable
from tests.store.builders import enqueued, told
from tests.store.stores import ORDERS, replayed

MESSAGES = enqueued(5, 1, 3)


def fill(directory: Path, kind: str) -> type:
    """Make a store; answers which engine keeps it."""

    async def scenario() -> type:
        store = open_embedded(directory, kind)
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [MESSAGES])
        await store.close()
        return type(store)

    return asyncio.run(scenario())


def look(directory: Path, kind: str = EMBEDDED) -> type:
    """Open it again: all of it is there; answers which engine keeps it."""

    async def scenario() -> type:
        store = open_embedded(directory, kind, make=False)
        try:
            _, first, records = await replayed(store, ORDERS)
            assert (first, told(records, False)) == (1, told([MESSAGES], False))
        finally:
            await store.close()
        return type(store)

    return asyncio.run(scenario())


def test_a_new_store_has_segments(tmp_path: Path) -> None:
    assert fill(tmp_path / "store", EMBEDDED) is SegmentStore
    assert look(tmp_path / "store") is SegmentStore
    assert look(tmp_path / "store", SEGMENTS) is SegmentStore


def test_a_store_of_lmdb_stays_one_until_somebody_moves_it(tmp_path: Path) -> None:
    assert fill(tmp_path / "store", LMDB) is LmdbStore
    assert look(tmp_path / "store") is LmdbStore
    assert look(tmp_path / "store", LMDB) is LmdbStore
    assert look(tmp_path / "store", SEGMENTS) is SegmentStore
    assert look(tmp_path / "store") is SegmentStore


def test_segments_are_not_opened_as_lmdb(tmp_path: Path) -> None:
    fill(tmp_path / "store", EMBEDDED)
    with pytest.raises(StoreError, match="--store embedded"):
        open_embedded(tmp_path / "store", LMDB)
    assert look(tmp_path / "store") is SegmentStore


@pytest.mark.parametrize(("kind", "engine"), [(EMBEDDED, SegmentStore), (LMDB, LmdbStore)])
def test_what_was_repaired_is_again_what_it_was(tmp_path: Path, kind: str, engine: type) -> None:
    directory = tmp_path / "store"
    fill(directory, kind)
    for _ in range(2):
        rewrite_store(inspect_store(directory, directory / DATA, [ORDERS.key]))
    assert look(directory) is engine
    assert inspect_store(directory, directory / DATA, [ORDERS.key]).is_whole


def test_where_a_store_was_no_other_is_made(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there was one before"):
        open_embedded(tmp_path / "store", make=False)
    fill(tmp_path / "store", EMBEDDED)
    (tmp_path / "store" / DATA).unlink()
    with pytest.raises(Corrupt, match="peeklock store repair"):
        open_embedded(tmp_path / "store")
    assert not (tmp_path / "store" / DATA).exists()
