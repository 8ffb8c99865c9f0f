"""The broker as readers ask it: blocking, patient, one connection for each process and namespace.

Spark keeps its Python workers, so that a connection is opened once and serves all batches that
come to the same process.
"""

import os
import random
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, final

from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.values.composites import RELEASED
from peeklock.client.blocking_loop import BlockingLoop, PerProcess
from peeklock.client.connections.config import ClientConfig
from peeklock.client.exceptions import ServiceBusError
from peeklock.client.receiving.receiver_link import ReceiverLink
from peeklock.spark.options import Access

T = TypeVar("T")
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0

_wires: Final[dict[tuple[int, Access, str], "EntityClient"]] = {}
_connections: Final[dict[tuple[str, str, str], PerProcess]] = {}


def connection(access: Access) -> PerProcess:
    """Return this process's connection to a namespace, for all that is asked or sent there."""
    key = (access.connection_string, access.transport, access.ca_file)
    if key not in _connections:
        config = ClientConfig.from_connection_string(
            access.connection_string,
            is_websocket=access.transport == "websocket",
            ca_file=access.ca_file or None,
            ca_option="caFile",
        )
        # Another thread may have been quicker.
        _connections.setdefault(key, PerProcess(config))
    return _connections[key]


@final
class EntityClient:
    """One entity, asked over the connection that this process has to its namespace."""

    def __init__(self, access: Access, entity: str) -> None:
        self._access = access
        self._entity = entity
        self._connection = connection(access)
        self._receivers: dict[bool, ReceiverLink] = {}

    @staticmethod
    def to(access: Access, entity: str) -> "EntityClient":
        """Return this process's way to an entity."""
        key = (os.getpid(), access, entity)
        wire = _wires.get(key)
        if wire is None:
            wire = _wires[key] = EntityClient(access, entity)
        return wire

    def manage(
        self,
        operation: str,
        arguments: dict[Any, Any],
        sub_queue: str = "",
        *,
        is_repeatable: bool = True,
    ) -> dict[Any, Any]:
        """Ask the management node; what may pass and be repeated is asked until the deadline."""
        entity = self._entity + sub_queue
        if not is_repeatable:
            return self._manage(entity, operation, arguments)
        return patiently(lambda: self._manage(entity, operation, arguments), self._access)

    def _manage(self, entity: str, operation: str, arguments: dict[Any, Any]) -> dict[Any, Any]:
        return BlockingLoop.of_this_process().run(
            self._connection.get().manage(
                entity, operation, arguments, within_s=self._access.timeout_ms / 1000
            )
        )

    def receive(self, count: int, wait_ms: int, *, deletes: bool) -> list[IncomingDelivery]:
        """Receive what comes within a while; what is not deleted is locked."""
        return patiently(lambda: self._receive(count, wait_ms, deletes), self._access)

    def _receive(self, count: int, wait_ms: int, deletes: bool) -> list[IncomingDelivery]:
        loop = BlockingLoop.of_this_process()
        link = self._receivers.get(deletes)
        if link is None or not link.is_open:
            link = self._receivers[deletes] = loop.run(
                self._connection.get().open_receiver(self._entity, deletes=deletes)
            )
        return loop.run(link.receive(count, wait_ms / 1000))

    def release(self, deliveries: list[IncomingDelivery]) -> None:
        """Give locked messages back as if they had not been handed out."""
        link = self._receivers[False]
        BlockingLoop.of_this_process().run(_awaited(link, deliveries))


async def _awaited(link: ReceiverLink, deliveries: list[IncomingDelivery]) -> None:
    await link.settle(deliveries, RELEASED)


def patiently(ask: Callable[[], T], access: Access) -> T:
    """Ask until there is an answer, a refusal that will not pass, or no time left.

    Spark does not try again: an error on the driver is the end of the query. A certificate that is
    not trusted stays so, and waiting would only hide it.
    """
    deadline = time.monotonic() + access.retry_deadline_ms / 1000
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except ServiceBusError as error:
            left_s = deadline - time.monotonic()
            is_distrusted = isinstance(error.__cause__, ssl.SSLCertVerificationError)
            if not error.is_retryable or is_distrusted or left_s <= 0:
                raise
        # Many tasks that lost the same broker should not all come back at once.
        time.sleep(min(left_s, pause_s * (0.5 + random.random())))
        pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
