"""Timers: they fire when a deadline comes. One per partition, never one per message."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import Final, Protocol, final

from peeklock.clock import Clock

# How often the clock is looked at: what falls due because it was set waits at most so long.
LOOK_MS: Final = 200

# Fewer cancelled timers than this are no burden.
_CANCELLED_MIN: Final = 256
# A clock that was set by less is nothing to talk about.
_WORTH_TELLING_MS: Final = 1_000

_log: Final = logging.getLogger("peeklock.broker")


class Timer(Protocol):
    """A timer that was set and can be cancelled."""

    def cancel(self) -> None:
        """Do not fire."""
        ...


class Timers(Protocol):
    """Fire at instants of the one clock."""

    def set(self, at: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once the clock has reached the instant."""
        ...


@final
class LoopTimers:
    """Timers on the event loop, for a clock that somebody may set: one of the loop for all of them.

    The loop waits by a time that nobody can set, and so it looks at the clock every now and then.
    """

    def __init__(
        self, clock: Clock, loop: asyncio.AbstractEventLoop, *, is_moved: bool = False
    ) -> None:
        """A clock that is moved on purpose is nothing to tell the log about."""
        self._clock = clock
        self._is_moved = is_moved
        self._loop = loop
        self._heap: list[tuple[int, int, _LoopTimer]] = []
        self._count = 0
        self._cancelled = 0
        self._timer: asyncio.TimerHandle | None = None
        # What was said of the clock.
        self._skipped_ms = clock.skipped_ms
        self._gap_ms = 0

    def set(self, at: int, callback: Callable[[], None]) -> Timer:
        """Ring once the clock has reached the instant."""
        timer = _LoopTimer(callback, self._forget_one)
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, timer))
        if self._heap[0][2] is timer:
            self._wait(self._clock.now())
        return timer

    def _wait(self, now: int) -> None:
        """Look again when the first timer is due, and soon in any case."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            left_ms = min(max(0, self._heap[0][0] - now), LOOK_MS)
            self._timer = self._loop.call_later(left_ms / 1000, self.look)

    @property
    def next_at(self) -> int | None:
        """When the first timer is due, cancelled or not; None where there is none."""
        return self._heap[0][0] if self._heap else None

    def look(self) -> None:
        """Fire what is due; also called by who has moved the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        heap = self._heap
        while heap and heap[0][0] <= now:
            timer = heapq.heappop(heap)[2]
            if timer.is_set:
                # Each in a turn of its own: what one of them breaks is not the others' matter.
                self._loop.call_soon(timer.fire)
            else:
                self._cancelled -= 1
        self._wait(now)
        if not self._is_moved:
            self._tell(now)

    def _forget_one(self) -> None:
        """Cancelled timers stay until their instant, but not too many of them."""
        self._cancelled += 1
        if self._cancelled > _CANCELLED_MIN and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].is_set]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _tell(self, now: int) -> None:
        """Say that somebody has set the machine's clock, once for each time."""
        skipped_ms = self._clock.skipped_ms - self._skipped_ms
        if skipped_ms >= _WORTH_TELLING_MS:
            self._skipped_ms += skipped_ms
            _log.warning("clock-set-forward by_ms=%d", skipped_ms)
        gap_ms = now - self._clock.wall()
        if gap_ms >= self._gap_ms + _WORTH_TELLING_MS:
            _log.warning("clock-set-back by_ms=%d", gap_ms - self._gap_ms)
            self._gap_ms = gap_ms
        elif gap_ms < self._gap_ms:
            self._gap_ms = max(0, gap_ms)  # it is being closed


@final
class _LoopTimer:
    def __init__(self, callback: Callable[[], None], forget: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback
        self._forget = forget

    @property
    def is_set(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            self._forget()

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()
