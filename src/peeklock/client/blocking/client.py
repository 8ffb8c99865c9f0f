"""The client for those who do not await: one connection, and what is made of it."""

from typing import Any, Self, Unpack, final
from weakref import WeakSet

from peeklock.client import client as awaited
from peeklock.client.blocking.bridge import Bridge
from peeklock.client.blocking.processor import Handler, ServiceBusProcessor
from peeklock.client.blocking.receiver import AutoLockRenewer, ServiceBusReceiver
from peeklock.client.blocking.sender import ServiceBusSender
from peeklock.client.blocking.transaction import ServiceBusTransaction
from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.connection import ANSWERED_WITHIN_S
from peeklock.client.credentials import AnyCredential
from peeklock.client.options import ClientOptions, Defaults, ProcessorOptions, SenderOptions
from peeklock.client.reporting import OnError


@final
class ServiceBusClient:
    """The way to one namespace, for threads; any number of them may share it."""

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: AnyCredential,
        *,
        use_tls: bool = True,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Name a namespace and who the client is; all is as for the awaited client."""
        self._set_up(
            awaited.ServiceBusClient(
                fully_qualified_namespace, credential, use_tls=use_tls, **options
            )
        )

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Unpack[ClientOptions]) -> Self:
        """Make a client of a connection string; the options are those of the awaited client.

        A string that cannot be read raises ValueError.

            with ServiceBusClient.from_connection_string(BUS) as client:
                ...
        """
        return cls._over(awaited.ServiceBusClient.from_connection_string(conn_str, **options))

    @classmethod
    def of(cls, config: ClientConfig, defaults: Defaults | None = None) -> Self:
        """Make a client of what was read and checked already."""
        return cls._over(awaited.ServiceBusClient.of(config, defaults))

    @classmethod
    def _over(cls, inner: awaited.ServiceBusClient) -> Self:
        client = cls.__new__(cls)
        client._set_up(inner)
        return client

    def _set_up(self, inner: awaited.ServiceBusClient) -> None:
        self._inner = inner
        self._bridge = Bridge()
        self._processors: WeakSet[ServiceBusProcessor] = WeakSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def fully_qualified_namespace(self) -> str:
        """The host that the namespace is known by."""
        return self._inner.fully_qualified_namespace

    def get_queue_sender(
        self, queue_name: str, **options: Unpack[SenderOptions]
    ) -> ServiceBusSender:
        """Make a sender for a queue; `on_error` is called in a thread.

        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("a cup of tea"))
        """
        options = {**options, "on_error": self._bridge.told(options.get("on_error"))}
        return ServiceBusSender(self._inner.get_queue_sender(queue_name, **options), self._bridge)

    def get_topic_sender(
        self, topic_name: str, **options: Unpack[SenderOptions]
    ) -> ServiceBusSender:
        """Make a sender for a topic; the options are those of a queue's."""
        return self.get_queue_sender(topic_name, **options)

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        auto_lock_renewer: AutoLockRenewer | None = None,
        on_error: OnError | None = None,
        **options: Any,
    ) -> ServiceBusReceiver:
        """Make a receiver for a queue, a sub queue of it, or one of its sessions.

        The other options are those of the awaited client; `on_error` is called in a thread.

            with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
                for message in receiver:
                    receiver.complete_message(message)
        """
        renewer = None if auto_lock_renewer is None else auto_lock_renewer.inner
        inner = self._inner.get_queue_receiver(
            queue_name,
            auto_lock_renewer=renewer,
            on_error=self._bridge.told(on_error),
            **options,
        )
        return ServiceBusReceiver(inner, self._bridge)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> ServiceBusReceiver:
        """Make a receiver for a subscription, a sub queue of it, or one of its sessions."""
        path = awaited.subscription_path(topic_name, subscription_name)
        return self.get_queue_receiver(path, **options)

    def get_queue_processor(
        self, queue_name: str, handler: Handler, **options: Unpack[ProcessorOptions]
    ) -> ServiceBusProcessor:
        """Make a processor for a queue: `handler(message, receiver)` is called in a thread.

        ValueError says that an option makes no sense.

            with client.get_queue_processor("orders", handle, max_concurrent_calls=8):
                threading.Event().wait()
        """
        given: ProcessorOptions = {
            **options,
            "on_error": self._bridge.told(options.get("on_error")),
        }
        processor = ServiceBusProcessor(
            self._bridge,
            handler,
            lambda awaitable: self._inner.get_queue_processor(queue_name, awaitable, **given),
        )
        self._processors.add(processor)
        return processor

    def get_subscription_processor(
        self,
        topic_name: str,
        subscription_name: str,
        handler: Handler,
        **options: Unpack[ProcessorOptions],
    ) -> ServiceBusProcessor:
        """Make a processor for a subscription; the options are those of a queue's."""
        path = awaited.subscription_path(topic_name, subscription_name)
        return self.get_queue_processor(path, handler, **options)

    def transaction(self) -> ServiceBusTransaction:
        """Make a transaction: what is done in it happens together, or not at all.

        Messages for several entities need a client that was made with
        `enable_cross_entity_transactions=True`, or a sender that was made with `via`.

            with client.transaction() as transaction:
                sender.send_messages(cooked, transaction=transaction)
                receiver.complete_message(raw, transaction=transaction)
        """
        return ServiceBusTransaction(self._inner.transaction(), self._bridge)

    def list_queue_sessions(self, queue_name: str, **options: Any) -> list[str]:
        """List the sessions of a queue; the options are those of the awaited client."""

        async def listed() -> list[str]:
            found = self._inner.list_queue_sessions(queue_name, **options)
            return [each async for each in found]

        return self._bridge.run(listed())

    def list_subscription_sessions(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> list[str]:
        """List the sessions of a subscription; the options are those of the awaited client."""
        path = awaited.subscription_path(topic_name, subscription_name)
        return self.list_queue_sessions(path, **options)

    def manage(
        self,
        entity: str,
        operation: str,
        arguments: dict[Any, Any],
        *,
        within_s: float = ANSWERED_WITHIN_S,
    ) -> dict[Any, Any]:
        """Ask an entity's management node for an operation by its full name."""
        return self._bridge.run(self._inner.manage(entity, operation, arguments, within_s=within_s))

    def close(self) -> None:
        """Close all that was made here, and the connection; raise the first failure left over."""
        for processor in list(self._processors):
            processor.check_caller()
        first: Exception | None = None
        for processor in list(self._processors):
            try:
                processor.close()
            except Exception as error:  # noqa: BLE001  the others are closed all the same
                first = first or error
        self._bridge.finish(self._inner.close())
        if first is not None:
            raise first
