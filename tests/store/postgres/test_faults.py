"""A database that goes, comes, fills up or is replaced: nothing acknowledged is lost, and the store
returns by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peeklock.store.postgres.commits import FULL_S
from peeklock.store.postgres.connection import DiskFull
from peeklock.store.store import Away, Unavailable, WentBack
from tests.store.builders import enqueued
from tests.store.postgres.owners import Owners, broker_store
from tests.store.postgres.server import PostgresServer, running, shared_server
from tests.store.stores import ORDERS, postgres_store, replayed


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running() as server:
        yield server


@pytest.mark.parametrize(
    "fault",
    [PostgresServer.end_sessions, PostgresServer.restart, lambda s: (s.kill(), s.start())],
    ids=["sessions-ended", "restarted", "killed"],
)
def test_nothing_is_lost_and_the_store_returns(
    server: PostgresServer, fault: Callable[[PostgresServer], object]
) -> None:
    """R-T1, R-T3: whatever happens to the server, what was acknowledged is there."""

    async def scenario() -> None:
        store = broker_store(server.new_database())
        owners = Owners(store)
        owners.begin()
        try:
            await owners.more(20)
            await asyncio.to_thread(fault, server)
            await owners.more(20)
            await owners.end()
            assert await owners.lost() == [set()] * 4
        finally:
            await owners.end()
            await store.close()

    asyncio.run(scenario())


def test_a_database_that_is_away_says_so_and_nothing_is_begun() -> None:
    with running() as server:

        async def scenario() -> None:
            store = broker_store(server.new_database())
            try:
                epoch, _, _ = await replayed(store, ORDERS)
                await asyncio.to_thread(server.stop)
                with pytest.raises(Unavailable):
                    await store.append(ORDERS, epoch, 1, [enqueued(5, 1, 1)])
                with pytest.raises(Unavailable, match="cannot be reached"):
                    await store.open(ORDERS)
                assert not store.is_online
                assert "cannot be reached" in store.state().text
                with pytest.raises(Away):
                    store.append(ORDERS, epoch, 1, [enqueued(5, 1, 1)])
                await asyncio.to_thread(server.start)
                assert await replayed(store, ORDERS) == (2, -1, [])
                assert store.is_online
            finally:
                await store.close()

        asyncio.run(scenario())


def test_an_answer_that_does_not_come_in_time_is_in_doubt() -> None:
    """A commit waits for a standby that is not there: neither is it acknowledged, nor for ever."""
    server = shared_server()

    async def scenario() -> None:
        store = postgres_store(server.new_database(), answer_s=0.3)
        try:
            epoch, _, _ = await replayed(store, ORDERS)
            await asyncio.to_thread(await_standby, server, "nobody")
            with pytest.raises(Unavailable):
                await store.append(ORDERS, epoch, 1, [enqueued(5, 1, 1)])
            await asyncio.to_thread(await_standby, server, "")
            _, first, _ = await replayed(store, ORDERS)
            assert first == 1
        finally:
            await asyncio.to_thread(await_standby, server, "")
            await store.close()

    asyncio.run(scenario())


def test_a_wait_for_the_standby_that_somebody_ended_is_no_acknowledgement() -> None:
    """The server calls it a success, and the standby has nothing."""
    server = shared_server()

    async def scenario() -> None:
        store = postgres_store(server.new_database())
        try:
            epoch, _, _ = await replayed(store, ORDERS)
            await asyncio.to_thread(await_standby, server, "nobody")
            stored = store.append(ORDERS, epoch, 1, [enqueued(5, 1, 1)])
            waits = "from pg_stat_activity where wait_event = 'SyncRep'"
            while not await asyncio.to_thread(server.ask, f"select 1 {waits}"):
                pass
            await asyncio.to_thread(server.ask, f"select pg_cancel_backend(pid) {waits}")
            with pytest.raises(Unavailable, match="standby"):
                await stored
        finally:
            await asyncio.to_thread(await_standby, server, "")
            await store.close()

    asyncio.run(scenario())


@contextlib.contextmanager
def small_disk(server: PostgresServer) -> Iterator[Path]:
    """A file system of its own with 24 MiB, where the server reaches it."""
    disk = server.directory / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m,uid=65534,gid=65534", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can make a small disk, and not everywhere")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_refuses_sends_and_loses_nothing() -> None:
    """R-T2: nothing is in doubt, sends are refused for a moment, and room makes it go on."""
    with running() as server, small_disk(server) as disk:
        server.ask(f"create tablespace small location '{disk}'")

        async def scenario() -> None:
            url = server.new_database()
            name = url.partition("?")[0].rpartition("/")[2]
            now = [0.0]
            store = postgres_store(url, clock=lambda: now[-1])
            server.ask("alter table peeklock.chunks set tablespace small", name)
            try:
                epoch, _, _ = await replayed(store, ORDERS)
                position, said = 1, ""
                while not said:
                    records = [enqueued(5, position, 1, size=1 << 20)]
                    try:
                        await store.append(ORDERS, epoch, position, records)
                        position += 1
                    except DiskFull as error:
                        said = str(error)
                assert "no room" in said
                was_full = store.full
                now.append(FULL_S)
                assert (was_full, store.full) == (True, False)
                assert position > 5
                server.ask("alter table peeklock.chunks set tablespace pg_default", name)
                _, _, kept = await replayed(store, ORDERS)
                assert len(kept) == position - 1
                await store.append(ORDERS, epoch + 1, position, [enqueued(5, position, 1)])
            finally:
                await store.close()

        asyncio.run(scenario())


def await_standby(server: PostgresServer, name: str) -> None:
    """Have commits wait for the standby of that name; nobody's: for none."""
    if server.ask("show synchronous_standby_names")[0][0] == name:
        return
    server.ask(f"alter system set synchronous_standby_names = '{name}'")
    server.ask("select pg_reload_conf()")
    # Its sessions hear of it when it has read the file.
    while server.ask("show synchronous_standby_names")[0][0] != name:
        pass


# ---- standbys


@pytest.mark.parametrize("is_synchronous", [True, False], ids=["synchronous", "asynchronous"])
def test_a_failover(is_synchronous: bool) -> None:
    """R-T3: a synchronous standby has all that was acknowledged; one that is not and lacks some of
    it is found out, and refused with a sentence."""
    with running(is_tcp=True) as primary:
        standby = primary.standby(is_tcp=True)
        try:
            asyncio.run(fail_over(primary, standby, is_synchronous))
        finally:
            standby.remove()


async def fail_over(primary: PostgresServer, standby: PostgresServer, is_synchronous: bool) -> None:
    url = await asyncio.to_thread(primary.new_database)
    name = url.partition("?")[0].rpartition("/")[2]
    if is_synchronous:
        await asyncio.to_thread(await_standby, primary, "standby")
    # One address with both hosts, as libpq has it: whichever can be written to.
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    both = f"postgres://postgres@{hosts}/{name}?sslmode=disable&target_session_attrs=read-write"
    store = broker_store(both)
    owners = Owners(store)
    owners.begin()
    try:
        await owners.more(20)
        if not is_synchronous:
            await asyncio.to_thread(caught_up, primary, standby)
            standby.ask("select pg_wal_replay_pause()")
            standby.settings["primary_conninfo"] = ""
            await asyncio.to_thread(standby.restart)
            await owners.more(20)
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(standby.promote)
        if is_synchronous:
            await owners.more(20)
            await owners.end()
            assert await owners.lost() == [set()] * 4
        else:
            for each in owners.all:
                await each.told(WentBack)
            await owners.end()
            text = str(next(e for e in owners.all[0].errors if isinstance(e, WentBack)))
            assert "was acknowledged under epoch 1" in text
            assert "not synchronous" in text
    finally:
        await owners.end()
        await store.close()


def caught_up(primary: PostgresServer, standby: PostgresServer) -> None:
    wanted = primary.ask("select pg_current_wal_lsn()::text")[0][0]
    query = f"select pg_last_wal_replay_lsn() >= '{wanted}'::pg_lsn"
    while not standby.ask(query)[0][0]:
        pass
