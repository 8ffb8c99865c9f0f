"""AMQP over WebSockets: cut anywhere, answered politely, held back where it must be."""

import asyncio

import pytest
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    TextMessage,
)

from peeklock.amqp.events import AttachAnswered, Closed, Opened
from peeklock.amqp.frames.termini import Target
from peeklock.gateway.listening.websocket import MESSAGE_BYTES_MAX, Tunnel
from tests.broker.broker_harness import until
from tests.gateway.callers import PATH, Caller, WebSocket, dial
from tests.gateway.open_ports import OpenPorts, development, enter

HEADER = b"AMQP\x03\x01\x00\x00"


async def tunnel(entrance: OpenPorts, *, is_tls: bool = False) -> WebSocket:
    made = WebSocket(*await dial(entrance.http_port, development()[1] if is_tls else None))
    assert isinstance(await made.open(), AcceptConnection)
    return made


@pytest.mark.parametrize(
    "path", [PATH, PATH + "/", PATH + "?x=1", "https://localhost" + PATH, "HTTP://x:1" + PATH + "/"]
)
@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (["AMQPWSB10"], "AMQPWSB10"),
        (["amqp"], "amqp"),
        (["mqtt", "amqp", "AMQPWSB10"], "AMQPWSB10"),
    ],
)
def test_the_subprotocol_is_echoed(path: str, asked: list[str], given: str) -> None:
    async def talk(entrance: OpenPorts) -> None:
        made = WebSocket(*await dial(entrance.http_port))
        answer = await made.open(path, *asked)
        assert isinstance(answer, AcceptConnection)
        assert answer.subprotocol == given
        made.close()

    enter(talk)


def test_another_subprotocol_is_refused() -> None:
    async def talk(entrance: OpenPorts) -> None:
        made = WebSocket(*await dial(entrance.http_port))
        answer = await made.open(PATH, "mqtt")
        assert isinstance(answer, RejectConnection)
        assert answer.status_code == 400
        assert "AMQPWSB10" in await made.rejected()
        made.close()

    enter(talk)


def test_another_path_is_no_websocket() -> None:
    async def talk(entrance: OpenPorts) -> None:
        made = WebSocket(*await dial(entrance.http_port))
        answer = await made.open(PATH + "x")
        assert isinstance(answer, RejectConnection)
        assert answer.status_code == 404
        made.close()

    enter(talk)


UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = "Sec-WebSocket-Version: 13\r\n"


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", ""),
        ("GET", UPGRADE + KEY),
        ("GET", UPGRADE + VERSION),
        ("GET", UPGRADE + KEY + "Sec-WebSocket-Version: 7\r\n"),
        ("GET", "Connection: Upgrade\r\nUpgrade: h2c\r\n" + KEY + VERSION),
        ("POST", UPGRADE + KEY + VERSION),
        ("GET", UPGRADE + KEY + VERSION + "Sec-WebSocket-Protocol: \xe9\r\n"),
    ],
    ids=["no upgrade", "no version", "no key", "old", "another", "no GET", "no ASCII"],
)
def test_what_is_no_websocket_is_told_so(method: str, headers: str) -> None:
    async def talk(entrance: OpenPorts) -> None:
        reader, writer = await dial(entrance.http_port)
        writer.write(f"{method} {PATH} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode("latin-1"))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 426 ")
        assert b"Only a WebSocket can be opened here" in answer
        assert entrance.amqp.count == 0
        writer.close()

    enter(talk)


def test_what_comes_with_the_request_is_not_lost() -> None:
    async def talk(entrance: OpenPorts) -> None:
        reader, writer = await dial(entrance.http_port)
        request = f"GET {PATH} HTTP/1.1\r\nHost: x\r\n{UPGRADE}{KEY}{VERSION}\r\n".encode()
        # A masked binary message whose mask is zero.
        writer.write(request + b"\x82\x88\x00\x00\x00\x00" + HEADER)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"protocol" not in head.lower().replace(b"switching protocols", b"")
        data = await reader.readexactly(2 + len(HEADER))
        assert data[0] == 0x82
        assert data[2:] == HEADER
        writer.close()

    enter(talk)


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
def test_messages_may_be_fragmented_anywhere(is_tls: bool) -> None:
    """Header and frames in pieces, with a ping between two fragments of one message."""

    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance, is_tls=is_tls)
        for index in range(len(HEADER)):
            is_last = index == len(HEADER) - 1
            piece = HEADER[index : index + 1]
            made.send(BytesMessage(data=piece, message_finished=is_last))
            made.send(Ping(payload=b"%d" % index))
            await made.writer.drain()
        pongs = [await made.next(Pong) for _ in HEADER]
        assert [pong.payload for pong in pongs] == [b"%d" % index for index in range(8)]  # type: ignore[attr-defined]  # it is a Pong
        assert (await made.read())[:8] == HEADER
        made.close()

    enter(talk)


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
def test_large_messages_pass(is_tls: bool) -> None:
    """A message as large as a frame may be, and one that has many frames in it."""

    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance, is_tls=is_tls)
        caller = Caller(made, made)
        session = caller.machine.begin_session()
        await caller.until(Opened)
        link = session.attach_sender("l" * 50_000, Target(address="$cbs"))
        for _ in range(10_000):
            session.write_flow()
        assert (await caller.until(AttachAnswered)).link is link
        made.close()

    enter(talk)


def test_many_small_messages_are_handed_on_together() -> None:
    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        for byte in HEADER:
            made.write(bytes([byte]))
        assert (await made.read())[:8] == HEADER
        made.close()

    enter(talk)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x82\x03abc", 1002),  # no mask
        (b"\xc2\x80\x00\x00\x00\x00", 1002),  # a reserved bit
        (b"\x83\x80\x00\x00\x00\x00", 1002),  # an unknown kind
        (b"\x80\x80\x00\x00\x00\x00", 1002),  # goes on with nothing
        (b"\x89\xfe\x01\x00\x00\x00\x00\x00", 1002),  # a ping that is too long
        (b"\x81\x81\x00\x00\x00\x00x", 1003),  # a text
    ],
)
def test_frames_that_are_wrong_end_the_connection(frame: bytes, code: int) -> None:
    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        made.writer.write(frame)
        closed = await made.next(CloseConnection)
        assert isinstance(closed, CloseConnection)
        assert closed.code == code
        made.send(closed.response()) if code == 1003 else None
        await until(lambda: entrance.amqp.count == 0)
        made.close()

    enter(talk)


def test_a_close_is_answered() -> None:
    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        made.send(CloseConnection(code=1000))
        closed = await made.next(CloseConnection)
        assert isinstance(closed, CloseConnection)
        assert closed.code == 1000
        assert await made.reader.read() == b""
        made.close()
        await until(lambda: entrance.amqp.count == 0)

    enter(talk)


def test_a_close_right_behind_data_is_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    """R-S8: clients end what is inside and then the WebSocket, often in one piece."""

    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        made.writer.write(
            made.machine.send(BytesMessage(data=HEADER))
            + made.machine.send(CloseConnection(code=1000))
        )
        assert isinstance(await made.next(CloseConnection), CloseConnection)
        assert await made.reader.read() == b""
        made.close()
        await until(lambda: entrance.amqp.count == 0)

    enter(talk)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
def test_a_stop_is_told_inside_and_outside(is_tls: bool) -> None:
    """R-S8: AMQP's close comes first, then the WebSocket's."""

    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance, is_tls=is_tls)
        caller = Caller(made, made)
        await caller.until(Opened)
        stopping = asyncio.ensure_future(entrance.amqp.stop())
        closed = await caller.until(Closed)
        assert closed.error.condition == "amqp:connection:forced"
        assert await made.read() == b""
        await stopping
        assert entrance.amqp.count == 0
        made.close()

    enter(talk)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """What waits for it in memory has a limit."""

    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        (protocol,) = entrance.amqp._connections
        for _ in range(64):
            protocol.write(bytes(65_536))
        await until(lambda: entrance.amqp.count == 0)
        made.writer.transport.abort()

    enter(talk, amqp={"output_bytes_max": 1_000})


def test_a_client_that_does_not_read_is_not_read_either() -> None:
    """Pings are answered, but not without bound."""

    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        (protocol,) = entrance.amqp._connections
        for _ in range(64):
            protocol.write(bytes(65_536))
        peer = protocol._peer
        assert peer is not None
        await until(lambda: peer.output.is_reading_held)
        got = 0
        while got < 64 * 65_536:
            got += len(await made.read())
        await until(lambda: not peer.output.is_reading_held)
        made.send(Ping(payload=b"?"))
        await made.next(Pong)
        made.close()

    enter(talk)


def test_no_message_is_larger_than_clients_take() -> None:
    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        (protocol,) = entrance.amqp._connections
        written = bytes(range(256)) * 4_096 + b"the end"
        protocol.write(written)
        got, current = b"", 0
        while len(got) < len(written):
            event = await made.next(BytesMessage)
            assert isinstance(event, BytesMessage)
            got += event.data
            current += len(event.data)
            assert current <= MESSAGE_BYTES_MAX
            if event.message_finished:
                current = 0
        assert got == written
        made.close()

    enter(talk)


def test_a_text_after_data_lets_the_data_pass() -> None:
    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        made.writer.write(
            made.machine.send(BytesMessage(data=HEADER)) + made.machine.send(TextMessage(data="x"))
        )
        assert (await made.read())[:8] == HEADER
        assert await made.read() == b""
        made.close()

    enter(talk)


def test_very_many_frames_of_one_read_are_answered_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read full of tiny frames is several steps of the loop, and nothing of it is lost."""
    waits: list[Tunnel] = []
    fall_behind = Tunnel.fall_behind

    def noted(self: Tunnel) -> None:
        waits.append(self)
        fall_behind(self)

    monkeypatch.setattr(Tunnel, "fall_behind", noted)

    async def talk(entrance: OpenPorts) -> None:
        made = await tunnel(entrance)
        frames = [made.machine.send(Ping(payload=b"%d" % index)) for index in range(3_000)]
        made.writer.write(b"".join(frames))
        for index in range(3_000):
            answer = await made.next(Pong)
            assert isinstance(answer, Pong)
            assert answer.payload == b"%d" % index
        assert len(waits) >= 5
        made.write(HEADER)
        assert (await made.read()).startswith(HEADER)
        made.close()

    enter(talk)
