"""Alarms: who knocks when a deadline comes. One per partition, never one per message."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol, final

from peeklock.clock import Clock, ManualClock


class Alarm(Protocol):
    """An alarm that was set and may be called off."""

    def cancel(self) -> None:
        """Do not ring."""
        ...


class Alarms(Protocol):
    """Rings at instants of the one clock."""

    def set(self, at: int, ring: Callable[[], None]) -> Alarm:
        """Call `ring` once the clock has reached the instant."""
        ...


@final
class LoopAlarms:
    """Alarms on the event loop, for the clock on the wall."""

    __slots__ = ("_clock", "_loop")

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop

    def set(self, at: int, ring: Callable[[], None]) -> Alarm:
        """Ring after what is left until the instant by the clock."""
        left_ms = max(0, at - self._clock.now())
        return self._loop.call_later(left_ms / 1000, ring)


@final
class ManualAlarms:
    """Alarms for a clock that a test moves: `advance` moves it and rings what is due, in order."""

    __slots__ = ("_clock", "_count", "_heap")

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, _ManualAlarm]] = []
        self._count = 0

    def set(self, at: int, ring: Callable[[], None]) -> Alarm:
        """Ring when the clock has been moved to the instant."""
        alarm = _ManualAlarm(ring)
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, alarm))
        return alarm

    def advance(self, duration_ms: int) -> None:
        """Move the clock on and ring what fell due."""
        until = self._clock.now() + duration_ms
        while self._heap and self._heap[0][0] <= until:
            at, _, alarm = heapq.heappop(self._heap)
            if at > self._clock.now():
                self._clock.move_to(at)
            alarm.ring()
        self._clock.move_to(until)


@final
class _ManualAlarm:
    __slots__ = ("_ring",)

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring: Callable[[], None] | None = ring

    def cancel(self) -> None:
        self._ring = None

    def ring(self) -> None:
        if self._ring is not None:
            self._ring()
