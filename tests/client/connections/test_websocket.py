"""AMQP inside a WebSocket, against the other side of the same library."""

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

from peeklock.amqp.dialect import WEBSOCKET_PROTOCOL
from peeklock.client.connections.websocket import WebSocketError, WebSocketFraming


def opened() -> tuple[WebSocketFraming, WSConnection]:
    framing = WebSocketFraming("broker:443", "/$servicebus/websocket")
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(framing.opening)
    (request,) = server.events()
    assert isinstance(request, Request)
    assert (request.host, request.target) == ("broker:443", "/$servicebus/websocket")
    assert request.subprotocols == [WEBSOCKET_PROTOCOL]
    assert framing.unwrap(server.send(AcceptConnection(subprotocol=WEBSOCKET_PROTOCOL))) == b""
    assert framing.is_open
    return framing, server


def seen(server: WSConnection, data: bytes) -> list[Event]:
    server.receive_data(data)
    return list(server.events())


def test_bytes_go_both_ways_in_any_cut() -> None:
    framing, server = opened()
    (message,) = seen(server, framing.wrap(b"ours"))
    assert isinstance(message, BytesMessage)
    assert bytes(message.data) == b"ours"
    sent = server.send(BytesMessage(data=b"theirs")) + server.send(BytesMessage(data=b" and more"))
    assert b"".join(framing.unwrap(sent[at : at + 1]) for at in range(len(sent))) == (
        b"theirs and more"
    )


def test_a_ping_is_answered() -> None:
    framing, server = opened()
    assert framing.unwrap(server.send(Ping(payload=b"there?"))) == b""
    (pong,) = seen(server, framing.answer)
    assert isinstance(pong, Pong)
    assert pong.payload == b"there?"


def test_both_sides_may_say_goodbye() -> None:
    framing, server = opened()
    (goodbye,) = seen(server, framing.goodbye())
    assert isinstance(goodbye, CloseConnection)
    assert (framing.goodbye(), framing.wrap(b"too late")) == (b"", b"")
    framing, server = opened()
    last = server.send(BytesMessage(data=b"last")) + server.send(CloseConnection(code=1000))
    assert framing.unwrap(last) == b"last"
    assert [type(event) for event in seen(server, framing.answer)] == [CloseConnection]


def test_who_is_not_let_in_is_told() -> None:
    framing = WebSocketFraming("broker", "/path")
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(framing.opening)
    refusal = server.send(RejectConnection(status_code=403))
    with pytest.raises(WebSocketError, match="403"):
        framing.unwrap(refusal)


@pytest.mark.parametrize("data", [b"220 mail\r\n\r\n", b"\x00\x01\x02" * 10])
def test_what_is_no_websocket_is_told(data: bytes) -> None:
    framing = WebSocketFraming("broker", "/path")
    with pytest.raises(WebSocketError, match="no WebSocket"):
        framing.unwrap(data)


def test_a_text_is_no_amqp() -> None:
    framing, server = opened()
    with pytest.raises(WebSocketError, match="text"):
        framing.unwrap(server.send(TextMessage(data="hello")))
