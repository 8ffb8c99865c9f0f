"""The stores over HTTP: who manages the namespace sees and switches them, nobody else."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from peeklock.auth.keyring import KeyRing
from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.clock import ManualClock
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.stores import NODE, StoresNode
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.gateway.listening.connections import HttpConnections
from peeklock.gateway.refusals import RefusalWriter
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.memory import MemoryStores
from peeklock.store.stores import StoreFactory, Stores, store_names
from tests.gateway.sockets import connected

NOW = 1_700_000_000_000
ROOT = "http://localhost/"


class HttpHarness:
    """HTTP of a broker with two stores."""

    def __init__(self, factory: StoreFactory) -> None:
        clock = ManualClock(NOW)
        count = itertools.count(1)
        keys = KeyRing(
            [
                AuthorizationRule("root", "secret"),
                AuthorizationRule("worker", "secret", rights=SEND | LISTEN),
            ]
        )
        keys.set_entity_rules("orders", [AuthorizationRule("owner", "secret")])
        refusal_writer = RefusalWriter(
            clock=clock, random_source=lambda: next(count), namespace="ns"
        )
        self.stores = Stores.of(factory, store_names(2))
        node = StoresNode(self.stores, TokenGuard(keys, clock, refusal_writer))
        self.connections = HttpConnections(Health(), {NODE: node})

    async def ask(self, request: bytes) -> tuple[int, dict[str, Any], bytes]:
        """Send one request; gives status, document and head of the answer."""
        reader, writer = await connected(self.connections.protocol)
        writer.write(request)
        status, document, head = await answered(reader)
        writer.close()
        await writer.wait_closed()
        return status, document, head


async def answered(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any], bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].split()[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(size)), head


def token(rule: str = "root", resource: str = ROOT, key: str = "secret", at: int = NOW) -> str:
    return generate_sas(resource, rule, key, at + 60_000)


def request(method: str, path: str, authorization: str | None, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x"]
    if authorization is not None:
        lines.append(f"Authorization: {authorization}")
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def run(
    scenario: Callable[[HttpHarness], Awaitable[None]],
    factory: Callable[[], StoreFactory] = MemoryStores,
) -> None:
    async def limited() -> None:
        harness = HttpHarness(factory())
        try:
            await asyncio.wait_for(scenario(harness), 20)
        finally:
            await harness.stores.close()

    asyncio.run(limited())


def test_a_manager_sees_and_switches_stores() -> None:
    async def scenario(harness: HttpHarness) -> None:
        status, document, _ = await harness.ask(request("GET", "/$stores", token()))
        assert status == 200
        assert document == {
            "stores": [
                {"name": "store", "state": "online", "text": ""},
                {"name": "store-2", "state": "online", "text": ""},
            ]
        }
        text = "the store 'store-2' was taken offline"
        gone = {"stores": [{"name": "store-2", "state": "offline", "text": text}]}
        for _ in range(2):
            answer = await harness.ask(request("POST", "/$stores/store-2/offline", token()))
            assert answer[:2] == (200, gone)
        status, document, _ = await harness.ask(request("GET", "/%24stores", token()))
        assert document["stores"][1] == gone["stores"][0]
        back = {"stores": [{"name": "store-2", "state": "online", "text": ""}]}
        for _ in range(2):
            answer = await harness.ask(request("POST", "/$stores/store-2/online", token()))
            assert answer[:2] == (200, back)

    run(scenario)


@pytest.mark.parametrize(
    ("authorization", "status", "said"),
    [
        (None, 401, "no Authorization header"),
        ("Basic cm9vdDpzZWNyZXQ=", 401, "MalformedToken"),
        ("", 401, "MalformedToken"),
        (token(key="guessed"), 401, "InvalidSignature"),
        (token(at=NOW - 100_000), 401, "ExpiredToken"),
        (token("nobody"), 401, "InvalidSignature"),
        (token("owner", ROOT + "orders"), 401, "InvalidAudience"),
        (token("owner"), 401, "InvalidSignature"),
        (token("root", ROOT + "orders"), 401, "InvalidAudience"),
        (token("worker"), 403, "does not give the right 'Manage'"),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("path", ["/$stores", "/$stores/store-2/offline", "/$stores/x/y/z"])
def test_nobody_else_does(authorization: str | None, status: int, said: str, path: str) -> None:
    """And whoever is refused can name the line in the log (TrackingId)."""

    async def scenario(harness: HttpHarness) -> None:
        found, document, head = await harness.ask(request("POST", path, authorization))
        assert found == status
        assert said in document["error"]
        assert "TrackingId:" in document["error"]
        assert (b"www-authenticate" in head.lower()) == (status == 401)
        assert all(state.is_online for state in harness.stores.states())

    run(scenario)


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("POST", "/$stores/store-3/offline", 404, "the store 'store-3' is not configured"),
        ("POST", "/$stores/store-3/online", 404, "the store 'store-3' is not configured"),
        ("POST", "/$stores/store-2/burn", 404, "nothing at"),
        ("POST", "/$stores/store-2", 404, "nothing at"),
        ("POST", "/$stores//offline", 404, "the store '' is not configured"),
        ("POST", "/$stores/store/offline/now", 404, "nothing at"),
        ("POST", "/$stores", 405, "GET and HEAD are"),
        ("DELETE", "/$stores/store-2/offline", 405, "POST is"),
        ("GET", "/$stores/store-2/online", 405, "POST is"),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(
    method: str, path: str, status: int, said: str
) -> None:
    async def scenario(harness: HttpHarness) -> None:
        found, document, _ = await harness.ask(request(method, path, token()))
        assert found == status
        assert said in document["error"]

    run(scenario)


def test_a_body_is_read_up_to_a_limit() -> None:
    async def scenario(harness: HttpHarness) -> None:
        path = "/$stores/store-2/offline"
        assert (await harness.ask(request("POST", path, token(), bytes(65_536))))[0] == 200
        status, document, _ = await harness.ask(request("POST", path, token(), bytes(65_537)))
        assert status == 400
        assert "too large" in document["error"]

    run(scenario)


def test_a_store_that_does_not_come_back_is_a_conflict(tmp_path: Path) -> None:
    """And it may be made anew where somebody asks for that."""

    def factory() -> StoreFactory:
        return lambda name, may_make: LmdbStore(tmp_path / name, make=may_make)

    async def scenario(harness: HttpHarness) -> None:
        await harness.ask(request("POST", "/$stores/store-2/offline", token()))
        (tmp_path / "store-2").rename(tmp_path / "away")
        online = "/$stores/store-2/online"
        status, document, _ = await harness.ask(request("POST", online, token()))
        assert status == 409
        assert "there is no store in" in document["error"]
        assert not harness.stores.states()[1].is_online
        assert (await harness.ask(request("POST", f"{online}?make=true", token())))[0] == 200
        assert harness.stores.states()[1].is_online

    run(scenario, factory)


# ---- answers that take their time


class SlowStores:
    """Stores whose switch takes until it is told to end."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.all_states = stores.all_states
        self.ended = asyncio.Event()

    async def offline(self, name: str) -> None:
        self.begun.set()
        await self.may_end.wait()
        await self.stores.offline(name)
        self.ended.set()

    async def online(self, name: str, may_make: bool = False) -> None:
        raise ZeroDivisionError


def slow(harness: HttpHarness) -> SlowStores:
    stores = SlowStores(harness.stores)
    node = harness.connections._router._nodes[NODE]
    assert isinstance(node, StoresNode)
    node._stores = stores
    return stores


def test_requests_behind_a_slow_one_wait_for_it() -> None:
    async def scenario(harness: HttpHarness) -> None:
        stores = slow(harness)
        reader, writer = await connected(harness.connections.protocol)
        writer.write(request("POST", "/$stores/store/offline", token()))
        await stores.begun.wait()
        writer.write(request("GET", "/$stores", token()) + request("GET", "/health", None))
        writer.write_eof()
        # Others are served meanwhile.
        assert (await harness.ask(request("GET", "/$stores", token())))[0] == 200
        stores.may_end.set()
        statuses = [(await answered(reader))[0] for _ in range(3)]
        assert statuses == [200, 200, 503]
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    run(scenario)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def scenario(harness: HttpHarness) -> None:
        reader, writer = await connected(harness.connections.protocol)
        paths = ["/$stores", "/health", "/$stores/store/online", "/nowhere", "/$stores"]
        writer.write(b"".join(request("GET", path, token()) for path in paths))
        statuses = [(await answered(reader))[0] for _ in paths]
        assert statuses == [200, 503, 405, 404, 200]
        writer.close()
        await writer.wait_closed()

    run(scenario)


def test_what_was_asked_is_done_although_nobody_waits() -> None:
    async def scenario(harness: HttpHarness) -> None:
        stores = slow(harness)
        _, writer = await connected(harness.connections.protocol)
        writer.write(request("POST", "/$stores/store/offline", token()))
        await stores.begun.wait()
        writer.transport.abort()
        stores.may_end.set()
        await stores.ended.wait()
        assert not harness.stores.states()[0].is_online

    run(scenario)


def test_a_failure_of_ours_is_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: HttpHarness) -> None:
        slow(harness)
        status, document, _ = await harness.ask(request("POST", "/$stores/store/online", token()))
        assert status == 500
        assert "log" in document["error"]

    run(scenario)
    assert "ZeroDivisionError" in caplog.text
