"""The client: one connection, and the senders, receivers and processors that share it."""

# ruff: noqa: ASYNC109  (parameters are called as they are in azure-servicebus)

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Final, Self, Unpack, final
from weakref import WeakSet

from peeklock.amqp.values.types import Int, Timestamp
from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.connection import ANSWERED_WITHIN_S, ClientConnection
from peeklock.client.connections.retrying import check_timeout, with_retries
from peeklock.client.constants import (
    SUB_QUEUE_PATHS,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from peeklock.client.credentials import AnyCredential
from peeklock.client.message import instant_ms
from peeklock.client.options import (
    ClientOptions,
    Defaults,
    ProcessorOptions,
    ReceiverOptions,
    SenderOptions,
    SessionChoice,
    check_known,
    connection_options,
    defaults,
    or_default,
)
from peeklock.client.processor import Handler, ServiceBusProcessor
from peeklock.client.receiver import ServiceBusReceiver
from peeklock.client.sender import ServiceBusSender
from peeklock.client.transactions import ServiceBusTransaction

_SESSIONS_PAGE: Final = 100
# The instant that asks for sessions with messages, whenever they changed: the year 10000.
_ANY_TIME: Final = 253_402_300_800_000


@final
class ServiceBusClient:
    """The way to one namespace. All that it makes shares one connection, opened on demand."""

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: AnyCredential,
        *,
        use_tls: bool = True,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Name a namespace and who the client is; nothing is connected before it is needed.

        Parameters:
            fully_qualified_namespace: `name.servicebus.windows.net` say.
            credential: one of `azure-identity` (asynchronous or not), an `AzureSasCredential`, an
                `AzureNamedKeyCredential`, or one of `peeklock.client.credentials`.
            use_tls: whether to encrypt.
            options: docs/reference/client.md lists them.

        Raises:
            ValueError: the host or an option makes no sense.

        Example:
            async with ServiceBusClient("name.servicebus.windows.net", credential) as client:
                ...
        """
        config = ClientConfig.for_namespace(
            fully_qualified_namespace,
            credential,
            is_plain=not use_tls,
            **connection_options(options),
        )
        self._set_up(config, defaults(options))

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Unpack[ClientOptions]) -> Self:
        """Return a client for a connection string, as the broker prints it and the portal shows it.

        Parameters:
            conn_str: `Endpoint=sb://...;SharedAccessKeyName=...;SharedAccessKey=...`.
            options: docs/reference/client.md lists them.

        Raises:
            ValueError: the string cannot be read, or an option makes no sense.

        Example:
            async with ServiceBusClient.from_connection_string(BUS, retry_total=5) as client:
                ...
        """
        config = ClientConfig.from_connection_string(conn_str, **connection_options(options))
        return cls.of(config, defaults(options))

    @classmethod
    def of(cls, config: ClientConfig, defaults: Defaults | None = None) -> Self:
        """Make a client of what was read and checked already."""
        client = cls.__new__(cls)
        client._set_up(config, Defaults() if defaults is None else defaults)
        return client

    def _set_up(self, config: ClientConfig, defaults: Defaults) -> None:
        self.config = config
        self.fully_qualified_namespace = config.host
        self._connection = ClientConnection(config)
        self._defaults = defaults
        self._made: WeakSet[ServiceBusSender | ServiceBusReceiver | ServiceBusProcessor] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- sending

    def get_queue_sender(
        self, queue_name: str, **options: Unpack[SenderOptions]
    ) -> ServiceBusSender:
        """Return a sender for a queue.

        Parameters:
            queue_name: the queue's path.
            options: those of `SenderOptions`; `on_error` is told of failures that nobody awaits.

        Raises:
            ValueError: an option makes no sense, or the connection string is for another entity.

        Example:
            async with client.get_queue_sender("orders", max_pending_messages=1_000) as sender:
                await sender.send_messages(ServiceBusMessage("a cup of tea"))
        """
        check_known(options, SenderOptions)
        self._connection.allow_unread(options.get("socket_timeout"))
        ours = self._defaults
        sender = ServiceBusSender(
            self._connection,
            self._checked(queue_name),
            flush_interval=or_default(options.get("flush_interval"), ours.flush_interval),
            max_in_flight=or_default(options.get("max_in_flight"), ours.max_in_flight),
            max_pending_messages=or_default(
                options.get("max_pending_messages"), ours.max_pending_messages
            ),
            max_pending_bytes=or_default(options.get("max_pending_bytes"), ours.max_pending_bytes),
            on_error=options.get("on_error"),
            link_properties=options.get("link_properties"),
            client_identifier=options.get("client_identifier"),
            via=options.get("via"),
        )
        self._made.add(sender)
        return sender

    def get_topic_sender(
        self, topic_name: str, **options: Unpack[SenderOptions]
    ) -> ServiceBusSender:
        """Return a sender for a topic.

        Parameters:
            topic_name: the topic's path.
            options: those of a queue's sender.
        """
        return self.get_queue_sender(topic_name, **options)

    # --- receiving

    def get_queue_receiver(
        self, queue_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """Return a receiver for a queue, a sub queue of it, or one of its sessions.

        Parameters:
            queue_name: the queue's path.
            options: those of `ReceiverOptions`.

        Raises:
            ValueError: an option makes no sense, or the connection string is for another entity.

        Example:
            receiver = client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION)
        """
        check_known(options, ReceiverOptions)
        self._connection.allow_unread(options.get("socket_timeout"))
        ours = self._defaults
        session_id = options.get("session_id")
        receiver = ServiceBusReceiver(
            self._connection,
            _with_sub_queue(self._checked(queue_name), options.get("sub_queue"), session_id),
            receive_mode=options.get("receive_mode", ServiceBusReceiveMode.PEEK_LOCK),
            session_id=session_id,
            prefetch_count=or_default(options.get("prefetch_count"), ours.prefetch_count),
            max_wait_time=options.get("max_wait_time"),
            auto_lock_renewer=options.get("auto_lock_renewer"),
            flush_interval=or_default(options.get("flush_interval"), ours.flush_interval),
            on_error=options.get("on_error"),
            client_identifier=options.get("client_identifier"),
        )
        self._made.add(receiver)
        return receiver

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """Return a receiver for a subscription.

        Parameters:
            topic_name: the topic's path.
            subscription_name: the subscription's name.
            options: those of a queue's receiver.
        """
        return self.get_queue_receiver(subscription_path(topic_name, subscription_name), **options)

    # --- processing

    def get_queue_processor(
        self, queue_name: str, handler: Handler, **options: Unpack[ProcessorOptions]
    ) -> ServiceBusProcessor:
        """Return a processor for a queue.

        Parameters:
            queue_name: the queue's path.
            handler: `handler(message, receiver)` is awaited for each message.
            options: those of `ProcessorOptions`.

        Raises:
            ValueError: an option makes no sense.

        Example:
            async with client.get_queue_processor("orders", handle, max_concurrent_calls=20):
                await asyncio.Event().wait()
        """
        processor = ServiceBusProcessor(self, self._checked(queue_name), handler, **options)
        self._made.add(processor)
        return processor

    def get_subscription_processor(
        self,
        topic_name: str,
        subscription_name: str,
        handler: Handler,
        **options: Unpack[ProcessorOptions],
    ) -> ServiceBusProcessor:
        """Return a processor for a subscription.

        Parameters:
            topic_name: the topic's path.
            subscription_name: the subscription's name.
            handler: `handler(message, receiver)` is awaited for each message.
            options: those of a queue's processor.
        """
        path = subscription_path(topic_name, subscription_name)
        return self.get_queue_processor(path, handler, **options)

    # --- transactions

    def transaction(self) -> ServiceBusTransaction:
        """Return a transaction: what is done in it happens together, or not at all.

        It belongs to one entity: where something is settled, scheduled or cancelled, or else where
        the first message goes. Messages for others need a client that was made with
        `enable_cross_entity_transactions=True`, or a sender that was made with `via`.

        Example:
            async with client.transaction() as transaction:
                await sender.send_messages(cooked, transaction=transaction)
                await receiver.complete_message(raw, transaction=transaction)
        """
        return ServiceBusTransaction(self._connection)

    # --- asking

    async def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str]:
        """List the sessions of a queue that have messages or a state, or whose state was set.

        Parameters:
            queue_name: the queue's path.
            state_updated_after: only those whose state was set after that time.
            timeout: seconds for each answer.

        Example:
            names = [name async for name in client.list_queue_sessions("orders")]
        """
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
        """List the sessions of a subscription.

        Parameters:
            topic_name: the topic's path.
            subscription_name: the subscription's name.
            options: those of a queue's list.
        """
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
        """Return what an entity's management node answers.

        Parameters:
            entity: the entity's path.
            operation: its full name, `com.microsoft:peek-message` say.
            arguments: the map that the operation takes.
            within_s: seconds for the answer.

        Raises:
            ServiceBusError: the node refused.
        """
        return await with_retries(
            self.config.retry,
            lambda: self._connection.manage(entity, operation, arguments, within_s=within_s),
            within_s=within_s,
        )

    async def close(self) -> None:
        """Close all that was made here, and the connection; raise the first failure left over.

        A handler of a processor cannot call it, because it would wait for itself: RuntimeError.
        """
        first: Exception | None = None
        # Processors first: they still settle by receivers of their own.
        made = sorted(self._made, key=lambda each: not isinstance(each, ServiceBusProcessor))
        for each in made:
            if isinstance(each, ServiceBusProcessor):
                each.check_caller()
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
    """Return the path of a subscription."""
    return f"{topic_name}/Subscriptions/{subscription_name}"


def _with_sub_queue(
    path: str, sub_queue: ServiceBusSubQueue | str | None, session_id: SessionChoice
) -> str:
    if sub_queue is None:
        return path
    if session_id is not None:
        raise ValueError("sub queues have no sessions")
    return path + SUB_QUEUE_PATHS[ServiceBusSubQueue(sub_queue)]
