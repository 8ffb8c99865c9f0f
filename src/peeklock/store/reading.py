"""Where the embedded store reads: on the event loop what is small and was quick so far, all else on
a thread of its own, because a page that is not in memory takes as long as the disk likes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeVar, final

T = TypeVar("T")

# Up to so many bytes are read on the loop, as long as such reads take no longer than this.
INLINE_BYTES_MAX: Final = 64 << 10
INLINE_S_MAX: Final = 0.0005

# How much one read counts in the mean of the times; a large message counts at once.
_WEIGHT: Final = 0.125


@final
class Reading:
    """Reads on the loop or beside it; with `off_loop` always beside it."""

    def __init__(self, name: str, *, off_loop: bool) -> None:
        self._name = name
        self._off_loop = off_loop
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = (
            SimpleQueue()
        )
        # What messages were like; nobody knows before the first was read.
        self._message_bytes: float = INLINE_BYTES_MAX
        self._mean_s: float = 0.0

    def is_inline(self, count: int) -> bool:
        """Return whether so many messages are read on the loop."""
        return (
            not self._off_loop
            and count * self._message_bytes <= INLINE_BYTES_MAX
            and self._mean_s <= INLINE_S_MAX
        )

    def found(self, count: int, size: int, took_s: float) -> None:
        """So many messages were read, of so many bytes, in so much time."""
        each = size / count
        if each > self._message_bytes:
            self._message_bytes = each
        else:
            self._message_bytes += (each - self._message_bytes) * _WEIGHT
        self._mean_s += (took_s / max(1.0, size / INLINE_BYTES_MAX) - self._mean_s) * _WEIGHT

    async def run(self, read: Callable[[], T]) -> T:
        """Read on the thread."""
        if self._thread is None:
            # A daemon: a disk that hangs must not keep the process from ending.
            name = f"read-{self._name}"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((read, answer))
        return await answer

    async def finish(self) -> None:
        """Let the thread end when it has done all."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            read, answer = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = read()
            except BaseException as caught:  # noqa: BLE001 - the thread must outlive anything
                error = caught
            # The loop may have been closed meanwhile: nobody waits then.
            with contextlib.suppress(RuntimeError):
                answer.get_loop().call_soon_threadsafe(_answer, answer, result, error)
            del job, read, answer, result, error


def timed(read: Callable[[], T]) -> tuple[T, float]:
    """Read, and tell how long it took."""
    begun = time.perf_counter()
    found = read()
    return found, time.perf_counter() - begun


def _answer(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
