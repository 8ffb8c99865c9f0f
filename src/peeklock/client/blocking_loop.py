"""An event loop for those who do not await, and what Spark tasks need of it.

All of it runs in one event loop on one daemon thread of the process. Nothing is inherited by a
forked child: it starts a loop of its own, and a client made before the fork connects anew there.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar, final

from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.connection import ClientConnection

T = TypeVar("T")


@final
class BlockingLoop:
    """An event loop on a daemon thread, and the way to it for all other threads."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(
            target=self._loop.run_forever, name="peeklock-client", daemon=True
        )
        self._thread.start()

    @staticmethod
    def of_this_process() -> "BlockingLoop":
        """Return the loop that everybody in this process shares; the first who asks starts it."""
        global _shared
        with _guard:
            if _shared is None:
                _shared = BlockingLoop()
            return _shared

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for what it gives or raises."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("the blocking client cannot be called from its own event loop")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # An interrupt of the waiting thread ends what it waited for.
            future.cancel()
            raise


_guard = threading.Lock()
_shared: BlockingLoop | None = None


def _forget_in_child() -> None:
    """Let a forked child begin with nothing: threads do not survive a fork, locks may be held."""
    global _guard, _shared
    _guard = threading.Lock()
    _shared = None


os.register_at_fork(after_in_child=_forget_in_child)


@final
class PerProcess:
    """A connection that each process has for itself, however it came to know of this object."""

    def __init__(self, config: ClientConfig) -> None:
        self.config: Final = config
        self._pid = 0
        self._connection: ClientConnection | None = None

    def get(self) -> ClientConnection:
        """Give this process's connection; one from before a fork is left alone."""
        if self._connection is None or self._pid != os.getpid():
            self._connection = ClientConnection(self.config)
            self._pid = os.getpid()
        return self._connection

    def take(self) -> ClientConnection | None:
        """Give this process's connection up, if it has one."""
        connection, self._connection = self._connection, None
        return connection if self._pid == os.getpid() else None
