"""Clients of the gateway's ports: AMQP over anything that reads and writes, and WebSockets."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Protocol

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    RejectConnection,
    RejectData,
    Request,
)
from wsproto.events import (
    Event as WebSocketEvent,
)

from peeklock.amqp.connection import CLIENT, Connection
from peeklock.amqp.events import Event
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sasl import anonymous

PATH = "/$servicebus/websocket"


class Readable(Protocol):
    async def read(self, n: int = -1, /) -> bytes: ...


class Writable(Protocol):
    def write(self, data: bytes, /) -> None: ...

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


class Caller:
    """A client's machine on one end of a socket."""

    def __init__(self, reader: Readable, writer: Writable) -> None:
        self.reader = reader
        self.writer = writer
        self.machine = Connection(
            role=CLIENT,
            container_id="c",
            limits=ConnectionLimits(),
            now=0,
            hostname="localhost",
            credential=anonymous(),
        )
        self.machine.start()

    async def until(self, kind: type[Any]) -> Any:
        """Talk until an event of this kind comes."""
        while True:
            self.writer.write(self.machine.take_output())
            data = await self.reader.read(65_536)
            assert data, "the gateway closed"
            for event in self._events(data):
                if isinstance(event, kind):
                    self.writer.write(self.machine.take_output())
                    return event

    async def until_closed(self) -> None:
        """Read until the other end is closed."""
        while await self.reader.read(65_536):
            pass

    def _events(self, data: bytes) -> list[Event]:
        return self.machine.receive(data, 0)


class WebSocket:
    """A WebSocket that reads and writes as a stream does; each write is one message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.machine = WSConnection(ConnectionType.CLIENT)
        self._events: list[WebSocketEvent] = []

    async def open(self, path: str = PATH, *subprotocols: str) -> WebSocketEvent:
        """Ask for it, and give the answer."""
        names = list(subprotocols or ("AMQPWSB10",))
        self.send(Request(host="localhost", target=path, subprotocols=names))
        return await self.next(AcceptConnection, RejectConnection)

    def send(self, event: WebSocketEvent) -> None:
        self.writer.write(self.machine.send(event))

    async def next(self, *kinds: type[WebSocketEvent]) -> WebSocketEvent:
        """Read until an event of these kinds; the others are kept."""
        while True:
            for index, event in enumerate(self._events):
                if isinstance(event, kinds):
                    return self._events.pop(index)
            data = await self.reader.read(65_536)
            assert data, "the gateway closed"
            self.machine.receive_data(data)
            self._events += self.machine.events()

    async def rejected(self) -> str:
        """The body of a rejection."""
        text = b""
        while True:
            part = await self.next(RejectData)
            assert isinstance(part, RejectData)
            text += part.data
            if part.body_finished:
                return text.decode()

    async def read(self, n: int = -1, /) -> bytes:
        """What one message carries; nothing when the other side closes."""
        event = await self.next(BytesMessage, CloseConnection)
        if isinstance(event, BytesMessage):
            return bytes(event.data)
        self.send(event.response())  # type: ignore[attr-defined]  # it is a CloseConnection
        return b""

    def write(self, data: bytes, /) -> None:
        if data:
            self.send(BytesMessage(data=data))

    def close(self) -> None:
        self.writer.close()

    async def wait_closed(self) -> None:
        await self.writer.wait_closed()


def trusting(authority: str) -> ssl.SSLContext:
    """What a client that trusts an authority uses."""
    return ssl.create_default_context(cafile=authority)


async def dial(
    port: int, context: ssl.SSLContext | None = None, *, host: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, with TLS where there is a context."""
    return await asyncio.open_connection(host, port, ssl=context)
