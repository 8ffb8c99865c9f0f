"""Web tokens on connections that others can read: which those are, and what is refused there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from peeklock.amqp.events import Opened
from peeklock.auth.issuer import TokenIssuer
from peeklock.auth.keyring import KeyRing, TokenGrant
from peeklock.auth.refusal import EXPOSED_TOKEN, AuthRefusal
from peeklock.auth.rights import AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.gateway import exposure
from peeklock.gateway.exposure import is_exposed
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.tokens.issuers import Issuers
from tests.gateway.amqp.amqp_harness import AmqpHarness, serve
from tests.gateway.callers import Caller, WebSocket, dial
from tests.gateway.http.admin.admin_harness import AdminHarness
from tests.gateway.issuer import LocalIssuer, believing
from tests.gateway.matrix.amqp_client import AmqpClient
from tests.gateway.open_ports import OpenPorts, development, enter

NOW = 1_700_000_000_000


class Transport(asyncio.BaseTransport):
    def __init__(self, **facts: Any) -> None:
        super().__init__(facts)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        (("127.0.0.1", 5), False),
        (("127.9.9.9", 5), False),
        (("::1", 5, 0, 0), False),
        (("::ffff:127.0.0.1", 5, 0, 0), False),
        (("10.0.0.7", 5), True),
        (("::ffff:10.0.0.7", 5, 0, 0), True),
        (("fe80::1", 5, 0, 0), True),
        ("", False),
        (None, False),
    ],
)
def test_without_tls_what_leaves_this_machine_is_exposed(peer: Any, expected: bool) -> None:
    assert is_exposed(Transport(peername=peer)) is expected
    assert not is_exposed(Transport(peername=peer, sslcontext=object()))


def test_a_web_token_is_not_taken_where_others_can_read_it(tmp_path: Path) -> None:
    local = LocalIssuer()
    (tmp_path / "keys.json").write_bytes(local.published())
    ring = KeyRing([AuthorizationRule("root", "key")])
    for allows_plain in (False, True):
        issuers = Issuers(tmp_path)
        believed = (TokenIssuer(local.issuer, keys_file="keys.json", allows_plain=allows_plain),)
        issuers.hold(believed, issuers.load(believed))
        ring.believe(issuers)
        token = local.token(NOW, "Send")
        assert isinstance(ring.verify(token, "q", NOW), TokenGrant)
        found = ring.verify(token, "q", NOW, is_exposed=True)
        if allows_plain:
            assert isinstance(found, TokenGrant)
        else:
            assert isinstance(found, AuthRefusal)
            assert (found.reason, "AllowPlain" in found.text) == (EXPOSED_TOKEN, True)
    signed = generate_sas("sb://localhost/q", "root", "key", NOW + 1000)
    assert isinstance(ring.verify(signed, "q", NOW, is_exposed=True), TokenGrant)


@pytest.mark.parametrize("exposed", [False, True])
def test_the_doors_say_where_a_token_has_come_from(exposed: bool) -> None:
    local = LocalIssuer()

    async def talk(bus: AmqpHarness) -> None:
        bus.namespace_context.keys.believe(believing(local))
        http_place = AmqpClient(await bus.connect(is_exposed=exposed))
        token = local.token(bus.clock.wall(), "Send")
        assert await http_place.put(token, "q") == (401 if exposed else 202)

    serve(talk)

    async def ask() -> None:
        office = AdminHarness()
        office.broker.namespaces.first.keys.believe(believing(local))
        headers = {"authorization": f"Bearer {local.token(office.clock.wall(), 'Manage')}"}
        headers["host"] = "localhost"
        target = "/$Resources/queues?api-version=2021-05"
        answer = await office.node.answer(HttpRequest("GET", target, headers, is_exposed=exposed))
        assert answer.status == (401 if exposed else 200)

    asyncio.run(ask())


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("speaks", ["amqp", "websocket"])
def test_a_connection_knows_whether_it_is_exposed(
    speaks: str, is_tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if this machine's own address were another's."""
    monkeypatch.setattr(exposure, "is_loopback", lambda _: False)

    async def talk(entrance: OpenPorts) -> None:
        reader, writer = await dial(entrance.http_port, development()[1] if is_tls else None)
        if speaks == "amqp":
            await Caller(reader, writer).until(Opened)
        else:
            tunnel = WebSocket(reader, writer)
            await tunnel.open()
            await Caller(tunnel, tunnel).until(Opened)
        [connection] = entrance.amqp._connections
        assert connection._peer is not None
        assert connection._peer.output.is_exposed is not is_tls
        writer.close()

    enter(talk)
