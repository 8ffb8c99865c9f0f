"""Every catalog keeps descriptions until they are removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from peeklock.store.catalog import EmbeddedCatalog
from peeklock.store.memory import MemoryCatalog
from peeklock.store.postgres.database_catalog import PostgresCatalog
from peeklock.store.postgres.preparing import prepare
from peeklock.store.store import Catalog, Corrupt, StoreError, Unavailable
from tests.store.postgres.server import shared_server

Scenario = Callable[[Catalog], Awaitable[None]]


@pytest.fixture(params=["memory", "embedded", "postgres"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Run scenarios one after another; between them the catalog is closed and opened again."""
    memory = MemoryCatalog()
    url = shared_server().new_database() if request.param == "postgres" else ""

    def make() -> Catalog:
        if url:
            prepare(url, "store", None, may_make=True)
            return PostgresCatalog(url)
        return memory if request.param == "memory" else EmbeddedCatalog(tmp_path)

    def run(*scenarios: Scenario) -> None:
        for scenario in scenarios:
            asyncio.run(living(make(), scenario))

    return run


async def living(catalog: Catalog, scenario: Scenario) -> None:
    try:
        await scenario(catalog)
    finally:
        await catalog.close()


def test_texts_rest_until_they_are_removed(live: Callable[..., None]) -> None:
    async def save(catalog: Catalog) -> None:
        assert await catalog.load() == []
        await catalog.save("default", "queue", "orders", '{"a": 1}')
        await catalog.save("default", "queue", "bills", "{}")
        await catalog.save("Default", "namespace", "", '{"name": "é"}')
        await catalog.save("default", "queue", "Orders", '{"a": 2}')

    async def load(catalog: Catalog) -> None:
        assert await catalog.load() == [
            ("Default", "namespace", "", '{"name": "é"}'),
            ("default", "queue", "bills", "{}"),
            ("default", "queue", "Orders", '{"a": 2}'),
        ]
        await catalog.remove("DEFAULT", "queue", "ORDERS")
        await catalog.remove("default", "queue", "nobody")

    async def gone(catalog: Catalog) -> None:
        assert [path for _, _, path, _ in await catalog.load()] == ["", "bills"]

    live(save, load, gone)


def test_texts_are_replaced_by_others_together(live: Callable[..., None]) -> None:
    async def save(catalog: Catalog) -> None:
        await catalog.save_all([("default", "queue", name, "{}") for name in ("a", "b", "c")])
        gone = [("Default", "queue", "A"), ("default", "queue", "c"), ("default", "queue", "d")]
        await catalog.replace(gone, [("default", "dropped", "a", "{}")])

    async def load(catalog: Catalog) -> None:
        assert await catalog.load() == [
            ("default", "dropped", "a", "{}"),
            ("default", "queue", "b", "{}"),
        ]

    live(save, load)


def test_names_may_be_long(live: Callable[..., None]) -> None:
    path = "/".join(["ü" * 100] * 10)

    async def scenario(catalog: Catalog) -> None:
        await catalog.save("default", "queue", path, "{}")
        await catalog.save("default", "queue", path + "x", "{}")
        assert [found for _, _, found, _ in await catalog.load()] == [path, path + "x"]

    live(scenario)


def test_the_catalog_has_one_owner(tmp_path: Path) -> None:
    async def scenario(catalog: Catalog) -> None:
        with pytest.raises(StoreError, match=f"{tmp_path}.*{os.getpid()}"):
            EmbeddedCatalog(tmp_path)

    asyncio.run(living(EmbeddedCatalog(tmp_path), scenario))


def test_a_closed_catalog_says_so(tmp_path: Path) -> None:
    async def scenario(catalog: Catalog) -> None:
        await catalog.close()
        with pytest.raises(Unavailable):
            await catalog.load()
        with pytest.raises(Unavailable):
            await catalog.save("default", "queue", "orders", "{}")

    asyncio.run(living(EmbeddedCatalog(tmp_path), scenario))


def test_a_damaged_description_is_noticed(tmp_path: Path) -> None:
    async def save(catalog: Catalog) -> None:
        await catalog.save("default", "queue", "orders", '{"marker": 1}')

    async def load(catalog: Catalog) -> None:
        with pytest.raises(Corrupt):
            await catalog.load()

    asyncio.run(living(EmbeddedCatalog(tmp_path), save))
    data = tmp_path / "data.mdb"
    damaged = data.read_bytes().replace(b"marker", b"market")
    data.write_bytes(damaged)
    asyncio.run(living(EmbeddedCatalog(tmp_path), load))
