"""Both flavours of the Python client behind one face, so that each test body is written once.

The synchronous client is used as it is. The asynchronous one runs in a loop on its own thread;
`Blocking` waits for each of its coroutines, so a test calls it as it calls the other one. Nothing
in the clients is replaced.
"""

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Literal, TypeVar, cast

from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import AutoLockRenewer as AsyncAutoLockRenewer
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.aio import ServiceBusReceiver as AsyncServiceBusReceiver
from azure.servicebus.aio import ServiceBusSender as AsyncServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from tests.wire.entities import PARTITIONED

Flavour = Literal["sync", "async"]
FLAVOURS: Final[tuple[Flavour, ...]] = ("sync", "async")
# A coroutine that takes longer than this hangs, whatever it waits for.
CALL_WITHIN_S: Final = 100.0
RECEIVE_WITHIN_S: Final = 20.0
# The lower bits of a sequence number; those above are its partition's.
PLACE: Final = (1 << 48) - 1
# A key whose home is the first partition, where numbers are small: this client cannot send again
# what it received with a number above 31 bits.
FIRST_HOME: Final = "home"

T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own, and the way to it for all others."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function inside the loop, await what it gives if that can be awaited."""

        async def inside() -> Any:
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(inside(), self.loop).result(CALL_WITHIN_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Blocking:
    """An asynchronous client object with the manners of a synchronous one."""

    def __init__(self, target: Any, loop: LoopThread) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            plain = [arg._target if isinstance(arg, Blocking) else arg for arg in args]
            return self._dress(self._loop.call(attribute, *plain, **kwargs))

        return call

    def _dress(self, result: Any) -> Any:
        if isinstance(result, AsyncServiceBusSender | AsyncServiceBusReceiver):
            return Blocking(result, self._loop)
        return result

    def __enter__(self) -> "Blocking":
        self._loop.call(self._target.__aenter__)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call(self._target.__aexit__, *error)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._target.__aiter__()
        while True:
            try:
                yield self._loop.call(iterator.__anext__)
            except StopAsyncIteration:
                return


class Bus:
    """A client of one flavour, connected to one broker."""

    def __init__(
        self, flavour: Flavour, connection_string: str, loop: LoopThread, **options: Any
    ) -> None:
        self.flavour = flavour
        self.connection_string = connection_string
        self.loop = loop
        # What every client of this bus is made with.
        self._options = options
        # The synchronous client waits up to a second for its keep-alive thread whenever it closes
        # something. Closing beside the tests keeps that second out of them; `drain` waits for all.
        self._closer = ThreadPoolExecutor(max_workers=16)
        self._closing: list[Future[None]] = []
        self._client = self.client()

    @property
    def host(self) -> str:
        """Host and port, as they stand in the connection string."""
        return self.connection_string.split(";")[0].removeprefix("Endpoint=sb://")

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])

    def client(self, connection_string: str | None = None, **options: Any) -> ServiceBusClient:
        """Another client, for tests with an own connection string or own options."""
        text = connection_string if connection_string is not None else self.connection_string
        options = self._options | options
        if self.flavour == "sync":
            return ServiceBusClient.from_connection_string(text, **options)
        return self.dressed(
            self.loop.call(AsyncServiceBusClient.from_connection_string, text, **options)
        )

    def client_with(self, host: str, credential: object, **options: Any) -> ServiceBusClient:
        """A client made from a host and a credential, without TLS as an emulator's is."""
        kind: Any = ServiceBusClient if self.flavour == "sync" else AsyncServiceBusClient
        if self.flavour == "sync":
            return cast(ServiceBusClient, kind(host, credential, use_tls=False, **options))
        return self.dressed(self.loop.call(kind, host, credential, use_tls=False, **options))

    def dressed(self, target: object) -> ServiceBusClient:
        return cast(ServiceBusClient, Blocking(target, self.loop))

    def renewer(self, **options: Any) -> AutoLockRenewer:
        if self.flavour == "sync":
            return AutoLockRenewer(**options)
        return cast(
            AutoLockRenewer, Blocking(self.loop.call(AsyncAutoLockRenewer, **options), self.loop)
        )

    @contextmanager
    def sender(
        self, queue: str, *, client: ServiceBusClient | None = None, **options: Any
    ) -> Iterator[ServiceBusSender]:
        sender = (client or self._client).get_queue_sender(queue, **options)
        try:
            yield sender
        finally:
            self.close_beside(sender)

    @contextmanager
    def publisher(
        self, topic: str, *, client: ServiceBusClient | None = None, **options: Any
    ) -> Iterator[ServiceBusSender]:
        sender = (client or self._client).get_topic_sender(topic, **options)
        try:
            yield sender
        finally:
            self.close_beside(sender)

    @contextmanager
    def subscriber(
        self,
        topic: str,
        subscription: str,
        *,
        client: ServiceBusClient | None = None,
        **options: Any,
    ) -> Iterator[ServiceBusReceiver]:
        receiver = (client or self._client).get_subscription_receiver(
            topic, subscription, **options
        )
        try:
            yield receiver
        finally:
            self.close_beside(receiver)

    @contextmanager
    def receiver(
        self, queue: str, *, client: ServiceBusClient | None = None, **options: Any
    ) -> Iterator[ServiceBusReceiver]:
        renewer = options.get("auto_lock_renewer")
        if isinstance(renewer, Blocking):
            options["auto_lock_renewer"] = renewer._target
        receiver = (client or self._client).get_queue_receiver(queue, **options)
        try:
            yield receiver
        finally:
            self.close_beside(receiver)

    def dead_letters(
        self, queue: str, **options: Any
    ) -> AbstractContextManager[ServiceBusReceiver]:
        return self.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER, **options)

    def send(self, queue: str, *messages: Any) -> None:
        """Send messages one by one and wait until each is accepted."""
        with self.sender(queue) as sender:
            for message in messages:
                sender.send_messages(message)

    def publish(self, topic: str, *messages: Any) -> None:
        """Send messages to a topic one by one and wait until each is accepted."""
        with self.publisher(topic) as publisher:
            for message in messages:
                publisher.send_messages(message)

    def close_beside(self, handler: ServiceBusSender | ServiceBusReceiver) -> None:
        self._closing.append(self._closer.submit(handler.close))

    def drain(self) -> None:
        """Wait until everything that was closed beside the tests is closed, and say what failed."""
        closing, self._closing = self._closing, []
        for future in closing:
            future.result(CALL_WITHIN_S)

    def close(self) -> None:
        self.drain()
        self._client.close()
        self._closer.shutdown()


def body(message: ServiceBusReceivedMessage) -> bytes:
    """All data sections of a message as one."""
    return b"".join(message.body)


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[bytes]:
    return [body(message) for message in messages]


def number(message: ServiceBusReceivedMessage) -> int:
    """The sequence number, which every received message has."""
    assert message.sequence_number is not None
    return message.sequence_number


def place(message: ServiceBusReceivedMessage) -> int:
    """Which one it is of its partition; a plain entity has one, whose numbers are the places."""
    return number(message) & PLACE


def partition(message: ServiceBusReceivedMessage) -> int:
    """Which partition a message rests in."""
    return number(message) >> 48


def assert_no_gaps(
    messages: list[ServiceBusReceivedMessage], *, partitioned: bool = PARTITIONED
) -> None:
    """Check that the numbers of each partition begin with one and rise by one."""
    parts = by_partition(messages, number)
    assert partitioned or len(parts) <= 1
    for numbers in parts.values():
        assert [each & PLACE for each in sorted(numbers)] == list(range(1, len(numbers) + 1))


def by_partition(
    messages: list[ServiceBusReceivedMessage], what: Callable[[ServiceBusReceivedMessage], T]
) -> dict[int, list[T]]:
    """Something of each message, apart for each partition; of a plain entity it is one list."""
    parts: dict[int, list[T]] = {}
    for message in messages:
        parts.setdefault(partition(message), []).append(what(message))
    return parts


def together(*texts: str, key: str = "k", **options: Any) -> list[ServiceBusMessage]:
    """Messages that have an order among them wherever they go, because they have one key."""
    return [ServiceBusMessage(text, partition_key=key, **options) for text in texts]


def receive(
    receiver: ServiceBusReceiver, count: int = 1, *, within_s: float = RECEIVE_WITHIN_S
) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages, however many calls that takes."""
    deadline = time.monotonic() + within_s
    messages: list[ServiceBusReceivedMessage] = []
    while len(messages) < count and (left := deadline - time.monotonic()) > 0:
        messages += receiver.receive_messages(
            max_message_count=count - len(messages), max_wait_time=left
        )
    assert len(messages) == count, f"{len(messages)} of {count} messages came within {within_s} s"
    return messages


def receive_one(
    receiver: ServiceBusReceiver, *, within_s: float = RECEIVE_WITHIN_S
) -> ServiceBusReceivedMessage:
    return receive(receiver, 1, within_s=within_s)[0]


def assert_nothing_comes(receiver: ServiceBusReceiver, *, within_s: float = 0.7) -> None:
    # The client counts the opening of a link into the wait, which then may end before it began.
    for _ in range(20):
        with contextlib.suppress(OperationTimeoutError):
            got = receiver.receive_messages(max_message_count=1, max_wait_time=within_s)
            break
    else:
        raise AssertionError("the receiver does not open")
    assert got == [], f"nothing was expected, {bodies(got)} came"


def peek_all(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Browse from the first number to the end, in as many calls as the broker needs."""
    found: list[ServiceBusReceivedMessage] = []
    start = 1
    while page := receiver.peek_messages(max_message_count=200, sequence_number=start):
        found += page
        start = number(page[-1]) + 1
    return found


def send_many(bus: Bus, queue: str, count: int) -> None:
    """Send numbered messages in batches of a thousand."""
    with bus.sender(queue) as sender:
        for start in range(0, count, 1000):
            sender.send_messages(
                [
                    ServiceBusMessage(f"{index}", message_id=f"{index}")
                    for index in range(start, min(count, start + 1000))
                ]
            )
