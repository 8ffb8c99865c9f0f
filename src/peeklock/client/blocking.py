"""The client for those who do not await: scripts, threads, Spark tasks.

Each call runs in the process's one event loop and waits for it; see `BlockingLoop`.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Self, TypeAlias, TypeVar, cast, final

from peeklock.client import client as awaited
from peeklock.client.batch import ServiceBusMessageBatch as ServiceBusMessageBatch
from peeklock.client.blocking_loop import BlockingLoop as BlockingLoop
from peeklock.client.blocking_loop import PerProcess as PerProcess
from peeklock.client.client import TransportType as TransportType
from peeklock.client.config import ClientConfig
from peeklock.client.connection import ANSWERED_WITHIN_S
from peeklock.client.constants import NEXT_AVAILABLE_SESSION as NEXT_AVAILABLE_SESSION
from peeklock.client.constants import AmqpMessageBodyType as AmqpMessageBodyType
from peeklock.client.constants import ServiceBusMessageState as ServiceBusMessageState
from peeklock.client.constants import ServiceBusReceiveMode as ServiceBusReceiveMode
from peeklock.client.constants import ServiceBusSessionFilter as ServiceBusSessionFilter
from peeklock.client.constants import ServiceBusSubQueue as ServiceBusSubQueue
from peeklock.client.credentials import AnyCredential
from peeklock.client.message import ServiceBusMessage as ServiceBusMessage
from peeklock.client.outbound import Sendable
from peeklock.client.received import ServiceBusReceivedMessage as ServiceBusReceivedMessage
from peeklock.client.receiver import ServiceBusReceiver as AwaitedReceiver
from peeklock.client.renewing import RENEWAL_DURATION_S, OnRenewFailure
from peeklock.client.renewing import AutoLockRenewer as AwaitedRenewer
from peeklock.client.sender import ServiceBusSender as AwaitedSender
from peeklock.client.session import ServiceBusSession as AwaitedSession

T = TypeVar("T")
# Told of a lock that is not renewed any more, and why; in a thread of its own.
OnFailure: TypeAlias = Callable[[Any, Exception | None], None]


@final
class Waiting:
    """The way from a thread into the loop, for what was made in this process."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid: Final = os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that is awaited."""
        if os.getpid() != self._pid:
            work.close()
            raise RuntimeError("the client was made before the fork; make one in this process")
        return BlockingLoop.of_this_process().run(work)

    def call(self, function: Callable[[], T]) -> T:
        """Call something that needs to be in the loop."""

        async def called() -> T:
            return function()

        return self.run(called())


@final
class ServiceBusSender:
    """Sends to one queue or topic."""

    def __init__(self, inner: AwaitedSender, waiting: Waiting) -> None:
        self._inner = inner
        self._waiting = waiting

    def __enter__(self) -> Self:
        self._waiting.run(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def entity_name(self) -> str:
        """Where it sends to."""
        return self._inner.entity_name

    @property
    def client_identifier(self) -> str:
        """What its links are called after."""
        return self._inner.client_identifier

    def send_messages(
        self,
        message: Sendable | ServiceBusMessageBatch | Iterable[Sendable],
        *,
        timeout: float | None = None,
    ) -> None:
        """Send a message, a batch, or a list (as one batch); returns when it is accepted."""
        self._waiting.run(self._inner.send_messages(message, timeout=timeout))

    def send_soon(self, message: Sendable) -> None:
        """Send without waiting; a failure goes to `on_error`, or is raised by flush or close."""
        self._waiting.call(lambda: self._inner.send_soon(message).is_taken)

    def flush(self) -> None:
        """Wait until all of `send_soon` has an outcome; raise what failed."""
        self._waiting.run(self._inner.flush())

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Make a batch as large as the entity takes, or smaller."""
        return self._waiting.run(self._inner.create_message_batch(max_size_in_bytes))

    def schedule_messages(
        self,
        messages: Sendable | Iterable[Sendable],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
    ) -> list[int]:
        """Let messages be handed out from a time on; gives the numbers to cancel them by."""
        return self._waiting.run(
            self._inner.schedule_messages(messages, schedule_time_utc, timeout=timeout)
        )

    def cancel_scheduled_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> None:
        """Take scheduled messages back, if they have not been handed out yet."""
        self._waiting.run(self._inner.cancel_scheduled_messages(sequence_numbers, timeout=timeout))

    def close(self) -> None:
        """Send what is held, detach, and raise what failed and nobody was told of."""
        self._waiting.run(self._inner.close())


@final
class ServiceBusSession:
    """The session of one receiver."""

    def __init__(self, inner: AwaitedSession, waiting: Waiting) -> None:
        self.inner: Final = inner
        self._waiting = waiting

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.inner.session_id

    @property
    def locked_until_utc(self) -> datetime:
        """Until when nobody else can have the session."""
        return self.inner.locked_until_utc

    @property
    def auto_renew_error(self) -> Exception | None:
        """Why the lock is not renewed any more, where a renewer was to do it."""
        return self.inner.auto_renew_error

    def get_state(self, *, timeout: float | None = None) -> bytes | None:
        """Give what was kept with the session, None when there is nothing."""
        return self._waiting.run(self.inner.get_state(timeout=timeout))

    def set_state(
        self, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Keep something with the session; None removes it."""
        self._waiting.run(self.inner.set_state(state, timeout=timeout))

    def renew_lock(self, *, timeout: float | None = None) -> datetime:
        """Hold the session for another lock duration; gives until when."""
        return self._waiting.run(self.inner.renew_lock(timeout=timeout))


@final
class ServiceBusReceiver:
    """Receives from one queue, subscription or sub queue; can be iterated over."""

    def __init__(self, inner: AwaitedReceiver, waiting: Waiting) -> None:
        self.inner: Final = inner
        self._waiting = waiting

    def __enter__(self) -> Self:
        self._waiting.run(self.inner.open())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        try:
            return self._waiting.run(self.inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def next(self) -> ServiceBusReceivedMessage:
        """Give the next message, as iterating does."""
        return self.__next__()

    @property
    def entity_path(self) -> str:
        """Where it receives from."""
        return self.inner.entity_path

    @property
    def client_identifier(self) -> str:
        """What its links are called after."""
        return self.inner.client_identifier

    @property
    def session(self) -> ServiceBusSession:
        """The session that the receiver holds, once it is open; None if it was made for none."""
        inner: AwaitedSession | None = self.inner.session
        session = None if inner is None else ServiceBusSession(inner, self._waiting)
        return cast(ServiceBusSession, session)

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Take up to so many messages: wait for the first (ever, unless told), then for no more."""
        return self._waiting.run(self.inner.receive_messages(max_message_count, max_wait_time))

    def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Look at messages without taking them, from a number on or behind those seen last."""
        return self._waiting.run(
            self.inner.peek_messages(
                max_message_count, sequence_number=sequence_number, timeout=timeout
            )
        )

    def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Take messages that were deferred, by their numbers."""
        return self._waiting.run(
            self.inner.receive_deferred_messages(sequence_numbers, timeout=timeout)
        )

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Remove the message: it is done."""
        self._waiting.run(self.inner.complete_message(message))

    def complete_messages(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Remove messages, in one write; raises the first failure when all are answered."""
        self._waiting.run(self.inner.complete_messages(messages))

    def complete_soon(self, message: ServiceBusReceivedMessage) -> None:
        """Complete without waiting; failures go to `on_error`, or are raised by flush or close."""
        self._waiting.call(lambda: self.inner.complete_soon(message).is_taken)

    def abandon_message(
        self, message: ServiceBusReceivedMessage, properties: dict[str, Any] | None = None
    ) -> None:
        """Give the message back, for anybody to receive; it counts as a failed delivery."""
        self._waiting.run(self.inner.abandon_message(message, properties))

    def defer_message(
        self, message: ServiceBusReceivedMessage, properties: dict[str, Any] | None = None
    ) -> None:
        """Set the message aside, to be received by its number."""
        self._waiting.run(self.inner.defer_message(message, properties))

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        properties: dict[str, Any] | None = None,
    ) -> None:
        """Move the message to the dead-letter queue, and say why."""
        self._waiting.run(
            self.inner.dead_letter_message(message, reason, error_description, properties)
        )

    def release_messages(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give messages back as if they had not been handed out; nothing is answered."""
        self._waiting.call(lambda: self.inner.release_messages(messages))

    def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None
    ) -> datetime:
        """Hold the message for another lock duration; gives until when."""
        return self._waiting.run(self.inner.renew_message_lock(message, timeout=timeout))

    def delete_messages(
        self, max_message_count: int, *, before_enqueue_time_utc: datetime | None = None
    ) -> int:
        """Delete the oldest messages that nobody holds, in one call; tells how many."""
        return self._waiting.run(
            self.inner.delete_messages(
                max_message_count, before_enqueue_time_utc=before_enqueue_time_utc
            )
        )

    def purge_messages(self, *, before_enqueue_time_utc: datetime | None = None) -> int:
        """Delete all messages that nobody holds, as far as they are there now; tells how many."""
        return self._waiting.run(
            self.inner.purge_messages(before_enqueue_time_utc=before_enqueue_time_utc)
        )

    def flush(self) -> None:
        """Wait until all of `complete_soon` is settled; raise what failed."""
        self._waiting.run(self.inner.flush())

    def close(self) -> None:
        """Settle what is held, give back what was prefetched, detach."""
        self._waiting.run(self.inner.close())


@final
class AutoLockRenewer:
    """Renews the locks of the messages and sessions that are registered with it."""

    def __init__(
        self,
        max_lock_renewal_duration: float = RENEWAL_DURATION_S,
        on_lock_renew_failure: OnFailure | None = None,
        executor: Any = None,
        max_workers: int | None = None,
    ) -> None:
        """The last two are for the official client's sake: renewing needs no threads here."""
        del executor, max_workers
        self._waiting = Waiting()
        told = None if on_lock_renew_failure is None else self._in_a_thread(on_lock_renew_failure)
        self.inner: Final = AwaitedRenewer(max_lock_renewal_duration, told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def register(
        self,
        receiver: ServiceBusReceiver,
        renewable: ServiceBusReceivedMessage | ServiceBusSession,
        max_lock_renewal_duration: float | None = None,
        on_lock_renew_failure: OnFailure | None = None,
    ) -> None:
        """Keep a lock alive until it is settled, its receiver is closed, or its time is up."""
        target = renewable.inner if isinstance(renewable, ServiceBusSession) else renewable
        told = None if on_lock_renew_failure is None else self._in_a_thread(on_lock_renew_failure)
        self._waiting.call(
            lambda: self.inner.register(receiver.inner, target, max_lock_renewal_duration, told)
        )

    def close(self, wait: bool = True) -> None:
        """Renew nothing any more; `wait` is for the official client's sake, it takes no time."""
        del wait
        self._waiting.run(self.inner.close())

    def _in_a_thread(self, function: OnFailure) -> OnRenewFailure:
        """Let a callback be called where it may call the blocking client: not in the loop."""

        async def tell(renewable: Any, cause: Exception | None) -> None:
            if isinstance(renewable, AwaitedSession):
                renewable = ServiceBusSession(renewable, self._waiting)
            await asyncio.to_thread(function, renewable, cause)

        return tell


@final
class ServiceBusClient:
    """The way to one namespace, for threads; any number of them may share it."""

    def __init__(
        self, fully_qualified_namespace: str, credential: AnyCredential, **options: Any
    ) -> None:
        """The options are those of the awaited client."""
        self._inner = awaited.ServiceBusClient(fully_qualified_namespace, credential, **options)
        self._waiting = Waiting()

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Any) -> Self:
        """Make a client of a connection string; the options are those of the awaited client."""
        return cls._over(awaited.ServiceBusClient.from_connection_string(conn_str, **options))

    @classmethod
    def of(cls, config: ClientConfig, **options: Any) -> Self:
        """Make a client of what was read and checked already."""
        return cls._over(awaited.ServiceBusClient.of(config, **options))

    @classmethod
    def _over(cls, inner: awaited.ServiceBusClient) -> Self:
        client = cls.__new__(cls)
        client._inner = inner
        client._waiting = Waiting()
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def fully_qualified_namespace(self) -> str:
        """The host that the namespace is known by."""
        return self._inner.fully_qualified_namespace

    def get_queue_sender(self, queue_name: str, **options: Any) -> ServiceBusSender:
        """Make a sender for a queue."""
        return ServiceBusSender(self._inner.get_queue_sender(queue_name, **options), self._waiting)

    def get_topic_sender(self, topic_name: str, **options: Any) -> ServiceBusSender:
        """Make a sender for a topic."""
        return self.get_queue_sender(topic_name, **options)

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        auto_lock_renewer: AutoLockRenewer | None = None,
        **options: Any,
    ) -> ServiceBusReceiver:
        """Make a receiver for a queue, a sub queue of it, or one of its sessions."""
        renewer = None if auto_lock_renewer is None else auto_lock_renewer.inner
        inner = self._inner.get_queue_receiver(queue_name, auto_lock_renewer=renewer, **options)
        return ServiceBusReceiver(inner, self._waiting)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> ServiceBusReceiver:
        """Make a receiver for a subscription, a sub queue of it, or one of its sessions."""
        path = awaited.subscription_path(topic_name, subscription_name)
        return self.get_queue_receiver(path, **options)

    def list_queue_sessions(self, queue_name: str, **options: Any) -> list[str]:
        """List the sessions of a queue; the options are those of the awaited client."""

        async def listed() -> list[str]:
            found = self._inner.list_queue_sessions(queue_name, **options)
            return [each async for each in found]

        return self._waiting.run(listed())

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
        return self._waiting.run(
            self._inner.manage(entity, operation, arguments, within_s=within_s)
        )

    def close(self) -> None:
        """Close all that was made here, and the connection; raise the first failure left over."""
        self._waiting.run(self._inner.close())
