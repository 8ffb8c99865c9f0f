"""The ports: what a connection speaks is found out, and who says nothing costs little."""

import asyncio
import contextlib
import errno
import socket
import ssl
from typing import Any

import pytest

from peeklock.amqp.events import Opened
from peeklock.gateway.quotas.shared_limits import SharedLimits
from tests.broker.broker_harness import until
from tests.gateway.callers import Caller, WebSocket, dial
from tests.gateway.open_ports import OpenPorts, development, enter

GET = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends it without a word, politely or not."""
    with contextlib.suppress(ConnectionError):
        return await reader.read() == b""
    return True


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize("speaks", ["amqp", "http", "websocket"])
@pytest.mark.parametrize("port", ["amqp_port", "http_port"])
def test_every_port_serves_every_protocol(port: str, speaks: str, is_tls: bool) -> None:
    """R-F1."""

    async def talk(entrance: OpenPorts) -> None:
        context = development()[1] if is_tls else None
        reader, writer = await dial(getattr(entrance, port), context)
        if speaks == "amqp":
            opened = await Caller(reader, writer).until(Opened)
            assert opened.open.container_id == "the-broker"
        elif speaks == "http":
            writer.write(GET)
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        else:
            tunnel = WebSocket(reader, writer)
            await tunnel.open()
            opened = await Caller(tunnel, tunnel).until(Opened)
            assert opened.open.container_id == "the-broker"
        assert entrance.listener.undecided_count == 0
        assert entrance.amqp.count == (0 if speaks == "http" else 1)
        writer.close()

    enter(talk)


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Without this, a trickle of answers is held back for milliseconds each."""

    async def talk(entrance: OpenPorts) -> None:
        reader, writer = await dial(entrance.amqp_port, None)
        await Caller(reader, writer).until(Opened)
        [protocol] = entrance.amqp._connections
        assert protocol._transport is not None
        served = protocol._transport.get_extra_info("socket")
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.close()

    enter(talk)


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
def test_first_words_may_come_byte_by_byte(is_tls: bool) -> None:
    async def talk(entrance: OpenPorts) -> None:
        reader, writer = await dial(entrance.amqp_port, development()[1] if is_tls else None)
        header = b"AMQP\x03\x01\x00\x00"
        for index in range(len(header)):
            writer.write(header[index : index + 1])
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.readexactly(8) == header
        writer.close()

    enter(talk)


@pytest.mark.parametrize("is_tls", [False, True], ids=["clear", "tls"])
@pytest.mark.parametrize(
    "words",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"AMXX\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        bytes(range(255, 100, -1)) + b"\r\n\r\n",
    ],
    ids=["zeros", "almost amqp", "another protocol", "noise"],
)
def test_garbage_is_answered_and_ended(words: bytes, is_tls: bool) -> None:
    async def talk(entrance: OpenPorts) -> None:
        reader, writer = await dial(entrance.amqp_port, development()[1] if is_tls else None)
        writer.write(words)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert entrance.listener.undecided_count == 0

    enter(talk)


def test_tls_that_is_switched_off_is_refused_at_once() -> None:
    async def talk(entrance: OpenPorts) -> None:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await dial(entrance.amqp_port, development()[1])
        await until(lambda: entrance.listener.undecided_count == 0)
        # In clear everything is as ever.
        reader, writer = await dial(entrance.amqp_port)
        await Caller(reader, writer).until(Opened)
        writer.close()

    enter(talk, has_tls=False)


def test_old_tls_is_not_spoken() -> None:
    """Nothing below 1.2."""

    async def talk(entrance: OpenPorts) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await dial(entrance.amqp_port, context)

    enter(talk)


def test_a_client_without_trust_leaves_nothing_behind() -> None:
    async def talk(entrance: OpenPorts) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await dial(entrance.amqp_port, ssl.create_default_context())
        await until(lambda: entrance.listener.undecided_count == 0)

    enter(talk)


@pytest.mark.parametrize(
    "words",
    [b"", b"AM", CLIENT_HELLO, CLIENT_HELLO[:1]],
    ids=["nothing", "half a header", "half a handshake", "one byte"],
)
def test_who_says_too_little_is_cut_off(words: bytes) -> None:
    """A silent client costs a socket, for a while."""

    async def talk(entrance: OpenPorts) -> None:
        reader, writer = await dial(entrance.amqp_port)
        writer.write(words)
        assert await is_ended(reader)
        writer.close()
        await until(lambda: entrance.listener.undecided_count == 0)
        assert entrance.amqp.count == 0

    enter(talk, step_s_max=0.05)


def test_silence_inside_tls_is_cut_off_too() -> None:
    async def talk(entrance: OpenPorts) -> None:
        reader, writer = await dial(entrance.amqp_port, development()[1])
        assert await is_ended(reader)
        writer.transport.abort()
        await until(lambda: entrance.listener.undecided_count == 0)

    enter(talk, step_s_max=1.0)


@pytest.mark.parametrize("words", [b"", b"AMQ", CLIENT_HELLO], ids=["mute", "header", "handshake"])
def test_who_goes_early_is_forgotten(words: bytes) -> None:
    async def talk(entrance: OpenPorts) -> None:
        _, writer = await dial(entrance.http_port)
        writer.write(words)
        await until(lambda: entrance.listener.undecided_count == 1)
        writer.transport.abort()
        await until(lambda: entrance.listener.undecided_count == 0)

    enter(talk)


def test_only_so_many_may_be_undecided() -> None:
    """R-F7: those who wait longest go, so that silence keeps nobody out."""

    async def talk(entrance: OpenPorts) -> None:
        mute, mute_writer = await dial(entrance.amqp_port)
        await until(lambda: entrance.listener.undecided_count == 1)
        first = await dial(entrance.amqp_port)
        assert await is_ended(mute)
        # Whoever is served makes room for the next.
        await Caller(*first).until(Opened)
        second = await dial(entrance.amqp_port)
        await Caller(*second).until(Opened)
        assert entrance.amqp.count == 2
        for writer in (mute_writer, first[1], second[1]):
            writer.close()

    enter(talk, undecided_max=1)


def test_an_unauthenticated_connection_too_many_takes_the_place_of_another() -> None:
    """R-F7."""

    async def talk(entrance: OpenPorts) -> None:
        writers = []
        for _ in range(101):
            _, writer = await dial(entrance.amqp_port)
            writer.write(b"AMQP\x03\x01\x00\x00")
            writers.append(writer)
        await until(lambda: entrance.amqp.count == 100)
        for writer in writers:
            writer.transport.abort()

    enter(talk, amqp={"shared_limits": SharedLimits(unauthenticated_max=100)})


def test_a_stop_ends_what_has_not_begun() -> None:
    """R-S8."""

    async def talk(entrance: OpenPorts) -> None:
        mute = await dial(entrance.amqp_port)
        shaking = await dial(entrance.amqp_port)
        shaking[1].write(CLIENT_HELLO)
        hesitant = await dial(entrance.amqp_port)
        hesitant[1].write(b"A")
        await until(lambda: entrance.listener.undecided_count == 3)
        entrance.listener.stop()
        for reader, writer in (mute, shaking, hesitant):
            assert await is_ended(reader)
            writer.close()
        assert entrance.listener.undecided_count == 0
        with pytest.raises(ConnectionRefusedError):
            await dial(entrance.amqp_port)

    enter(talk)


class Full(socket.socket):
    """A listening socket of a system that has no room for another connection."""

    def accept(self) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_system_without_room_is_not_asked_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(entrance: OpenPorts) -> None:
        full = Full()
        full.bind(("127.0.0.1", 0))
        full.listen()
        loop = asyncio.get_running_loop()
        loop.add_reader(full, entrance.listener._accept, full)
        entrance.listener._sockets.append(full)
        _, writer = await dial(full.getsockname()[1])
        await until(lambda: "accept-failed" in caplog.text)
        assert not loop.remove_reader(full)
        entrance.listener._resume(full)
        assert loop.remove_reader(full)
        writer.close()
        # The others go on.
        reader, writer = await dial(entrance.amqp_port)
        await Caller(reader, writer).until(Opened)
        writer.close()

    enter(talk)


def test_a_port_that_is_taken_is_named() -> None:
    async def talk(entrance: OpenPorts) -> None:
        with pytest.raises(OSError, match=str(entrance.amqp_port)):
            await entrance.listener.start("amqp", "127.0.0.1", entrance.amqp_port)

    enter(talk)


def test_a_name_listens_on_all_its_addresses() -> None:
    async def talk(entrance: OpenPorts) -> None:
        port = await entrance.listener.start("amqp", "localhost", 0)
        family = socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)[0]
        reader, writer = await dial(port, host=family[4][0])  # type: ignore[arg-type]  # its address
        await Caller(reader, writer).until(Opened)
        writer.close()

    enter(talk)


def test_sockets_have_a_limit_and_the_oldest_silent_one_makes_room() -> None:
    async def talk(entrance: OpenPorts) -> None:
        budget = entrance.budget("sockets")
        budget.limit = 2
        served = await dial(entrance.amqp_port)
        await Caller(*served).until(Opened)
        mute, mute_writer = await dial(entrance.amqp_port)
        await until(lambda: budget.used == 2)
        following = await dial(entrance.amqp_port)
        assert await is_ended(mute)
        await Caller(*following).until(Opened)
        # Now all are served, and nobody is cut off for somebody new.
        last, last_writer = await dial(entrance.amqp_port)
        assert await is_ended(last)
        assert (budget.used, budget.refused) == (2, 1)
        for writer in (served[1], mute_writer, following[1], last_writer):
            writer.close()
        await until(lambda: budget.used == 0)

    enter(talk)


@pytest.mark.parametrize(
    "words", [b"", b"AM", CLIENT_HELLO, b"\x16\x03\x01\x00\x01\x00", b"GET / HTTP/1.1\r\n\r\n"]
)
@pytest.mark.parametrize("ends", ["client", "broker"])
def test_every_end_gives_its_socket_back(words: bytes, ends: str) -> None:
    async def talk(entrance: OpenPorts) -> None:
        budget = entrance.budget("sockets")
        reader, writer = await dial(entrance.amqp_port)
        await until(lambda: budget.used == 1)
        writer.write(words)
        if ends == "client":
            for _ in range(5):
                await asyncio.sleep(0)
            writer.transport.abort()
        else:
            entrance.listener.stop()
            entrance.http.stop()
            await is_ended(reader)
            writer.close()
        await until(lambda: budget.used == 0)
        assert entrance.budget("tls_handshakes").used == 0
        assert entrance.budget("undecided_connections").used == 0

    enter(talk)


def test_handshakes_that_do_not_end_keep_nobody_out() -> None:
    async def talk(entrance: OpenPorts) -> None:
        dawdling = await dial(entrance.amqp_port)
        dawdling[1].write(CLIENT_HELLO)
        await until(lambda: entrance.budget("tls_handshakes").used == 1)
        reader, writer = await dial(entrance.amqp_port, development()[1])
        await Caller(reader, writer).until(Opened)
        assert await is_ended(dawdling[0])
        for each in (dawdling[1], writer):
            each.close()

    enter(talk, handshakes_max=1)


class Crowded(socket.socket):
    """A listening socket of a system that has no descriptor, until one is given back."""

    has_room = False

    def accept(self) -> Any:
        if not self.has_room:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_connection_without_a_descriptor_is_refused_by_the_spare_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(entrance: OpenPorts) -> None:
        crowded = Crowded()
        crowded.bind(("127.0.0.1", 0))
        crowded.listen()
        crowded.setblocking(False)
        spare = entrance.listener._spare
        give = spare.close

        def close() -> None:
            crowded.has_room = True
            give()

        monkeypatch.setattr(type(spare), "close", lambda _self: close())
        loop = asyncio.get_running_loop()
        loop.add_reader(crowded, entrance.listener._accept, crowded)
        reader, writer = await dial(crowded.getsockname()[1])
        assert await is_ended(reader)
        assert "connection-refused" in caplog.text
        assert loop.remove_reader(crowded)
        writer.close()
        crowded.close()
        monkeypatch.undo()

    enter(talk)
