"""Every way in: AMQP in TLS and in WebSockets, on every port, with clients of all kinds."""

import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from tests.wire import sas
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import (
    FLAVOURS,
    Bus,
    Flavour,
    LoopThread,
    bodies,
    body,
    peek_all,
    receive,
    receive_one,
)
from tests.wire.go import go_client
from tests.wire.java import java_client, trusting
from tests.wire.javascript import JAVASCRIPT, node

# The client gives aiohttp an option that aiohttp no longer likes.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

TRANSPORTS = ("ws", "wss", "amqps")
PORTS = ("amqp_port", "http_port")


def options_for(transport: str, port: int, broker: BrokerProcess) -> dict[str, Any]:
    """What the Python client must be told to come in by this transport."""
    options: dict[str, Any] = {"custom_endpoint_address": f"https://localhost:{port}"}
    if transport != "amqps":
        options["transport_type"] = TransportType.AmqpOverWebsocket
    else:
        options["transport_type"] = TransportType.Amqp
    if transport == "ws":
        return options | {"custom_endpoint_address": f"http://localhost:{port}"}
    return options | {"connection_verify": str(broker.authority)}


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=PORTS)
def port(request: pytest.FixtureRequest, broker: BrokerProcess) -> int:
    number: int = getattr(broker, request.param)
    return number


@pytest.fixture(params=FLAVOURS)
def entered(
    request: pytest.FixtureRequest,
    broker: BrokerProcess,
    loop: LoopThread,
    transport: str,
    port: int,
) -> Iterator[Bus]:
    """The official client in both flavours, connected by one transport to one port."""
    flavour: Flavour = request.param
    text = sas.connection_string(port, emulator=transport == "ws")
    bus = Bus(flavour, text, loop, **options_for(transport, port, broker))
    yield bus
    bus.close()


def test_messages_go_both_ways(entered: Bus, queue: str) -> None:
    """R-F1: one by one, in batches and large ones, settled and browsed."""
    with entered.sender(queue) as sender, entered.receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage("first"))
        first = receive_one(receiver)
        assert body(first) == b"first"
        receiver.complete_message(first)
        batch = [ServiceBusMessage(f"{index}", partition_key="k") for index in range(100)]
        sender.send_messages(batch)
        messages = receive(receiver, 100)
        assert bodies(messages) == [f"{index}".encode() for index in range(100)]
        for message in messages:
            receiver.complete_message(message)
        sender.send_messages(ServiceBusMessage(b"x" * 250_000))
        large = receive_one(receiver)
        assert len(body(large)) == 250_000
        receiver.dead_letter_message(large, reason="size")
        assert peek_all(receiver) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_more_than_a_client_takes_as_one_message(
    broker: BrokerProcess, loop: LoopThread, queue: str, flavour: Flavour
) -> None:
    """aiohttp takes WebSocket messages of 4 MB; twice that is delivered at once."""
    port = broker.http_port
    bus = Bus(flavour, sas.connection_string(port), loop, **options_for("ws", port, broker))
    try:
        with bus.sender(queue) as sender:
            for _ in range(40):
                sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        with bus.receiver(queue, prefetch_count=100) as receiver:
            messages = receive(receiver, 40)
            assert {len(body(message)) for message in messages} == {200_000}
    finally:
        bus.close()


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", ["wss", "amqps"])
def test_a_client_without_trust_stays_outside(
    broker: BrokerProcess, loop: LoopThread, queue: str, flavour: Flavour, kind: str
) -> None:
    options = options_for(kind, broker.amqp_port, broker) | {"retry_total": 0}
    del options["connection_verify"]
    bus = Bus(flavour, sas.connection_string(broker.amqp_port, emulator=False), loop, **options)
    try:
        with bus.sender(queue) as sender, pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("x"))
    finally:
        bus.close()


@pytest.mark.parametrize("port_name", PORTS)
def test_proton_comes_in_with_tls(broker: BrokerProcess, queue: str, port_name: str) -> None:
    """R-F1: a generic client, whose key is inside TLS now."""
    from tests.wire.generic import Generic

    with Generic(getattr(broker, port_name), authority=broker.authority) as client:
        client.send(queue, "over TLS")
        text, delivery = client.receiver(queue).receive()
        assert text == "over TLS"
        delivery.settle()


@pytest.mark.parametrize("way", ["wss", "amqps"])
@pytest.mark.parametrize("port_name", PORTS)
def test_javascript_comes_in_with_tls(
    broker: BrokerProcess, queue: str, port_name: str, way: str
) -> None:
    """R-F1: it always uses TLS for WebSockets, and trusts the authority by its variable."""
    text = sas.connection_string(getattr(broker, port_name), emulator=False)
    done = subprocess.run(
        [node(), "transports.mjs", queue, way],
        cwd=JAVASCRIPT,
        env=os.environ
        | {"PEEKLOCK_CONNECTION": text, "NODE_EXTRA_CA_CERTS": str(broker.authority)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["hello", "250000", "0"]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("kind", ["wss", "amqps"])
def test_a_client_that_cannot_be_told_a_port_finds_the_usual_one(
    usual_ports: BrokerProcess, loop: LoopThread, flavour: Flavour, kind: str
) -> None:
    """R-F1: 5671 for AMQP, 443 for WebSockets, with nothing but the trusted authority."""
    options: dict[str, Any] = {"connection_verify": str(usual_ports.authority)}
    if kind == "wss":
        options["transport_type"] = TransportType.AmqpOverWebsocket
    text = sas.connection_string(None, emulator=False)
    bus = Bus(flavour, text, loop, **options)
    try:
        bus.send("plain-001", ServiceBusMessage(kind))
        with bus.receiver("plain-001") as receiver:
            message = receive_one(receiver)
            receiver.complete_message(message)
            assert body(message) == kind.encode()
    finally:
        bus.close()


@pytest.mark.parametrize("way", ["amqp", "ws", "wss"])
def test_go_comes_in_by_any_port(broker: BrokerProcess, queue: str, way: str) -> None:
    """R-F1: it asks for the sub-protocol `amqp`, and trusts the authority by the usual variable."""
    port = broker.http_port
    command = [go_client(), sas.connection_string(port), queue, way, f"localhost:{port}"]
    said = run(command, {"SSL_CERT_FILE": str(broker.authority)})
    assert said == ["5", "250000", "0"]


def test_go_comes_in_with_tls(usual_ports: BrokerProcess) -> None:
    """R-F1: without the emulator's flag it knows 5671 only."""
    command = [go_client(), sas.connection_string(None, emulator=False), "plain-001", "amqps", ""]
    said = run(command, {"SSL_CERT_FILE": str(usual_ports.authority)})
    assert said == ["5", "250000", "0"]


def test_java_comes_in_with_tls(broker: BrokerProcess, queue: str, tmp_path: Path) -> None:
    """R-F1: a port in the connection string is used with TLS too."""
    text = sas.connection_string(broker.amqp_port, emulator=False)
    assert run([*java_with_trust(broker, tmp_path), text, queue, "AMQP"]) == ["5", "250000", "0"]


def test_java_comes_in_by_websockets(usual_ports: BrokerProcess, tmp_path: Path) -> None:
    """R-F1: it knows 443 only."""
    command = java_with_trust(usual_ports, tmp_path)
    text = sas.connection_string(None, emulator=False)
    assert run([*command, text, "plain-002", "AMQP_WEB_SOCKETS"]) == ["5", "250000", "0"]


def java_with_trust(broker: BrokerProcess, directory: Path) -> list[str]:
    return trusting(java_client("Transports.java"), broker.authority, directory)


def run(command: list[str], environment: dict[str, str] | None = None) -> list[str]:
    """What a program says; its words when it fails."""
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def shown_certificate(port: int, authority: Path) -> dict[str, Any]:
    """What the broker shows to a client that trusts an authority."""
    context = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="bus.example") as wrapped,
    ):
        return cast(dict[str, Any], wrapped.getpeercert())


def test_own_certificates_and_other_names(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """A name for the development certificate, then the same one given as somebody's own."""
    first = start_broker("first", counts={"plain": 1})
    first.options += ("--tls-name", "bus.example", "--tls-name", "10.1.2.3")
    first.start()
    shown = shown_certificate(first.amqp_port, first.authority)
    assert ("DNS", "bus.example") in shown["subjectAltName"]
    assert ("IP Address", "10.1.2.3") in shown["subjectAltName"]
    assert first.stop() == 0

    own = first.authority.with_name("server.pem")
    second = start_broker("second", counts={"plain": 1})
    second.options += ("--tls-certificate", str(own), "--tls-key", str(own))
    second.start()
    again = shown_certificate(second.http_port, first.authority)
    assert again["serialNumber"] == shown["serialNumber"]
    assert not second.authority.exists()


def test_tls_can_be_switched_off(start_broker: Callable[..., BrokerProcess]) -> None:
    process = start_broker(counts={"plain": 1})
    process.options += ("--tls", "off")
    process.start()
    assert not process.authority.exists()
    with (
        socket.create_connection(("127.0.0.1", process.amqp_port)) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")


def test_certificates_are_signed_anew_for_other_names_only(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """What clients trust stays over restarts."""
    process = start_broker(counts={"plain": 1})
    process.options += ("--tls-name", "bus.example")
    process.start()
    first = shown_certificate(process.amqp_port, process.authority)["serialNumber"]
    process.stop()
    process.start()
    assert shown_certificate(process.amqp_port, process.authority)["serialNumber"] == first
    process.stop()
    process.options += ("--tls-name", "other.example")
    process.start()
    assert shown_certificate(process.amqp_port, process.authority)["serialNumber"] != first


def test_curl_sees_health_in_clear_and_with_tls(broker: BrokerProcess) -> None:
    """R-P9: with nothing but the trusted authority."""
    for place in (f"http://localhost:{broker.amqp_port}", f"https://127.0.0.1:{broker.http_port}"):
        done = subprocess.run(
            ["curl", "-sS", "--cacert", str(broker.authority), f"{place}/health"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert '"healthy"' in done.stdout, done.stderr
