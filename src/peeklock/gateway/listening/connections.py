"""The connections of each listener: made when their protocol is known, counted, and seen off."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, final

from peeklock.gateway.amqp.namespace_context import NamespaceContexts
from peeklock.gateway.amqp.protocol import AmqpProtocol
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.hosts import Hosts
from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.http.router import Node, Router
from peeklock.gateway.quotas.shared_limits import SharedLimits

if TYPE_CHECKING:
    from peeklock.gateway.http.protocol import Bounds, HttpProtocol

# What may wait in memory for one client that does not read. Deliveries stop long before; this is
# for answers to a client that asks and asks.
OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024
# How many grants are looked at in a row when rules were changed; others are served between. A
# connection costs as much as some of them.
_REVIEWED_AT_ONCE: Final = 512
_CONNECTION_GRANTS: Final = 8
# How long clients have to answer our close when the broker stops.
_FAREWELL_S_MAX: Final = 3.0


@final
class AmqpConnections:
    """All connections that speak AMQP, whichever port, TLS or WebSocket they came through."""

    def __init__(
        self,
        namespace_contexts: NamespaceContexts,
        *,
        shared_limits: SharedLimits | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> None:
        self.output_bytes_max = output_bytes_max
        self.shared_limits = shared_limits or SharedLimits()
        self._namespace_contexts = namespace_contexts
        self._connections: set[AmqpProtocol] = set()
        # Called before anybody is seen off.
        self.on_stopping: Callable[[], None] | None = None
        self._empty: asyncio.Future[None] | None = None
        # Who is still to be asked whether its rights have changed, and who is being asked.
        self._to_review: OrderedDict[AmqpProtocol, None] = OrderedDict()
        self._reviewing: AmqpProtocol | None = None
        self._grants_left = 0
        namespace_contexts.on_keys_changed = self._keys_changed

    def protocol(self) -> AmqpProtocol:
        """Make the protocol class of one connection."""
        return AmqpProtocol(self._namespace_contexts, self)

    async def stop(self) -> None:
        """Tell every client that the broker stops, and wait a little."""
        if self.on_stopping is not None:
            self.on_stopping()
        for connection in list(self._connections):
            connection.shut_down()
        if self._connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=_FAREWELL_S_MAX)
        for connection in list(self._connections):
            connection.abort("The client has not answered that the broker stops.")

    def cut_off(self, namespace: str, text: str) -> int:
        """End all connections of a namespace at once; answers how many there were."""
        found = [each for each in self._connections if each.namespace == namespace]
        for connection in found:
            connection.abort(text)
        return len(found)

    def look(self, ahead_ms: int = 0) -> None:
        """Let each connection act on what is due, because somebody has moved the clock; or on what
        would be after so much silence."""
        for connection in list(self._connections):
            connection.look(ahead_ms)

    @property
    def count(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    def told(self) -> Iterator[dict[str, object]]:
        """Tell of one connection after the other; some may come or go meanwhile."""
        for connection in list(self._connections):
            if told := connection.told():
                yield told

    def joined(self, connection: AmqpProtocol) -> None:
        """Take a connection in; places are counted by `SharedLimits`, and by each namespace for
        those with a token."""
        self._connections.add(connection)

    def _keys_changed(self) -> None:
        """Ask every connection, some at a time, whether its rights are still what they were."""
        is_under_way = self._reviewing is not None or len(self._to_review) > 0
        # Who waits already keeps its turn, however often rules are changed; who is being asked is
        # asked again.
        self._to_review.update(dict.fromkeys(self._connections))
        if self._to_review and not is_under_way:
            asyncio.get_running_loop().call_soon(self._review)

    def _review(self) -> None:
        left = _REVIEWED_AT_ONCE
        while left > 0 and (self._reviewing is not None or self._to_review):
            if self._reviewing is None:
                self._reviewing = self._to_review.popitem(last=False)[0]
                self._grants_left = self._reviewing.rights_changed()
                left -= _CONNECTION_GRANTS
            count = min(self._grants_left, max(left, 1))
            self._reviewing.review(count)
            self._grants_left -= count
            left -= count
            if not self._grants_left:
                self._reviewing = None
        if self._reviewing is not None or self._to_review:
            asyncio.get_running_loop().call_soon(self._review)

    def left(self, connection: AmqpProtocol) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        if self._empty is not None and not self._connections and not self._empty.done():
            self._empty.set_result(None)


@final
class HttpConnections:
    """All connections that speak HTTP; those that become WebSockets move to the AMQP ones."""

    def __init__(
        self,
        health: Health,
        nodes: dict[str, Node] | None = None,
        *,
        amqp: AmqpConnections | None = None,
        bounds: "Bounds | None" = None,
        pages: dict[str, Node] | None = None,
        hosts: Hosts | None = None,
        connection_quota: HttpConnectionQuota | None = None,
    ) -> None:
        """Beside health there are nodes, each under the first part of the path, and pages."""
        self._router = Router(health, nodes, pages)
        self._amqp = amqp
        self._bounds = bounds
        self._hosts = hosts
        # Not `or`: an `HttpConnectionQuota` without connections is false.
        self.connection_quota = (
            HttpConnectionQuota() if connection_quota is None else connection_quota
        )

    def protocol(self) -> "HttpProtocol":
        """Make the protocol class of one connection."""
        # Imported with the first connection, because most brokers never see one and all start.
        from peeklock.gateway.http.protocol import HttpProtocol

        tunnelled = None if self._amqp is None else self._amqp.protocol
        return HttpProtocol(
            self._router.route,
            self.connection_quota,
            bounds=self._bounds,
            hosts=self._hosts,
            tunnelled=tunnelled,
        )

    @property
    def count(self) -> int:
        """How many connections there are."""
        return len(self.connection_quota)

    def stop(self) -> None:
        """Close what there is, and what is worked on when it is answered."""
        for connection in self.connection_quota:
            connection.shut_down()
