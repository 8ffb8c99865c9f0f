"""`peeklock store` against a broker that listens, on a real port."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from peeklock.auth.keyring import KeyRing
from peeklock.auth.rights import LISTEN, AuthorizationRule, development_rule
from peeklock.auth.sas import generate_sas
from peeklock.cli.connection import ConnectionProblem, parse_connection
from peeklock.cli.main import app
from peeklock.client.connections.connection_string import DEVELOPMENT
from peeklock.clock import SystemClock
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.stores import NODE, StoresNode
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.gateway.listening.connections import HttpConnections
from peeklock.gateway.listening.listener import Listener
from peeklock.gateway.refusals import RefusalWriter
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.stores import Stores, store_names


class StoresServer:
    """HTTP with two stores on disk, in a thread with a loop of its own."""

    def __init__(self, data: Path) -> None:
        self.port = 0
        self._data = data
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(20)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        clock = SystemClock()
        keys = KeyRing([development_rule(), AuthorizationRule("reader", "key", rights=LISTEN)])
        refusal_writer = RefusalWriter(clock=clock, random_source=lambda: 7, namespace="ns")
        stores = Stores.of(
            lambda name, may_make: LmdbStore(self._data / name, make=may_make), store_names(2)
        )
        http = HttpConnections(
            Health(), {NODE: StoresNode(stores, TokenGuard(keys, clock, refusal_writer))}
        )
        listener = Listener(http.protocol, http.protocol)
        self.port = await listener.start("http", "127.0.0.1", 0)
        self._ready.set()
        await self._stop.wait()
        listener.stop()
        http.stop()
        await stores.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StoresServer]:
    server = StoresServer(tmp_path)
    yield server
    server.stop()


def ask(port: int, *arguments: str, **environment: str) -> Result:
    variables = {
        "COLUMNS": "150",
        "NO_COLOR": "1",
        "PEEKLOCK_HTTP_PORT": str(port),
        "PEEKLOCK_CONNECTION_STRING": DEVELOPMENT.replace("localhost", "127.0.0.1"),
    }
    return CliRunner().invoke(app, ["store", *arguments], env={**variables, **environment})


def test_stores_go_and_come(server: StoresServer) -> None:
    done = ask(server.port, "list")
    assert done.exit_code == 0
    assert done.stdout.count("online") == 2
    done = ask(server.port, "offline", "store-2")
    assert done.exit_code == 0
    assert "was taken offline" in done.stdout
    done = ask(server.port, "list", "--output", "json")
    assert json.loads(done.stdout) == {
        "stores": [
            {"name": "store", "state": "online", "text": ""},
            {
                "name": "store-2",
                "state": "offline",
                "text": "the store 'store-2' was taken offline",
            },
        ]
    }
    done = ask(server.port, "online", "store-2", "-o", "json")
    assert json.loads(done.stdout)["stores"][0]["state"] == "online"


def test_a_store_without_files_is_made_on_demand_only(server: StoresServer, tmp_path: Path) -> None:
    ask(server.port, "offline", "store-2")
    (tmp_path / "store-2").rename(tmp_path / "away")
    done = ask(server.port, "online", "store-2")
    assert done.exit_code == 1
    assert "there is no store in" in done.stderr
    assert ask(server.port, "online", "store-2", "--make").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "connection", "said"),
    [
        (["offline", "store-9"], DEVELOPMENT, "'store-9' is not configured"),
        (["offline", "a/../b c"], DEVELOPMENT, "'a/../b c' is not configured"),
        (["list"], DEVELOPMENT.replace("SAS_KEY_VALUE", "wrong"), "InvalidSignature"),
        (
            ["list"],
            "Endpoint=sb://x/;SharedAccessKeyName=reader;SharedAccessKey=key;"
            "UseDevelopmentEmulator=true",
            "does not give the right 'Manage'",
        ),
        (["list"], "Endpoint=sb://x", "needs SharedAccessKeyName"),
        (["list"], "nonsense", "'nonsense'"),
        (["list"], "SharedAccessKeyName=a;SharedAccessKey=b", "no Endpoint"),
        (["list"], "Endpoint=sb://[;SharedAccessKeyName=a;SharedAccessKey=b", "no Endpoint"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    server: StoresServer, arguments: list[str], connection: str, said: str
) -> None:
    connection = connection.replace("sb://x", "sb://127.0.0.1").replace("localhost", "127.0.0.1")
    done = ask(server.port, *arguments, PEEKLOCK_CONNECTION_STRING=connection)
    assert done.exit_code == 1
    assert said in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_a_broker_that_is_not_there_is_said(server: StoresServer) -> None:
    done = ask(1, "list")
    assert done.exit_code == 1
    assert "cannot reach a broker at 127.0.0.1:1" in done.stderr


def test_something_else_at_the_port_is_said() -> None:
    """What answers may be anything: here it closes without a word."""
    with Stranger() as port:
        done = ask(port, "list")
    assert done.exit_code == 1
    assert "127.0.0.1" in done.stderr


class Stranger:
    """Accepts one connection and closes it."""

    def __enter__(self) -> int:
        import socket

        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=lambda: self._socket.accept()[0].close())
        self._thread.start()
        port: int = self._socket.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._thread.join(20)
        self._socket.close()


def test_a_token_may_stand_for_the_key(server: StoresServer) -> None:
    token = generate_sas(
        "http://127.0.0.1/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", 9_999_999_999_000
    )
    connection = (
        f"Endpoint=sb://127.0.0.1;SharedAccessSignature={token};UseDevelopmentEmulator=true"
    )
    assert ask(server.port, "list", PEEKLOCK_CONNECTION_STRING=connection).exit_code == 0


def test_connection_strings_are_read_as_clients_do() -> None:
    found = parse_connection(
        " endpoint=sb://Host.example:7777/ ; SharedAccessKeyName = a;"
        "SharedAccessKey=b==;EntityPath=x"
    )
    assert (found.host, found.rule_name, found.key) == ("host.example", "a", "b==")
    assert "b==" not in repr(found)
    with pytest.raises(ConnectionProblem):
        parse_connection("")
