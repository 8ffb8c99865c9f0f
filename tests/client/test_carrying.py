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
from peeklock.client.carrying import Carrier, CarryingError


def opened() -> tuple[Carrier, WSConnection]:
    carrier = Carrier("broker:443", "/$servicebus/websocket")
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(carrier.opening)
    (request,) = server.events()
    assert isinstance(request, Request)
    assert (request.host, request.target) == ("broker:443", "/$servicebus/websocket")
    assert request.subprotocols == [WEBSOCKET_PROTOCOL]
    assert carrier.unwrap(server.send(AcceptConnection(subprotocol=WEBSOCKET_PROTOCOL))) == b""
    assert carrier.is_open
    return carrier, server


def seen(server: WSConnection, data: bytes) -> list[Event]:
    server.receive_data(data)
    return list(server.events())


def test_bytes_go_both_ways_in_any_cut() -> None:
    carrier, server = opened()
    (message,) = seen(server, carrier.wrap(b"ours"))
    assert isinstance(message, BytesMessage)
    assert bytes(message.data) == b"ours"
    sent = server.send(BytesMessage(data=b"theirs")) + server.send(BytesMessage(data=b" and more"))
    assert b"".join(carrier.unwrap(sent[at : at + 1]) for at in range(len(sent))) == (
        b"theirs and more"
    )


def test_a_ping_is_answered() -> None:
    carrier, server = opened()
    assert carrier.unwrap(server.send(Ping(payload=b"there?"))) == b""
    (pong,) = seen(server, carrier.answer)
    assert isinstance(pong, Pong)
    assert pong.payload == b"there?"


def test_both_sides_may_say_goodbye() -> None:
    carrier, server = opened()
    (goodbye,) = seen(server, carrier.goodbye())
    assert isinstance(goodbye, CloseConnection)
    assert (carrier.goodbye(), carrier.wrap(b"too late")) == (b"", b"")
    carrier, server = opened()
    last = server.send(BytesMessage(data=b"last")) + server.send(CloseConnection(code=1000))
    assert carrier.unwrap(last) == b"last"
    assert [type(event) for event in seen(server, carrier.answer)] == [CloseConnection]


def test_who_is_not_let_in_is_told() -> None:
    carrier = Carrier("broker", "/path")
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(carrier.opening)
    refusal = server.send(RejectConnection(status_code=403))
    with pytest.raises(CarryingError, match="403"):
        carrier.unwrap(refusal)


@pytest.mark.parametrize("data", [b"220 mail\r\n\r\n", b"\x00\x01\x02" * 10])
def test_what_is_no_websocket_is_told(data: bytes) -> None:
    carrier = Carrier("broker", "/path")
    with pytest.raises(CarryingError, match="no WebSocket"):
        carrier.unwrap(data)


def test_a_text_is_no_amqp() -> None:
    carrier, server = opened()
    with pytest.raises(CarryingError, match="text"):
        carrier.unwrap(server.send(TextMessage(data="hello")))
