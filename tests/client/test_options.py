"""The options of the client: what is taken, what is refused, and by which sentence."""

import asyncio
import inspect
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient as OfficialClient

from peeklock.client import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    TransportType,
    blocking,
)
from peeklock.client.connections.connection_string import DEVELOPMENT
from peeklock.client.connections.proxy import HttpProxy
from peeklock.client.connections.retrying import RetryPolicy
from peeklock.client.exceptions import OperationTimeoutError, ServiceBusConnectionError
from peeklock.client.options import ClientOptions, ReceiverOptions, SenderOptions
from peeklock.client.receiver import ServiceBusReceiver
from peeklock.client.sender import ServiceBusSender
from tests.client.engine_broker import Bench, until


def made(**options: Any) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(DEVELOPMENT, **options)


def test_every_option_of_the_official_client_is_known() -> None:
    """Their programs need another import, and nothing else."""
    documented = inspect.getdoc(OfficialClient) or ""
    words = documented.replace(":paramtype", ":keyword").split(":keyword ")[1:]
    names = {word.split(":", 1)[0].split()[-1] for word in words}
    assert {"http_proxy", "user_agent", "try_timeout", "retry_mode"} <= names
    assert names <= ClientOptions.__annotations__.keys()
    own = {"self", "kwargs", "queue_name"}
    for method, options in (
        (OfficialClient.get_queue_sender, SenderOptions),
        (OfficialClient.get_queue_receiver, ReceiverOptions),
    ):
        assert inspect.signature(method).parameters.keys() - own <= options.__annotations__.keys()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"uamqp_transport": True}, ValueError, "an AMQP engine of its own"),
        ({"connection_verify": False, "ssl_context": None}, ValueError, "gives an ssl_context"),
        ({"try_timeout": 0}, ValueError, "try_timeout"),
        ({"try_timeout": float("inf")}, ValueError, "try_timeout"),
        ({"socket_timeout": -1}, ValueError, "socket_timeout"),
        ({"http_proxy": {}}, ValueError, "proxy_hostname"),
        ({"http_proxy": {"proxy_hostname": "p"}}, ValueError, "proxy_port"),
        ({"http_proxy": {"proxy_hostname": "p", "proxy_port": 0}}, ValueError, "65535"),
        ({"http_proxy": {"proxy_hostname": "p", "proxy_port": 1, "x": 1}}, ValueError, "no 'x'"),
        ({"transport_type": "Pigeon"}, ValueError, "Pigeon"),
        ({"retry_mode": "never"}, ValueError, "retry_mode"),
        ({"retry_totl": 3}, TypeError, "no option 'retry_totl'"),
    ],
)
def test_what_makes_no_sense_is_said(
    options: dict[str, Any], error: type[Exception], said: str
) -> None:
    for client in (ServiceBusClient, blocking.ServiceBusClient):
        with pytest.raises(error, match=said):
            client.from_connection_string(DEVELOPMENT, **options)


def test_what_a_sender_and_a_receiver_cannot_be_told() -> None:
    client = made(uamqp_transport=False, max_pending_messages=3)
    for make in (client.get_queue_sender, client.get_queue_receiver):
        with pytest.raises(TypeError, match="no option 'colour'"):
            make("q", colour="red")  # type: ignore[call-arg]  # that is what is tested
        with pytest.raises(ValueError, match="socket_timeout"):
            make("q", socket_timeout=0)
    with pytest.raises(ValueError, match="max_pending_bytes"):
        client.get_queue_sender("q", max_pending_bytes=0)
    with pytest.raises(ValueError, match="loop that is running"):
        AutoLockRenewer(loop=object())
    with pytest.raises(ValueError, match="max_workers"):
        blocking.AutoLockRenewer(max_workers=0)


@pytest.mark.parametrize(
    ("options", "is_websocket"),
    [
        ({}, False),
        ({"transport_type": TransportType.AmqpOverWebsocket}, True),
        ({"custom_endpoint_address": "gate.example"}, True),
        ({"custom_endpoint_address": "gate.example", "transport_type": "Amqp"}, False),
        ({"http_proxy": {"proxy_hostname": "p", "proxy_port": 8080}}, True),
        (
            {
                "http_proxy": {"proxy_hostname": "p", "proxy_port": 1},
                "transport_type": TransportType.Amqp,
            },
            True,
        ),
    ],
)
def test_what_amqp_travels_in(options: dict[str, Any], is_websocket: bool) -> None:
    assert made(**options).config.is_websocket is is_websocket


def test_no_password_is_shown() -> None:
    given = {"proxy_hostname": "p", "proxy_port": 1, "username": "u", "password": "secret"}
    assert "secret" not in repr(HttpProxy.read(given))


# --- what they do, against the engine


def test_one_try_takes_no_longer_than_it_may() -> None:
    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q")
        await sender.send_messages(ServiceBusMessage("first"))
        bench.broker.accepts = False
        with pytest.raises(OperationTimeoutError, match=r"a try took more than 0\.05 s"):
            await sender.send_messages(ServiceBusMessage("second"))
        # Tried twice, and given up.
        assert len(bench.broker.arrived) == 3
        bench.broker.answer_with = None
        with pytest.raises(OperationTimeoutError, match="a try took more"):
            await sender.cancel_scheduled_messages(1)
        assert len(bench.broker.requests) == 2
        # Who waits for messages does not try.
        receiver = ServiceBusReceiver(bench.connection, "q")
        assert await receiver.receive_messages(1, max_wait_time=0.2) == []
        await receiver.close()

    policy = RetryPolicy(retry_total=1, retry_backoff_factor=0, try_timeout=0.05)
    _run(body, retry=policy)


def test_a_broker_that_does_not_read_is_given_up() -> None:
    async def body(bench: Bench) -> None:
        sender = ServiceBusSender(bench.connection, "q")
        await sender.send_messages(ServiceBusMessage("first"))
        transport = bench.broker.transport
        assert transport is not None
        transport.pause_reading()
        bench.connection.allow_unread(0.02)
        # The larger of what was given holds.
        bench.connection.allow_unread(0.05)
        with pytest.raises(ServiceBusConnectionError, match=r"nothing for 0\.05 s"):
            await asyncio.gather(
                *(sender.send_messages(ServiceBusMessage(b"x" * 200_000)) for _ in range(40))
            )
        # Another one is found, which reads.
        await sender.send_messages(ServiceBusMessage("again"))
        assert len(bench.brokers) == 2

    _run(body)


def test_a_slow_broker_that_reads_again_is_kept() -> None:
    async def body(bench: Bench) -> None:
        bench.connection.allow_unread(30)
        sender = ServiceBusSender(bench.connection, "q")
        await sender.send_messages(ServiceBusMessage("first"))
        transport = bench.broker.transport
        assert transport is not None
        transport.pause_reading()
        sends = asyncio.gather(
            *(sender.send_messages(ServiceBusMessage(b"x" * 200_000)) for _ in range(40))
        )
        line = bench.connection._open_connection
        assert line is not None
        await until(lambda: line.transport._unread is not None)
        transport.resume_reading()
        await sends
        assert line.transport._unread is None

    _run(body)


def _run(body: Any, **options: Any) -> None:
    async def inside() -> None:
        async with Bench(**options) as bench, asyncio.timeout(20):
            await body(bench)

    asyncio.run(inside())
