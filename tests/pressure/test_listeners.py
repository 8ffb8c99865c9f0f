"""Listeners under abuse: half a hello, no descriptor left, answers that nobody reads."""

import contextlib
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import pytest

from bench.proc import open_files, open_sockets
from tests.pressure.abused_broker import AbusedBroker
from tests.pressure.conftest import StartBroker
from tests.pressure.raw import RECEIVER, Raw
from tests.wire import sas
from tests.wire.own_client import run_with, send

HELLO_CUT = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
WITHIN_S = 15.0


def wait_until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.02)


@contextlib.contextmanager
def crowd(broker: AbusedBroker, count: int, words: bytes = b"") -> Iterator[list[Raw]]:
    """Many peers that say a few words each and then nothing."""
    with contextlib.ExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = stack.enter_context(broker.raw())
            with contextlib.suppress(OSError):
                peer.socket.sendall(words)
            peers.append(peer)
        yield peers


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """These tests open more sockets than a shell may begin with."""
    few, many = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(many, 8_192), many))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, many))


@pytest.mark.usefixtures("many_descriptors")
def test_half_a_hello_costs_little_and_keeps_nobody_out(start_broker: StartBroker) -> None:
    """Each cost 87 KB for 15 seconds, 5,000 of them at once."""
    broker = start_broker()
    with broker.pressed(grows_at_most=72 << 20), crowd(broker, 1_200, HELLO_CUT):
        # Whoever means it has a place soon.
        begun = time.monotonic()
        with shaking(broker) as theirs:
            assert theirs.version() is not None
        assert time.monotonic() - begun < 10.0


@contextlib.contextmanager
def shaking(broker: AbusedBroker) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(broker.process.authority))
    with (
        socket.create_connection(("127.0.0.1", broker.process.amqp_port), WITHIN_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        yield wrapped


def test_without_a_descriptor_it_refuses_and_serves_on(start_broker: StartBroker) -> None:
    """The pause failed at its own log line, and 22,004 tracebacks came in 33 seconds."""
    broker = start_broker()
    with broker.pressed() as seen:
        limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(
            broker.pid, resource.RLIMIT_NOFILE, (open_files(broker.pid) + 20, limits[1])
        )
        with crowd(broker, 300):
            time.sleep(1.0)
        log = broker.log()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
    assert not seen.errors
    assert "connection-refused" in log
    assert "Traceback" not in log
    assert len(log.splitlines()) < 200
    # As soon as there is room, everybody is served again.
    run_with(broker.connection_string, lambda client: send(client, "ping", "x"))


def test_who_never_reads_is_let_go(start_broker: StartBroker) -> None:
    """With a token or without, by AMQP or by HTTP, each held its bytes for ever."""
    broker = start_broker(queues={"q0": {}, "q1": {}}, options=("--write-timeout-ms", "1000"))
    bodies = ["x" * 250_000] * 20
    run_with(broker.connection_string, lambda client: send(client, "q0", *bodies))
    run_with(broker.connection_string, lambda client: send(client, "q1", *bodies))
    page = (
        "GET /q0/$journal/0?limit=8388608 HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: {sas.token('http://localhost/q0')}\r\n\r\n"
    ).encode()
    before = open_sockets(broker.pid)
    with broker.pressed(grows_at_most=160 << 20):
        peers = [broker.raw() for _ in range(5)]
        for peer in peers:
            # What their systems take for them is not what is looked at.
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        for number, peer in enumerate(peers[:2]):
            peer.open()
            peer.begin()
            peer.attach(f"q{number}", RECEIVER)
            peer.grant(100)
        for peer in peers[2:]:
            peer.send(page)
        # Somebody who has nothing to read, and says nothing.
        idle = broker.raw()
        idle.open()
        wait_until(lambda: open_sockets(broker.pid) <= before + 2)  # pings, idle
        assert not idle.is_ended_within(0.1)
    assert broker.log().count("cut-off") == len(peers)
    for peer in (*peers, idle):
        peer.close()


def test_slow_heads_keep_nobody_out(start_broker: StartBroker) -> None:
    """A byte every 6.5 seconds held a connection for ever, and there was no limit of them."""
    broker = start_broker(options=("--http-connections-max", "50"))
    with broker.pressed(), crowd(broker, 200, b"GET /health HTTP/1.1\r\nHo") as peers:
        for peer in peers[-40:]:
            with contextlib.suppress(OSError):
                peer.socket.sendall(b"s")
        for _ in range(5):
            assert broker.get("/health")[0] == 200
        metrics = broker.metrics()
        label = (("budget", "http_connections"),)
        assert metrics["peeklock_budget_limit", label] == 50
        assert metrics["peeklock_budget_refused_total", label] >= 150
        assert metrics["peeklock_budget_used", label] <= 50
        assert metrics["peeklock_connections", (("protocol", "http"),)] <= 50
    with broker.raw() as peer:
        peer.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.receive().startswith(b"HTTP/1.1 200")


@pytest.mark.torture
def test_a_head_and_a_body_have_a_time_in_all(start_broker: StartBroker) -> None:
    broker = start_broker()
    post = b"POST /ping/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
    with (
        crowd(broker, 5, b"GET /health HTTP/1.1\r\nX: ") as heads,
        crowd(broker, 5, post) as bodies,
    ):
        begun = time.monotonic()
        while time.monotonic() - begun < 45.0:
            for peer in (*heads, *bodies):
                with contextlib.suppress(OSError):
                    peer.socket.sendall(b"x")
            time.sleep(5.0)
        assert all(peer.is_ended_within(0.1) for peer in (*heads, *bodies))


UPGRADE = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: %s\r\n%sUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
)


def answered(broker: AbusedBroker, request: bytes) -> int:
    with broker.raw() as peer:
        peer.send(request)
        return int(peer.receive().split()[1])


@pytest.mark.parametrize("is_open", [False, True], ids=["loopback", "everywhere"])
def test_no_web_page_can_use_a_broker_that_is_not_its_own(
    start_broker: StartBroker, is_open: bool
) -> None:
    """Any page could, by a WebSocket or by a name that was made to mean this machine."""
    # The last of two options counts.
    everywhere = ("--host", "0.0.0.0", "--allow-development-key")
    broker = start_broker(options=everywhere if is_open else ("--allowed-host", "broker.test"))
    for request in (UPGRADE, b"GET /health HTTP/1.1\r\nHost: %s\r\n%s\r\n"):
        good = 101 if request is UPGRADE else 200
        assert answered(broker, request % (b"localhost", b"")) == good
        assert (
            answered(broker, request % (b"localhost:1", b"Origin: http://localhost:1\r\n")) == good
        )
        assert answered(broker, request % (b"localhost", b"Origin: https://evil.test\r\n")) == 403
        assert answered(broker, request % (b"localhost", b"Origin: null\r\n")) == 403
        # A page of a name that now means this machine, and a service of compose.
        for host in (b"evil.test", b"peeklock"):
            assert answered(broker, request % (host, b"")) == (good if is_open else 421)
        assert answered(broker, request % (b"broker.test:5300", b"")) == good
