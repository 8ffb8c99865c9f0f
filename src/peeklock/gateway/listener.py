"""The listeners: they accept connections, count them, and see them off when the broker stops."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final, final

from peeklock.clock import Clock
from peeklock.gateway import logbook
from peeklock.gateway.amqp.door import Door
from peeklock.gateway.amqp.protocol import AmqpProtocol
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.router import Node, Router

if TYPE_CHECKING:
    from peeklock.gateway.http.protocol import HttpProtocol

_LOG: Final = logging.getLogger("peeklock.listeners")

# The service allows 5,000 connections to a namespace.
CONNECTIONS_MAX: Final = 5_000
# Connections beyond the limit are told so politely, up to this many; the rest is cut off.
_TURNED_AWAY_MAX: Final = 100
# What may wait in memory for one client that does not read. Deliveries stop long before; this is
# for answers to a client that asks and asks.
OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024
# How long clients have to answer our close when the broker stops.
_FAREWELL_S_MAX: Final = 3.0
_BACKLOG: Final = 1_024


@final
class AmqpListener:
    """Accepts AMQP connections on one address."""

    def __init__(
        self,
        door: Door,
        clock: Clock,
        *,
        connections_max: int = CONNECTIONS_MAX,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> None:
        self.output_bytes_max = output_bytes_max
        self._door = door
        self._clock = clock
        self._connections_max = connections_max
        self._connections: set[AmqpProtocol] = set()
        self._server: asyncio.Server | None = None
        self._empty: asyncio.Future[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; answers the port, which matters where 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, host, port, backlog=_BACKLOG)
        return _listening("amqp", self._server)

    async def stop(self) -> None:
        """Accept nothing more, tell every client that the broker stops, and wait a little."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.shut_down()
        if self._connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=_FAREWELL_S_MAX)
        for connection in list(self._connections):
            connection.abort()

    @property
    def connection_count(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    def joined(self, connection: AmqpProtocol) -> bool:
        """Take a connection in; answers whether there was room for it."""
        count = len(self._connections)
        self._connections.add(connection)
        if count >= self._connections_max + _TURNED_AWAY_MAX:
            connection.abort()
        return count < self._connections_max

    def left(self, connection: AmqpProtocol) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        if self._empty is not None and not self._connections and not self._empty.done():
            self._empty.set_result(None)

    def _protocol(self) -> AmqpProtocol:
        return AmqpProtocol(self._door, self._clock, self)


@final
class HttpListener:
    """Accepts HTTP connections on one address."""

    def __init__(self, health: Health, nodes: dict[str, Node] | None = None) -> None:
        """Beside health there are nodes, each under the first part of the path."""
        self._router = Router(health, nodes)
        self._connections: set[HttpProtocol] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; answers the port, which matters where 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, host, port, backlog=_BACKLOG)
        return _listening("http", self._server)

    async def stop(self) -> None:
        """Accept nothing more and close what there is."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()

    def _protocol(self) -> "HttpProtocol":
        # Imported with the first connection, because most brokers never see one and all start.
        from peeklock.gateway.http.protocol import HttpProtocol

        return HttpProtocol(self._router.route, self._connections)


def _listening(door: str, server: asyncio.Server) -> int:
    addresses = [bound.getsockname()[:2] for bound in server.sockets]
    for host, port in addresses:
        _LOG.info("%s", logbook.line("listening", door=door, host=host, port=port))
    first: int = addresses[0][1]
    return first
