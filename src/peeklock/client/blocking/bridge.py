"""The way from threads into the event loop, and back for the callbacks of their owners."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, final

from peeklock.client.blocking_loop import BlockingLoop
from peeklock.client.reporting import OnError

T = TypeVar("T")

_LOG: Final = logging.getLogger("peeklock.client")


@final
class Bridge:
    """Lets threads run what is awaited, for what was made in this process."""

    def __init__(self) -> None:
        self._pid: Final = os.getpid()
        # Callbacks that run or wait for their turn, and which thread runs one now.
        self._callbacks: Final[set[asyncio.Task[None]]] = set()
        self._calling: int | None = None
        self._turn: Final = asyncio.Lock()

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

    def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that is awaited, and until its callbacks have been told all of it."""
        if self._calling == threading.get_ident():
            # It is a callback that asks: it must not wait for itself.
            return self.run(work)

        async def finished() -> T:
            try:
                return await work
            finally:
                while self._callbacks:
                    await asyncio.wait(self._callbacks)

        return self.run(finished())

    def told(self, on_error: OnError | None) -> OnError | None:
        """Let a callback be called where it may block and use the client: in a thread.

        Calls follow one another in the order of what they tell.
        """
        if on_error is None:
            return None

        def tell(subject: Any, error: Exception) -> None:
            task = asyncio.get_running_loop().create_task(self._tell(on_error, subject, error))
            self._callbacks.add(task)
            task.add_done_callback(self._callbacks.discard)

        return tell

    async def _tell(self, on_error: OnError, subject: Any, error: Exception) -> None:
        def call() -> None:
            self._calling = threading.get_ident()
            try:
                on_error(subject, error)
            except Exception:  # noqa: BLE001  told to the log, with all that it says
                # A callback that fails must not stop what others wait for.
                _LOG.exception("the on_error callback failed while it was told of: %r", error)
            finally:
                self._calling = None

        async with self._turn:
            await asyncio.to_thread(call)
