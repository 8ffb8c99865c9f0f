"""Who writes: the one with the highest epoch, in one statement for all, and never with a lock that
somebody would have to wait for."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from peeklock.store.figures import StoreFigures
from peeklock.store.postgres.bodies import STATEMENT_BYTES
from peeklock.store.postgres.connection import DatabaseSession, shown
from peeklock.store.postgres.database_catalog import PostgresCatalog
from peeklock.store.postgres.databases import PostgresStores
from peeklock.store.postgres.preparing import prepare
from peeklock.store.postgres.statements import BODIES, DROPPED, JOURNALS
from peeklock.store.retention import Retention
from peeklock.store.store import Fenced, PartitionId, StoreError, Unavailable
from tests.store.builders import enqueued
from tests.store.postgres.server import in_thread, shared_server
from tests.store.stores import BILLS, ORDERS, postgres_store, replayed

MANY = [PartitionId("default", f"queue-{number}") for number in range(20)]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement is carried out, by all sessions."""
    counts: Counter[str] = Counter()
    fetch = DatabaseSession.fetch

    async def counted(session: DatabaseSession, statement: str, *arguments: Any) -> list[Any]:
        counts[statement] += 1
        return await fetch(session, statement, *arguments)

    monkeypatch.setattr(DatabaseSession, "fetch", counted)
    return counts


def test_all_partitions_share_one_statement() -> None:
    async def scenario() -> None:
        figures = StoreFigures()
        store = postgres_store(shared_server().new_database(), figures=figures)
        try:
            await asyncio.gather(*(store.open(each) for each in MANY))
            appends = [store.append(each, 1, 1, [enqueued(5, 1, 3)]) for each in MANY]
            sizes = await asyncio.gather(*appends)
            assert figures.commits.count == 1
            assert figures.commit_bytes.sum == sum(sizes)
        finally:
            await store.close()

    asyncio.run(scenario())


def test_a_fenced_partition_is_left_out_and_the_others_rest() -> None:
    """R-P8: who lost one partition goes on with the others."""

    async def scenario() -> None:
        url = shared_server().new_database()
        figures = StoreFigures()
        old, new = postgres_store(url, figures=figures), postgres_store(url)
        try:
            for each in (ORDERS, BILLS):
                await old.open(each)
            await new.open(ORDERS)
            appends = [old.append(each, 1, 1, [enqueued(5, 1, 1)]) for each in (ORDERS, BILLS)]
            fenced, stored = await asyncio.gather(*appends, return_exceptions=True)
            assert isinstance(fenced, Fenced)
            assert isinstance(stored, int)
            assert figures.commits.count == 1
            with pytest.raises(Fenced):
                await old.trim(ORDERS, 1, [], 0)
            await new.append(ORDERS, 2, 1, [enqueued(5, 1, 1)])
        finally:
            await old.close()
            await new.close()

    asyncio.run(scenario())


def test_a_stopped_owner_delays_nobody() -> None:
    """R-P8: whoever stands still with a commit under way, another one takes its partition."""
    url = shared_server().new_database()

    async def take_over() -> int:
        store = postgres_store(url)
        try:
            epoch, first, records = await replayed(store, ORDERS)
            await store.append(ORDERS, epoch, first + len(records), [enqueued(5, 2, 1)])
            return epoch
        finally:
            await store.close()

    async def scenario() -> None:
        store = postgres_store(url)
        try:
            await store.open(ORDERS)
            # The session is there before, so that nothing but the commit is under way.
            await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
            stored = asyncio.ensure_future(store.append(ORDERS, 1, 2, [enqueued(5, 2, 1)]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # This thread, and all that this owner does, stands still meanwhile.
            assert in_thread(take_over) == 2
            await asyncio.wait([stored])
            with pytest.raises(Fenced):
                await store.append(ORDERS, 1, 3, [enqueued(5, 3, 1)])
        finally:
            await store.close()

    asyncio.run(scenario())


def test_no_session_is_ever_left_in_a_transaction() -> None:
    async def scenario() -> None:
        url = shared_server().new_database()
        store = postgres_store(url)
        try:
            epoch, _, _ = await replayed(store, ORDERS)
            await store.append(ORDERS, epoch, 1, [enqueued(5, 1, 1)])
            await store.payloads(ORDERS, [1])
            name = url.partition("?")[0].rpartition("/")[2]
            query = f"select state from pg_stat_activity where datname = '{name}' and pid <> "
            states = await asyncio.to_thread(shared_server().ask, query + "pg_backend_pid()")
            assert [row[0] for row in states] == ["idle"] * 3
        finally:
            await store.close()

    asyncio.run(scenario())


def test_reads_that_come_together_are_one_statement(fetched: Counter[str]) -> None:
    async def scenario() -> None:
        url = shared_server().new_database()
        store = postgres_store(url)
        try:
            for each in MANY:
                await store.open(each)
                await store.append(each, 1, 1, [enqueued(5, 1, 3)])
            reads = [store.payloads(each, [3, 1]) for each in MANY]
            for found in await asyncio.gather(*reads):
                assert [m.content[:9] for m in found] == [b"content 3", b"content 1"]
            assert fetched[BODIES] == 1
        finally:
            await store.close()

    asyncio.run(scenario())


def test_bodies_of_many_bytes_come_in_several_statements(fetched: Counter[str]) -> None:
    async def scenario() -> None:
        store = postgres_store(shared_server().new_database())
        try:
            await store.open(ORDERS)
            for position in range(1, 13):
                records = [enqueued(5, position, 1, size=1 << 20)]
                await store.append(ORDERS, 1, position, records)
            positions = [12, 1, *range(2, 12), 12]
            found = await store.payloads(ORDERS, positions)
            assert [int(m.content.split()[1]) for m in found] == positions
            assert fetched[BODIES] == 12 * (1 << 20) // STATEMENT_BYTES
        finally:
            await store.close()

    asyncio.run(scenario())


def test_trims_that_come_together_look_at_all_journals_once(fetched: Counter[str]) -> None:
    """Each of them counted all partitions, so that a look at many was quadratic."""

    async def scenario() -> None:
        store = postgres_store(shared_server().new_database(), Retention(bytes_max=0))
        try:
            for each in MANY:
                await store.open(each)
                await store.append(each, 1, 1, [enqueued(5, 1, 3)])
                await store.append(each, 1, 4, [enqueued(5, 4, 3)], 4)
            trims = [store.trim(each, 4, [], 0) for each in MANY]
            assert await asyncio.gather(*trims) == [4] * len(MANY)
            assert fetched[JOURNALS] == fetched[DROPPED] == 1
            # The next look sees what was written since.
            await store.append(MANY[0], 1, 7, [enqueued(5, 7, 3)], 7)
            assert await store.trim(MANY[0], 7, [], 0) == 7
            assert fetched[JOURNALS] == 2
        finally:
            await store.close()

    asyncio.run(scenario())


# ---- whose database it is


def make_stores(*urls: str) -> PostgresStores:
    names = ["store", "store-2"][: len(urls)]
    figures = {name: StoreFigures() for name in names}
    return PostgresStores(dict(zip(names, urls, strict=True)), Retention(), figures)


def test_databases_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    first, second, third = (shared_server().new_database() for _ in range(3))

    async def scenario() -> None:
        factory = make_stores(first, second)
        catalog = await factory.open_catalog()
        with caplog.at_level(logging.WARNING):
            for name in ("store", "store-2"):
                await factory(name, True).close()
        await catalog.close()
        with pytest.raises(StoreError, match="name the databases in the order they had"):
            await make_stores(second, first).open_catalog()
        other = make_stores(third, second)
        catalog = await other.open_catalog()
        await catalog.close()
        with pytest.raises(StoreError, match="belongs to a broker with another catalog"):
            other("store-2", True)
        with pytest.raises(Unavailable, match="there was one before"):
            make_stores(shared_server().new_database())("store", False)

    asyncio.run(scenario())
    assert "a failover can lose what was acknowledged" in caplog.text


def test_a_role_that_may_create_is_enough() -> None:
    server = shared_server()
    url = server.new_database()
    name = url.partition("?")[0].rpartition("/")[2]
    mine = url.replace("postgres@", f"role_{name}@")
    server.ask(f"create role role_{name} login")
    with pytest.raises(StoreError, match="permission denied"):
        prepare(mine, "store", None, may_make=True)
    server.ask(f"grant create on database {name} to role_{name}")
    assert prepare(mine, "store", None, may_make=True).identity.timeline == 1


def test_a_later_release_is_not_for_this_one() -> None:
    server = shared_server()
    url = server.new_database()
    prepare(url, "store", None, may_make=True)
    server.ask("update peeklock.version set version = 99", url.partition("?")[0].rpartition("/")[2])
    with pytest.raises(StoreError, match="a later release made version 99 of it"):
        prepare(url, "store", None, may_make=True)


def test_two_who_make_a_store_at_once_make_one() -> None:
    url = shared_server().new_database()

    async def scenario() -> set[object]:
        made = (asyncio.to_thread(prepare, url, "store", None, may_make=True) for _ in range(4))
        return {each.catalog_id for each in await asyncio.gather(*made)}

    assert len(asyncio.run(scenario())) == 1


def test_a_catalog_has_one_broker() -> None:
    async def scenario() -> None:
        url = shared_server().new_database()
        prepare(url, "store", None, may_make=True)
        first, second = PostgresCatalog(url), PostgresCatalog(url, patience_s=0.0)
        try:
            await first.load()
            with pytest.raises(Unavailable, match="in use by another broker"):
                await second.load()
            await first.close()
            while True:
                try:
                    assert await second.load() == []
                    break
                except Unavailable:
                    await asyncio.sleep(0)
        finally:
            await first.close()
            await second.close()

    asyncio.run(scenario())


def test_a_broker_that_lost_its_session_takes_its_place_again() -> None:
    """After a restart of the database anybody could take it until an entity was changed."""

    async def scenario() -> None:
        server = shared_server()
        url = server.new_database()
        name = url.partition("?")[0].rpartition("/")[2]
        prepare(url, "store", None, may_make=True)
        holders = (
            "select l.pid from pg_locks l join pg_database d on d.oid = l.database "
            f"where l.locktype = 'advisory' and d.datname = '{name}'"
        )
        catalog = PostgresCatalog(url, keep_s=0.01)
        try:
            await catalog.load()
            ((before,),) = await asyncio.to_thread(server.ask, holders)
            await asyncio.to_thread(server.ask, f"select pg_terminate_backend({before})")
            async with asyncio.timeout(60):
                while True:
                    found = [row[0] for row in await asyncio.to_thread(server.ask, holders)]
                    if found and before not in found:
                        break
        finally:
            await catalog.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgres://me:secret@db.example:5433/bus?sslmode=require", "db.example:5433/bus"),
        ("postgres://me:secret@a,b/bus", "a,b/bus"),
        ("postgres://me@/bus?host=/run/postgresql", "/run/postgresql/bus"),
    ],
)
def test_nobody_is_told_a_password(url: str, name: str) -> None:
    assert shown(url) == name


def test_the_time_to_connect_stands_in_the_address() -> None:
    with pytest.raises(Unavailable, match="connect_timeout is a number of seconds, not 'soon'"):
        prepare("postgres://me@db.example/bus?connect_timeout=soon", "store", None, may_make=True)
    url = shared_server().new_database()
    assert "connect_timeout=60" in url
    assert prepare(url, "store", None, may_make=True).identity.timeline == 1


def test_a_database_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1/bus cannot be reached"):
        prepare("postgres://me:secret@127.0.0.1:1/bus", "store", None, may_make=True)
