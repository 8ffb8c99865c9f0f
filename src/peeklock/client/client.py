"""The client: one connection, and the senders, receivers and processors that share it."""

# ruff: noqa: ASYNC109  (parameters are called as they are in azure-servicebus)

import ssl
from collections.abc import AsyncIterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, final
from weakref import WeakSet

from peeklock.amqp.types import Int, Timestamp
from peeklock.client.batching import FLUSH_INTERVAL_S
from peeklock.client.config import ClientConfig
from peeklock.client.connection import ANSWERED_WITHIN_S, ClientConnection
from peeklock.client.constants import (
    SUB_QUEUE_PATHS,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
)
from peeklock.client.credentials import AnyCredential
from peeklock.client.message import instant_ms
from peeklock.client.processor import Handler, ServiceBusProcessor
from peeklock.client.receiver import ServiceBusReceiver
from peeklock.client.renewing import AutoLockRenewer
from peeklock.client.reporting import OnError
from peeklock.client.retrying import EXPONENTIAL, RetryPolicy, check_timeout, with_retries
from peeklock.client.sender import ServiceBusSender

SessionChoice: TypeAlias = str | ServiceBusSessionFilter | None

_SESSIONS_PAGE: Final = 100
# The instant that asks for sessions with messages, whenever they changed: the year 10000.
_ANY_TIME: Final = 253_402_300_800_000


class TransportType(StrEnum):
    """What AMQP travels in."""

    Amqp = "Amqp"
    AmqpOverWebsocket = "AmqpOverWebsocket"


@final
class ServiceBusClient:
    """The way to one namespace. All that it makes shares one connection, opened on demand."""

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: AnyCredential,
        *,
        use_tls: bool = True,
        transport_type: TransportType | str = TransportType.Amqp,
        custom_endpoint_address: str | None = None,
        connection_verify: str | Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
        retry_total: int = 3,
        retry_backoff_factor: float = 0.8,
        retry_backoff_max: float = 120.0,
        retry_mode: str = EXPONENTIAL,
        flush_interval: float = FLUSH_INTERVAL_S,
        max_in_flight: int | None = None,
        prefetch_count: int = 0,
    ) -> None:
        """The last three are what its senders and receivers have unless they are told otherwise."""
        config = ClientConfig.for_namespace(
            fully_qualified_namespace,
            credential,
            is_plain=not use_tls,
            is_websocket=TransportType(transport_type) is TransportType.AmqpOverWebsocket,
            custom_endpoint=custom_endpoint_address,
            ca_file=connection_verify,
            ssl_context=ssl_context,
            retry=RetryPolicy(
                retry_total=retry_total,
                retry_backoff_factor=retry_backoff_factor,
                retry_backoff_max=retry_backoff_max,
                retry_mode=retry_mode,
            ),
        )
        self._set_up(config, flush_interval, max_in_flight, prefetch_count)

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        transport_type: TransportType | str = TransportType.Amqp,
        custom_endpoint_address: str | None = None,
        connection_verify: str | Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
        retry_total: int = 3,
        retry_backoff_factor: float = 0.8,
        retry_backoff_max: float = 120.0,
        retry_mode: str = EXPONENTIAL,
        flush_interval: float = FLUSH_INTERVAL_S,
        max_in_flight: int | None = None,
        prefetch_count: int = 0,
    ) -> Self:
        """Make a client of a connection string, as the broker prints it and the portal shows it."""
        config = ClientConfig.from_connection_string(
            conn_str,
            is_websocket=TransportType(transport_type) is TransportType.AmqpOverWebsocket,
            custom_endpoint=custom_endpoint_address,
            ca_file=connection_verify,
            ssl_context=ssl_context,
            retry=RetryPolicy(
                retry_total=retry_total,
                retry_backoff_factor=retry_backoff_factor,
                retry_backoff_max=retry_backoff_max,
                retry_mode=retry_mode,
            ),
        )
        return cls.of(config, flush_interval, max_in_flight, prefetch_count)

    @classmethod
    def of(
        cls,
        config: ClientConfig,
        flush_interval: float = FLUSH_INTERVAL_S,
        max_in_flight: int | None = None,
        prefetch_count: int = 0,
    ) -> Self:
        """Make a client of what was read and checked already."""
        client = cls.__new__(cls)
        client._set_up(config, flush_interval, max_in_flight, prefetch_count)
        return client

    def _set_up(
        self,
        config: ClientConfig,
        flush_interval: float,
        max_in_flight: int | None,
        prefetch_count: int,
    ) -> None:
        self.config = config
        self.fully_qualified_namespace = config.host
        self._connection = ClientConnection(config)
        self._flush_interval = flush_interval
        self._max_in_flight = max_in_flight
        self._prefetch_count = prefetch_count
        self._made: WeakSet[ServiceBusSender | ServiceBusReceiver | ServiceBusProcessor] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- sending

    def get_queue_sender(
        self,
        queue_name: str,
        *,
        flush_interval: float | None = None,
        max_in_flight: int | None = None,
        on_error: OnError | None = None,
        link_properties: dict[Any, Any] | None = None,
        client_identifier: str | None = None,
    ) -> ServiceBusSender:
        """Make a sender for a queue; `on_error` is told of failures that nobody awaits."""
        sender = ServiceBusSender(
            self._connection,
            self._checked(queue_name),
            flush_interval=self._flush_interval if flush_interval is None else flush_interval,
            max_in_flight=self._max_in_flight if max_in_flight is None else max_in_flight,
            on_error=on_error,
            link_properties=link_properties,
            client_identifier=client_identifier,
        )
        self._made.add(sender)
        return sender

    def get_topic_sender(self, topic_name: str, **options: Any) -> ServiceBusSender:
        """Make a sender for a topic; the options are those of a queue's."""
        return self.get_queue_sender(topic_name, **options)

    # --- receiving

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        session_id: SessionChoice = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_wait_time: float | None = None,
        auto_lock_renewer: AutoLockRenewer | None = None,
        prefetch_count: int | None = None,
        flush_interval: float | None = None,
        on_error: OnError | None = None,
        client_identifier: str | None = None,
    ) -> ServiceBusReceiver:
        """Make a receiver for a queue, a sub queue of it, or one of its sessions."""
        receiver = ServiceBusReceiver(
            self._connection,
            _with_sub_queue(self._checked(queue_name), sub_queue, session_id),
            receive_mode=receive_mode,
            session_id=session_id,
            prefetch_count=self._prefetch_count if prefetch_count is None else prefetch_count,
            max_wait_time=max_wait_time,
            auto_lock_renewer=auto_lock_renewer,
            flush_interval=self._flush_interval if flush_interval is None else flush_interval,
            on_error=on_error,
            client_identifier=client_identifier,
        )
        self._made.add(receiver)
        return receiver

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> ServiceBusReceiver:
        """Make a receiver for a subscription; the options are those of a queue's."""
        return self.get_queue_receiver(subscription_path(topic_name, subscription_name), **options)

    # --- processing

    def get_queue_processor(
        self, queue_name: str, handler: Handler, **options: Any
    ) -> ServiceBusProcessor:
        """Make a processor for a queue; the options are those of ServiceBusProcessor."""
        processor = ServiceBusProcessor(self, queue_name, handler, **options)
        self._made.add(processor)
        return processor

    def get_subscription_processor(
        self, topic_name: str, subscription_name: str, handler: Handler, **options: Any
    ) -> ServiceBusProcessor:
        """Make a processor for a subscription."""
        path = subscription_path(topic_name, subscription_name)
        return self.get_queue_processor(path, handler, **options)

    # --- asking

    async def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str]:
        """List the sessions of a queue that have messages or a state, or whose state was set."""
        check_timeout(timeout)
        since = _ANY_TIME if state_updated_after is None else instant_ms(state_updated_after)
        skip = 0
        while True:
            arguments = {
                "last-updated-time": Timestamp(since),
                "skip": Int(skip),
                "top": Int(_SESSIONS_PAGE),
            }
            answer = await self.manage(
                queue_name,
                "com.microsoft:get-message-sessions",
                arguments,
                within_s=timeout or ANSWERED_WITHIN_S,
            )
            found = answer.get("sessions-ids", [])
            ids = [str(each) for each in getattr(found, "items", found)]
            for each in ids:
                yield each
            if len(ids) < _SESSIONS_PAGE:
                return
            skip += len(ids)

    def list_subscription_sessions(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> AsyncIterator[str]:
        """List the sessions of a subscription; the options are those of a queue's."""
        path = subscription_path(topic_name, subscription_name)
        return self.list_queue_sessions(path, **options)

    async def manage(
        self,
        entity: str,
        operation: str,
        arguments: dict[Any, Any],
        *,
        within_s: float = ANSWERED_WITHIN_S,
    ) -> dict[Any, Any]:
        """Ask an entity's management node for an operation by its full name."""
        return await with_retries(
            self.config.retry,
            lambda: self._connection.manage(entity, operation, arguments, within_s=within_s),
            within_s=within_s,
        )

    async def close(self) -> None:
        """Close all that was made here, and the connection; raise the first failure left over."""
        first: Exception | None = None
        # Processors first: they still settle by receivers of their own.
        made = sorted(self._made, key=lambda each: not isinstance(each, ServiceBusProcessor))
        for each in made:
            try:
                await each.close()
            except Exception as error:  # noqa: BLE001  the others are closed all the same
                first = first or error
        await self._connection.close()
        if first is not None:
            raise first

    def _checked(self, entity: str) -> str:
        named = self.config.entity_path
        if named and not f"{entity}/".lower().startswith(f"{named}/".lower()):
            raise ValueError(f"the connection string is for '{named}', not for '{entity}'")
        return entity


def subscription_path(topic_name: str, subscription_name: str) -> str:
    """Give the path of a subscription."""
    return f"{topic_name}/Subscriptions/{subscription_name}"


def _with_sub_queue(
    path: str, sub_queue: ServiceBusSubQueue | str | None, session_id: SessionChoice
) -> str:
    if sub_queue is None:
        return path
    if session_id is not None:
        raise ValueError("sub queues have no sessions")
    return path + SUB_QUEUE_PATHS[ServiceBusSubQueue(sub_queue)]
