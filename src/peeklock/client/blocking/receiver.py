"""Receiving for those who do not await: receivers, their sessions, and the renewing of locks."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final, Self, TypeAlias, cast, final

from peeklock.client.blocking.bridge import Bridge
from peeklock.client.blocking.transaction import ServiceBusTransaction, inner_of
from peeklock.client.received import ServiceBusReceivedMessage
from peeklock.client.receiver import ServiceBusReceiver as AwaitedReceiver
from peeklock.client.receiving.renewing import RENEWAL_DURATION_S, OnRenewFailure
from peeklock.client.receiving.renewing import AutoLockRenewer as AwaitedRenewer
from peeklock.client.session import ServiceBusSession as AwaitedSession

# Told of a lock that is not renewed any more, and why; in a thread of its own.
OnFailure: TypeAlias = Callable[[Any, Exception | None], None]


@final
class ServiceBusSession:
    """The session of one receiver."""

    def __init__(self, inner: AwaitedSession, bridge: Bridge) -> None:
        self.inner: Final = inner
        self._bridge = bridge

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
        """Return what was kept with the session, None when there is nothing."""
        return self._bridge.run(self.inner.get_state(timeout=timeout))

    def set_state(
        self, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        """Keep something with the session; None removes it."""
        self._bridge.run(self.inner.set_state(state, timeout=timeout))

    def renew_lock(self, *, timeout: float | None = None) -> datetime:
        """Hold the session for another lock duration; return until when."""
        return self._bridge.run(self.inner.renew_lock(timeout=timeout))


@final
class ServiceBusReceiver:
    """Receives from one queue, subscription or sub queue; can be iterated over."""

    def __init__(self, inner: AwaitedReceiver, bridge: Bridge) -> None:
        self.inner: Final = inner
        self._bridge = bridge

    def __enter__(self) -> Self:
        self._bridge.run(self.inner.open())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        try:
            return self._bridge.run(self.inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def next(self) -> ServiceBusReceivedMessage:
        """Return the next message, as iterating does."""
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
        session = None if inner is None else ServiceBusSession(inner, self._bridge)
        return cast(ServiceBusSession, session)

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Take up to so many messages: wait for the first (ever, unless told), then for no more."""
        return self._bridge.run(self.inner.receive_messages(max_message_count, max_wait_time))

    def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Look at messages without taking them, from a number on or behind those seen last."""
        return self._bridge.run(
            self.inner.peek_messages(
                max_message_count, sequence_number=sequence_number, timeout=timeout
            )
        )

    def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Take messages that were deferred, by their numbers."""
        return self._bridge.run(
            self.inner.receive_deferred_messages(sequence_numbers, timeout=timeout)
        )

    def complete_message(
        self,
        message: ServiceBusReceivedMessage,
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Remove the message: it is done. Within a transaction, when that is committed."""
        self._bridge.run(self.inner.complete_message(message, transaction=inner_of(transaction)))

    def complete_messages(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Remove messages, in one write; raises the first failure when all are answered."""
        self._bridge.run(self.inner.complete_messages(messages, transaction=inner_of(transaction)))

    def complete_soon(self, message: ServiceBusReceivedMessage) -> None:
        """Complete without waiting; failures go to `on_error`, or are raised by flush or close."""
        self._bridge.call(lambda: self.inner.complete_soon(message).is_taken)

    def abandon_message(
        self,
        message: ServiceBusReceivedMessage,
        properties: dict[str, Any] | None = None,
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Give the message back, for anybody to receive; it counts as a failed delivery."""
        self._bridge.run(
            self.inner.abandon_message(message, properties, transaction=inner_of(transaction))
        )

    def defer_message(
        self,
        message: ServiceBusReceivedMessage,
        properties: dict[str, Any] | None = None,
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Set the message aside, to be received by its number."""
        self._bridge.run(
            self.inner.defer_message(message, properties, transaction=inner_of(transaction))
        )

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
        properties: dict[str, Any] | None = None,
        *,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Move the message to the dead-letter queue, and say why."""
        self._bridge.run(
            self.inner.dead_letter_message(
                message,
                reason,
                error_description,
                properties,
                transaction=inner_of(transaction),
            )
        )

    def release_messages(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """Give messages back as if they had not been handed out; nothing is answered."""
        self._bridge.call(lambda: self.inner.release_messages(messages))

    def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None
    ) -> datetime:
        """Hold the message for another lock duration; return until when."""
        return self._bridge.run(self.inner.renew_message_lock(message, timeout=timeout))

    def delete_messages(
        self, max_message_count: int, *, before_enqueue_time_utc: datetime | None = None
    ) -> int:
        """Delete the oldest messages that nobody holds, in one call; return how many."""
        return self._bridge.run(
            self.inner.delete_messages(
                max_message_count, before_enqueue_time_utc=before_enqueue_time_utc
            )
        )

    def purge_messages(self, *, before_enqueue_time_utc: datetime | None = None) -> int:
        """Delete all messages that nobody holds, as far as they are there now; return how many."""
        return self._bridge.run(
            self.inner.purge_messages(before_enqueue_time_utc=before_enqueue_time_utc)
        )

    def flush(self) -> None:
        """Wait until all of `complete_soon` is settled; raise what failed."""
        self._bridge.finish(self.inner.flush())

    def close(self) -> None:
        """Settle what is held, give back what was prefetched, detach."""
        self._bridge.finish(self.inner.close())


@final
class AutoLockRenewer:
    """Renews the locks of the messages and sessions that are registered with it."""

    def __init__(
        self,
        max_lock_renewal_duration: float = RENEWAL_DURATION_S,
        on_lock_renew_failure: OnFailure | None = None,
        executor: Executor | None = None,
        max_workers: int | None = None,
    ) -> None:
        """Callbacks run in threads: those of an executor, or so many at most of their own.

        The renewing itself needs none. An executor that is given is not shut down by `close`.
        """
        self._bridge = Bridge()
        own = ThreadPoolExecutor(max_workers, "peeklock-renewal") if executor is None else None
        self._own_threads: Final = own
        self._threads: Final = own if executor is None else executor
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
        self._bridge.call(
            lambda: self.inner.register(receiver.inner, target, max_lock_renewal_duration, told)
        )

    def close(self, wait: bool = True) -> None:
        """Renew nothing any more; `wait` is for the official client's sake, it takes no time."""
        del wait
        self._bridge.run(self.inner.close())
        if self._own_threads is not None:
            # Not waited for: it may be a callback that closes.
            self._own_threads.shutdown(wait=False)

    def _in_a_thread(self, function: OnFailure) -> OnRenewFailure:
        """Let a callback be called where it may call the blocking client: not in the loop."""

        async def tell(renewable: Any, cause: Exception | None) -> None:
            if isinstance(renewable, AwaitedSession):
                renewable = ServiceBusSession(renewable, self._bridge)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, function, renewable, cause)

        return tell
