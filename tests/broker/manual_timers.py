"""Timers for a clock that tests move."""

import heapq
from collections.abc import Callable
from typing import final

from peeklock.broker.timers import Timer
from peeklock.clock import ManualClock


@final
class ManualTimers:
    """Timers for a clock that a test moves: `advance` moves it and fires what is due, in order."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, _ManualTimer]] = []
        self._count = 0

    def set(self, at: int, callback: Callable[[], None]) -> Timer:
        """Fire when the clock has been moved to the instant."""
        timer = _ManualTimer(callback)
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, timer))
        return timer

    def advance(self, duration_ms: int) -> None:
        """Move the clock on and fire what fell due."""
        until = self._clock.now() + duration_ms
        while self._heap and self._heap[0][0] <= until:
            at, _, timer = heapq.heappop(self._heap)
            if at > self._clock.now():
                self._clock.move_to(at)
            timer.fire()
        self._clock.move_to(until)


@final
class _ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        if self._callback is not None:
            self._callback()
