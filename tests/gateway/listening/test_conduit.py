"""Whoever does not read is let go, whatever it speaks; whoever has nothing to read may stay."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

import pytest

from peeklock.gateway import logbook
from peeklock.gateway.listening import conduit
from peeklock.gateway.listening.conduit import Conduit
from tests.broker.broker_harness import until
from tests.gateway.open_ports import development

MUCH = bytes(8 << 20)


class Speaker(asyncio.Protocol):
    """What is served: it says what the test says."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self.is_paused = False
        self.keeps_half = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def eof_received(self) -> bool:
        return self.keeps_half

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_lost = True


class Line:
    """A conduit on one end of a socket, and the other end."""

    def __init__(self, write_s_max: float, close_s_max: float) -> None:
        self.speaker = Speaker()
        self.lost = 0
        self.conduit = Conduit(
            self.speaker, "somebody", self._lost, write_s_max=write_s_max, close_s_max=close_s_max
        )
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.theirs = socket.create_connection(listening.getsockname())
            self.ours = listening.accept()[0]
        self.theirs.setblocking(False)

    async def connect(self, context: ssl.SSLContext | None = None) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self.conduit, self.ours, ssl=context)

    def _lost(self) -> None:
        self.lost += 1


def run(
    test: Callable[[Line], Awaitable[None]], *, write_s: float = 60.0, close_s: float = 60.0
) -> None:
    async def whole() -> None:
        line = Line(write_s, close_s)
        try:
            await asyncio.wait_for(test(line), 20)
        finally:
            line.conduit.abort()
            line.theirs.close()
            await until(lambda: line.lost)
        assert line.lost == 1
        assert line.speaker.is_lost

    asyncio.run(whole())


def test_who_never_reads_is_cut_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduit, "_LOG", logbook.Sparing(logging.getLogger("x")))
    caplog.set_level(logging.INFO)

    async def talk(line: Line) -> None:
        await line.connect()
        line.conduit.write(MUCH)
        assert line.speaker.is_paused
        await until(lambda: line.lost)

    run(talk, write_s=0.05)
    assert "cut-off peer=somebody" in caplog.text
    assert "not read" in caplog.text


def test_who_has_nothing_to_read_is_not_watched() -> None:
    async def talk(line: Line) -> None:
        await line.connect()
        line.conduit.write(b"little")
        assert line.conduit._timer is None
        await until(lambda: line.theirs.recv(100) == b"little")

    run(talk, write_s=0.01)


def test_who_has_read_everything_is_watched_no_more() -> None:
    async def talk(line: Line) -> None:
        await line.connect()
        line.conduit.write(MUCH)
        assert line.conduit._timer is not None
        loop = asyncio.get_running_loop()
        left = len(MUCH)
        while left:
            left -= len(await loop.sock_recv(line.theirs, 1 << 20))
        await until(lambda: line.conduit._timer is None)
        assert not line.lost

    run(talk, write_s=0.4)


def test_who_reads_slowly_may_stay() -> None:
    """What its system holds for it counts: it is emptied long before more is written."""

    async def talk(line: Line) -> None:
        await line.connect()
        line.conduit.write(MUCH)
        loop = asyncio.get_running_loop()
        end = loop.time() + 1.0
        due = 0.0
        while loop.time() < end:
            if loop.time() >= due:
                due = loop.time() + 0.02
                await loop.sock_recv(line.theirs, 16_000)
            await asyncio.sleep(0)
        assert not line.lost
        assert line.conduit.get_write_buffer_size()

    run(talk, write_s=0.4)


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
def test_an_end_that_nobody_reads_has_a_deadline(is_tls: bool) -> None:
    async def talk(line: Line) -> None:
        if is_tls:
            await shaken(line)
        else:
            await line.connect()
        line.conduit.write(MUCH[: 1 << 20])
        line.conduit.close()
        assert line.conduit.is_closing()
        await until(lambda: line.lost)

    run(talk, close_s=0.1)


class Shaken:
    """A client of TLS that reads only what it must."""

    def __init__(self) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.ours = development()[1].wrap_bio(
            self.incoming, self.outgoing, server_hostname="localhost"
        )


async def shaken(line: Line) -> Shaken:
    theirs = Shaken()
    connecting = asyncio.ensure_future(line.connect(development()[0].context))
    loop = asyncio.get_running_loop()
    while not connecting.done():
        try:
            theirs.ours.do_handshake()
        except ssl.SSLWantReadError:
            await loop.sock_sendall(line.theirs, theirs.outgoing.read())
            theirs.incoming.write(await loop.sock_recv(line.theirs, 65_536))
        else:
            await loop.sock_sendall(line.theirs, theirs.outgoing.read())
            await connecting
    return theirs


def test_tls_that_ended_politely_and_is_not_read_is_cut_off() -> None:
    """Below TLS there is a transport of its own, which would wait for ever."""

    async def talk(line: Line) -> None:
        theirs = await shaken(line)
        # Filled until what is below holds some, and above there is nothing.
        while not line.conduit.get_write_buffer_size():
            line.conduit.write(bytes(4_096))
        with contextlib.suppress(ssl.SSLWantReadError):
            theirs.ours.unwrap()
        await asyncio.get_running_loop().sock_sendall(line.theirs, theirs.outgoing.read())
        await until(line.conduit.is_closing)
        line.conduit.close()
        await until(lambda: line.lost)

    run(talk, close_s=0.1)


def test_the_end_waits_for_who_reads() -> None:
    async def talk(line: Line) -> None:
        await line.connect()
        line.conduit.write(MUCH)
        line.conduit.close()
        line.conduit.close()
        loop = asyncio.get_running_loop()
        left = len(MUCH)
        while left:
            left -= len(await loop.sock_recv(line.theirs, 65_536))
        await until(lambda: line.lost)

    run(talk, close_s=5.0)


def test_who_hangs_up_and_is_owed_nothing_is_gone() -> None:
    async def talk(line: Line) -> None:
        await line.connect()
        line.theirs.shutdown(socket.SHUT_WR)
        await until(lambda: line.lost)

    run(talk)


def test_half_an_end_is_what_the_protocol_makes_of_it() -> None:
    async def talk(line: Line) -> None:
        await line.connect()
        line.speaker.keeps_half = True
        line.theirs.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0)
        line.conduit.write(b"an answer")
        assert await asyncio.get_running_loop().sock_recv(line.theirs, 100) == b"an answer"
        line.conduit.write_eof()
        assert await asyncio.get_running_loop().sock_recv(line.theirs, 100) == b""

    run(talk)


def test_it_is_a_transport_like_others() -> None:
    async def talk(line: Line) -> None:
        await line.connect()
        made = line.conduit
        made.set_write_buffer_limits(high=1_000, low=10)
        assert made.get_write_buffer_limits() == (10, 1_000)
        assert made.get_protocol() is line.speaker
        assert made.can_write_eof()
        made.pause_reading()
        assert not made.is_reading()
        made.resume_reading()
        assert made.is_reading()
        assert made.get_extra_info("socket") is not None

    run(talk)
