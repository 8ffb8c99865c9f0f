"""Processing for those who do not await: handlers run in threads, a bounded number at a time."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeAlias, final

from peeklock.client.blocking.bridge import Bridge
from peeklock.client.blocking.receiver import ServiceBusReceiver
from peeklock.client.processor import Handler as AwaitedHandler
from peeklock.client.processor import ServiceBusProcessor as AwaitedProcessor
from peeklock.client.received import ServiceBusReceivedMessage
from peeklock.client.receiver import ServiceBusReceiver as AwaitedReceiver

# Called with each message and the receiver that can settle it, in a thread of the processor.
Handler: TypeAlias = Callable[[ServiceBusReceivedMessage, ServiceBusReceiver], None]


@final
class ServiceBusProcessor:
    """Receives, calls a handler in a thread, and completes what the handler was done with.

    A handler that raises has its message abandoned. On a session entity `max_concurrent_sessions`
    sessions are worked on at a time, the messages of each one after another. There are as many
    threads as calls at a time; handlers may block and may use the client. `on_error` is called in
    a thread as well.

        def handle(message, receiver):
            work(message)

        with client.get_queue_processor("orders", handle, max_concurrent_calls=8):
            threading.Event().wait()
    """

    def __init__(
        self,
        bridge: Bridge,
        handler: Handler,
        make: Callable[[AwaitedHandler], AwaitedProcessor],
    ) -> None:
        """`make` gives the processor that is awaited, for a handler that is."""
        self._bridge = bridge
        self._handler = handler
        self._inner = make(self._call)
        self._threads_max: Final = self._inner.concurrency
        self._threads: ThreadPoolExecutor | None = None
        # One start or stop at a time, of whatever thread.
        self._changing: Final = threading.Lock()
        # Threads that are in the handler now.
        self._handling: Final[set[int]] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether messages are taken."""
        return self._inner.is_running

    def start(self) -> None:
        """Begin to take messages; returns at once. One that runs already just goes on."""
        with self._changing:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._threads_max, "peeklock-handler")
            self._bridge.run(self._inner.start())

    def stop(self) -> None:
        """Take no more messages, and return when all handlers have ended and all is settled.

        A handler cannot call it, because it would wait for itself: RuntimeError. It may let
        another thread stop, but must not wait for that one either.
        """
        self.check_caller()
        with self._changing:
            # Interrupted, it goes on stopping, and the next call waits for the same end.
            self._bridge.finish(self._inner.stop())
            threads, self._threads = self._threads, None
            if threads is not None:
                threads.shutdown()

    def check_caller(self) -> None:
        """Raise RuntimeError if it is a handler of this processor that calls."""
        if threading.get_ident() in self._handling:
            raise RuntimeError("a handler cannot stop its processor: it would wait for itself")

    def close(self) -> None:
        """Stop; it can be started again."""
        self.stop()

    async def _call(self, message: ServiceBusReceivedMessage, receiver: AwaitedReceiver) -> None:
        """Call the handler in a thread, with a receiver that blocks."""
        threads = self._threads
        assert threads is not None, "handlers are called while there are threads"
        face = ServiceBusReceiver(receiver, self._bridge)
        await asyncio.get_running_loop().run_in_executor(threads, self._handle, message, face)

    def _handle(self, message: ServiceBusReceivedMessage, receiver: Any) -> None:
        thread = threading.get_ident()
        self._handling.add(thread)
        try:
            self._handler(message, receiver)
        finally:
            self._handling.discard(thread)
