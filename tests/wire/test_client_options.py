"""Options of our own client that need a real broker: proxies, traces, credentials, endpoints."""

import asyncio
import base64
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from peeklock.client import ServiceBusClient, ServiceBusMessage
from peeklock.client.exceptions import ServiceBusCommunicationError
from tests.wire import sas
from tests.wire.broker_process import BrokerProcess, free_port
from tests.wire.entities import ROOT_KEY, ROOT_RULE
from tests.wire.own_client import run_with, take_one

ONCE: dict[str, Any] = {"retry_total": 0}


class ConnectProxy:
    """An HTTP proxy that connects whoever knows the password."""

    def __init__(self, *, answer: bytes | None = None) -> None:
        self.port = 0
        self.asked: list[str] = []
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def option(self, password: str = "open sesame") -> dict[str, Any]:
        return {
            "proxy_hostname": "127.0.0.1",
            "proxy_port": self.port,
            "username": "ali",
            "password": password,
        }

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.split("\r\n", 1)[0])
        secret = base64.b64encode(b"ali:open sesame").decode()
        if self._answer is not None or f"Proxy-Authorization: Basic {secret}" not in head:
            refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
            writer.write(self._answer or refusal)
            writer.close()
            return
        host, _, port = head.split(" ")[1].rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.ensure_future(_carry(source, sink))
            self._tasks.add(task)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()


async def round_trip(client: ServiceBusClient, queue: str) -> None:
    async with (
        client.get_queue_sender(queue) as sender,
        client.get_queue_receiver(queue) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("x", partition_key="k"))
        await receiver.complete_message(await take_one(receiver))


def test_a_proxy(broker: BrokerProcess, queue: str) -> None:
    async def test() -> None:
        async with (
            ConnectProxy() as proxy,
            ServiceBusClient.from_connection_string(
                broker.connection_string, http_proxy=proxy.option()
            ) as client,
        ):
            await round_trip(client, queue)
            # By WebSocket, as the official client does it.
            port = client.config.port
            assert proxy.asked == [f"CONNECT localhost:{port} HTTP/1.1"]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("answer", "password", "said"),
    [
        (None, "wrong", "refuses: HTTP/1.1 407 Proxy Authentication Required"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "open sesame", "403 Forbidden"),
        (b"220 mail.example ESMTP\r\n\r\n", "open sesame", "is no proxy"),
        (b"HTTP/1.1 200", "open sesame", "is no proxy"),
    ],
)
def test_a_proxy_that_does_not_connect(
    broker: BrokerProcess, queue: str, answer: bytes | None, password: str, said: str
) -> None:
    async def test() -> None:
        async with (
            ConnectProxy(answer=answer) as proxy,
            ServiceBusClient.from_connection_string(
                broker.connection_string, http_proxy=proxy.option(password), **ONCE
            ) as client,
        ):
            with pytest.raises(ServiceBusCommunicationError, match=said):
                await round_trip(client, queue)

    asyncio.run(test())


def test_a_proxy_that_is_not_there(broker: BrokerProcess, queue: str) -> None:
    async def test() -> None:
        proxy = {"proxy_hostname": "localhost", "proxy_port": free_port()}
        async with ServiceBusClient.from_connection_string(
            broker.connection_string, http_proxy=proxy, **ONCE
        ) as client:
            with pytest.raises(ServiceBusCommunicationError, match="cannot be reached"):
                await round_trip(client, queue)

    asyncio.run(test())


def test_frames_are_logged_without_what_messages_contain(
    broker: BrokerProcess, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "peeklock.client.frames")

    async def test(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("a word between us", partition_key="k"))

    run_with(broker.connection_string, test, logging_enable=True, user_agent="shop/1.0")
    assert " > AMQP 3.1.0.0" in caplog.text
    assert "> channel 0 Open(" in caplog.text
    assert "shop/1.0 peeklock/" in caplog.text
    assert "< channel 1 Attach(" in caplog.text
    assert "Transfer(" in caplog.text
    assert "< channel 0 Close(" in caplog.text
    assert "a word between us" not in caplog.text
    assert "SharedAccessSignature" not in caplog.text
    assert "no frame" not in caplog.text
    caplog.clear()
    run_with(broker.connection_string, test)
    assert caplog.text == ""


@pytest.mark.parametrize(
    "credential",
    [
        lambda _: AzureNamedKeyCredential(ROOT_RULE, ROOT_KEY),
        lambda queue: AzureSasCredential(sas.token(f"sb://localhost/{queue}")),
    ],
    ids=["a named key", "a signature"],
)
def test_credentials_of_azure_core(
    broker: BrokerProcess, queue: str, credential: Callable[[str], Any]
) -> None:
    async def test() -> None:
        async with ServiceBusClient(
            f"localhost:{broker.amqp_port}", credential(queue), use_tls=False, try_timeout=20
        ) as client:
            await round_trip(client, queue)

    asyncio.run(test())


def test_another_endpoint(broker: BrokerProcess, queue: str) -> None:
    """By WebSocket unless it is said otherwise, as the official client does it."""

    async def test(client: ServiceBusClient) -> None:
        assert client.config.is_websocket
        await round_trip(client, queue)

    text = broker.connection_string.replace(f":{broker.amqp_port}", ":1")
    run_with(text, test, custom_endpoint_address=f"sb://127.0.0.1:{broker.amqp_port}")
