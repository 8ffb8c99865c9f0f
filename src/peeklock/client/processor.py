"""Processing: a handler is called for each message, a bounded number of them at a time (R-F5)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar, final

from peeklock.client.constants import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from peeklock.client.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionLockLostError,
)
from peeklock.client.received import ServiceBusReceivedMessage
from peeklock.client.receiver import ServiceBusReceiver
from peeklock.client.receiving.renewing import RENEWAL_DURATION_S, AutoLockRenewer, Renewal
from peeklock.client.reporting import OnError

if TYPE_CHECKING:
    from peeklock.client.client import ServiceBusClient

# Called with each message and the receiver that can settle it.
Handler: TypeAlias = Callable[[ServiceBusReceivedMessage, ServiceBusReceiver], Awaitable[None]]

T = TypeVar("T")

# How long a session without further messages is kept, as the official processors do.
SESSION_IDLE_S: Final = 1.0
# A broker that fails is asked again after a pause that doubles up to this.
_PAUSE_MIN_S: Final = 0.2
_PAUSE_MAX_S: Final = 30.0
_RECEIVE_WAIT_S: Final = 30.0
_LOG: Final = logging.getLogger("peeklock.client")


@final
class ServiceBusProcessor:
    """Receives, calls a handler, and completes what the handler was done with.

    A handler that raises has its message abandoned. On a session entity `max_concurrent_sessions`
    sessions are worked on at a time, the messages of each one after another.
    """

    def __init__(
        self,
        client: "ServiceBusClient",
        entity: str,
        handler: Handler,
        *,
        on_error: OnError | None = None,
        max_concurrent_calls: int = 1,
        max_concurrent_sessions: int = 0,
        auto_complete: bool = True,
        max_auto_lock_renewal_duration: float = RENEWAL_DURATION_S,
        session_idle_timeout: float = SESSION_IDLE_S,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        sub_queue: ServiceBusSubQueue | str | None = None,
        prefetch_count: int | None = None,
    ) -> None:
        """`on_error` is told of each failure, with the message it is about or None."""
        if max_concurrent_calls < 1 or max_concurrent_sessions < 0:
            raise ValueError("a processor needs at least one call at a time")
        self._client = client
        self._entity = entity
        self._handler = handler
        self._on_error = on_error
        self._calls_max = max_concurrent_calls
        self._sessions_max = max_concurrent_sessions
        self._completes = auto_complete
        self._session_idle_s = session_idle_timeout
        self._mode = ServiceBusReceiveMode(receive_mode)
        self._options: dict[str, Any] = {
            "receive_mode": receive_mode,
            "sub_queue": sub_queue,
            "prefetch_count": prefetch_count,
            "on_error": self._tell,
        }
        self._renewal_s = max_auto_lock_renewal_duration
        self._renewer: AutoLockRenewer | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._calls: set[asyncio.Task[None]] = set()
        # Workers that wait for something which a stop cuts short.
        self._waiting: set[asyncio.Task[Any]] = set()
        self._stopping = asyncio.Event()
        self._free = asyncio.Semaphore(max_concurrent_calls)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def is_running(self) -> bool:
        """Whether messages are taken."""
        return bool(self._workers) and not self._stopping.is_set()

    @property
    def concurrency(self) -> int:
        """How many handlers run at a time at most."""
        return self._sessions_max or self._calls_max

    async def start(self) -> None:
        """Begin to take messages; returns at once, or when a stop that is under way has ended."""
        if self._stopping.is_set():
            await self.stop()
        if self._workers:
            return
        self._stopping.clear()
        if self._renewal_s > 0 and self._mode is ServiceBusReceiveMode.PEEK_LOCK:
            self._renewer = AutoLockRenewer(self._renewal_s, self._renewal_failed)
        work = self._serve_sessions if self._sessions_max else self._serve_messages
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(work()) for _ in range(self._sessions_max or 1)]

    async def stop(self) -> None:
        """Take no more messages, and return when all handlers have ended and all is settled.

        A call that is cancelled stops all the same; another one waits for the end. A handler
        cannot call it, because it would wait for itself: RuntimeError. It may let another task
        stop, but must not wait for that one either: nobody could see that they wait in a circle.
        """
        workers = self._workers
        if not workers:
            return
        self.check_caller()
        self._stopping.set()
        for waiting in self._waiting:
            waiting.cancel()
        await asyncio.wait(workers)
        if self._workers is workers:
            self._workers = []
            self._stopping.clear()
            if self._renewer is not None:
                await self._renewer.close()
        for worker in workers:
            worker.result()

    def check_caller(self) -> None:
        """Raise RuntimeError if it is a handler of this processor that calls."""
        if asyncio.current_task() in (*self._workers, *self._calls):
            raise RuntimeError("a handler cannot stop its processor: it would wait for itself")

    async def close(self) -> None:
        """Stop; it can be started again."""
        await self.stop()

    # --- messages of an entity without sessions

    async def _serve_messages(self) -> None:
        receiver = self._client.get_queue_receiver(self._entity, **self._options)
        pause_s = _PAUSE_MIN_S
        while not self._stopping.is_set():
            await self._free.acquire()
            slots = 1
            # All that are free now are asked for at once.
            while slots < self._calls_max and not self._free.locked():
                await self._free.acquire()
                slots += 1
            try:
                messages = await self._received(receiver, slots, _RECEIVE_WAIT_S)
                pause_s = _PAUSE_MIN_S
            except Exception as error:  # noqa: BLE001  nothing may end the processing but a stop
                messages = []
                self._tell(None, error)
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            for message in messages:
                self._start_call(receiver, message)
            for _ in range(slots - len(messages)):
                self._free.release()
        while self._calls:
            await asyncio.wait(self._calls)
        await self._closed(receiver)

    def _start_call(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        renewal: Renewal | None = None
        if self._renewer is not None:
            renewal = self._renewer.register(receiver, message)

        async def call() -> None:
            try:
                await self._handle(receiver, message)
            finally:
                if renewal is not None:
                    renewal.cancel()
                self._free.release()

        task = asyncio.get_running_loop().create_task(call())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    # --- sessions

    async def _serve_sessions(self) -> None:
        pause_s = _PAUSE_MIN_S
        while not self._stopping.is_set():
            receiver = self._client.get_queue_receiver(
                self._entity, session_id=NEXT_AVAILABLE_SESSION, **self._options
            )
            try:
                await self._until_stopped(receiver.open())
                if not self._stopping.is_set():
                    await self._serve_session(receiver)
                pause_s = _PAUSE_MIN_S
            except OperationTimeoutError:
                pass  # No session has messages now; the next wait begins at once.
            except Exception as error:  # noqa: BLE001  nothing may end the processing but a stop
                self._tell(None, error)
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            finally:
                await self._closed(receiver)

    async def _serve_session(self, receiver: ServiceBusReceiver) -> None:
        renewal: Renewal | None = None
        if self._renewer is not None:
            renewal = self._renewer.register(receiver, receiver.session)
        try:
            while not self._stopping.is_set():
                messages = await self._received(receiver, 1, self._session_idle_s)
                if not messages:
                    return
                await self._handle(receiver, messages[0])
        finally:
            if renewal is not None:
                renewal.cancel()

    # --- one message

    async def _handle(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage
    ) -> None:
        try:
            await self._handler(message, receiver)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something that the handler waited for was cancelled, not the handler.
            error = ServiceBusError("what the handler waited for was cancelled")
            await self._failed(receiver, message, error)
            return
        except Exception as error:  # noqa: BLE001  whatever a handler raises is its user's to see
            await self._failed(receiver, message, error)
            return
        if self._completes and not message.is_settled and message.transaction is None:
            # Not waited for: the next call can begin. The receiver tells us of failures.
            receiver.complete_soon(message)

    async def _failed(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, error: Exception
    ) -> None:
        self._tell(message, error)
        if message.is_settled or message.transaction is not None:
            return
        try:
            await receiver.abandon_message(message)
        except Exception as also:  # noqa: BLE001  it is told, and the next message waits
            self._tell(message, also)

    # --- underneath

    async def _received(
        self, receiver: ServiceBusReceiver, count: int, wait_s: float
    ) -> list[ServiceBusReceivedMessage]:
        found = await self._until_stopped(receiver.receive_messages(count, wait_s))
        return found or []

    async def _until_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do something unless and until the processor stops; None when it was not done.

        What is cancelled on its way loses nothing: messages that came are given back by the close.
        """
        worker = asyncio.current_task()
        assert worker is not None
        if self._stopping.is_set():
            work.close()
            return None
        self._waiting.add(worker)
        try:
            return await work
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
            worker.uncancel()
            return None
        finally:
            self._waiting.discard(worker)

    async def _pause(self, seconds: float) -> None:
        await self._until_stopped(asyncio.sleep(seconds))

    async def _closed(self, receiver: ServiceBusReceiver) -> None:
        try:
            await receiver.close()
        except Exception as error:  # noqa: BLE001  it is told
            self._tell(None, error)

    def _renewal_failed(self, renewable: Any, cause: Exception | None) -> None:
        message = renewable if isinstance(renewable, ServiceBusReceivedMessage) else None
        error: Exception | None = renewable.auto_renew_error
        if error is not None and not isinstance(cause, SessionLockLostError):
            self._tell(message, error)

    def _tell(self, message: Any, error: Exception) -> None:
        if self._on_error is None:
            _LOG.error("processing '%s': %s", self._entity, error, exc_info=error)
            return
        try:
            self._on_error(message, error)
        except Exception:  # noqa: BLE001  told to the log, with all that it says
            # A callback that fails must not stop the processing.
            _LOG.exception("the on_error callback failed while it was told of: %r", error)
