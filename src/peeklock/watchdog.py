"""The loop's watchdog: how long each step of the event loop takes, and what a long one was.

A step is one callback of the loop: it cannot be interrupted, so everybody else waits for its end.
Steps are measured in CPU time of the loop's thread, because a busy machine is not our doing. That
clock is a system call, so it is read once in a millisecond of work at most: a step that ends
within a millisecond of wall time since the last reading is short, whatever else it was.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import threading
from asyncio import events
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any, Final, cast, final

from peeklock.histogram import STEP_SECONDS, Histogram
from peeklock.step import STEP
from peeklock.turns import TURNS

# What a step may take (limits.md): longer ones are logged.
STEP_S_MAX: Final = 0.010
# The CPU clock is read again after so much work; what a step took is known up to this, upwards.
_SHORT_S: Final = 0.001
# A line of the log at most so often; those between are counted.
_LOG_EVERY_S: Final = 1.0
_NOTHING: Final = "nothing yet"
_LOOKING: Final = "looking for garbage"

_LOG: Final = logging.getLogger("peeklock.loop")


@final
class Watchdog:
    """Measures one event loop: every step, every turn, every full collection."""

    def __init__(
        self,
        wall: Callable[[], float] = perf_counter,
        cpu: Callable[[], float] = thread_time,
    ) -> None:
        self.wall: Final = wall
        self._cpu: Final = cpu
        # CPU seconds of steps; those below a millisecond are one count.
        self.steps: Final = Histogram(STEP_SECONDS)
        # CPU seconds of steps that worked on one message above 4 MB.
        self.large: Final = Histogram(STEP_SECONDS)
        # Wall seconds from one look for news to the next: what a new connection waits.
        self.turns: Final = Histogram(STEP_SECONDS)
        # CPU seconds of full collections; they are no part of the step they fell into.
        self.collections: Final = Histogram(STEP_SECONDS)
        self.longest_s: float = 0.0
        self.longest_wall_s: float = 0.0
        self.longest_cause: str = _NOTHING
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id: int = 0
        self._unwatched: Callable[[Any], None] | None = None
        self.is_on: bool = False
        # Until when what ends is short.
        self.short_until: float = 0.0
        self.turn_begun: float = 0.0
        # What the CPU clock said last; work since then: in turns before, and in this one since.
        self._read: float = 0.0
        self.unread: float = 0.0
        self.mark: float = 0.0
        self._begun: float = 0.0
        self._collecting_since: float = -1.0
        self._collected: float = 0.0
        self._logged_at: float = float("-inf")
        self._unlogged: int = 0

    # --- a loop that is watched

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Make the loop that is to be watched; nothing is counted before `begin`."""
        loop = asyncio.SelectorEventLoop(cast(selectors.BaseSelector, _WatchedSelector(self)))
        self._loop = loop
        return loop

    def begin(self) -> None:
        """Count from now on; called by the loop, in the step that ends its start."""
        assert self._unwatched is None
        self._thread_id = threading.get_ident()
        self._begun = self._cpu()
        self.read_clocks(self.wall())
        self.turn_begun = self.mark
        TURNS.begin(self.wall, self.steps.counts)
        self.is_on = True
        self._unwatched = events.Handle._run
        events.Handle._run = self._watched(self._unwatched)  # type: ignore[method-assign, assignment] # asyncio has no hook for a step
        gc.callbacks.append(self._collects)

    def end(self) -> None:
        """Count no more."""
        if self._unwatched is not None:
            events.Handle._run = self._unwatched  # type: ignore[method-assign, assignment] # as it was
            self._unwatched = None
            self.is_on = False
            TURNS.end()
            gc.callbacks.remove(self._collects)

    # --- what the loop calls

    def _watched(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        """Make what runs a callback and looks at the clock behind it."""
        counts = self.steps.counts
        wall = self.wall
        step = STEP
        turns = TURNS
        watch = self

        def _run(handle: Any) -> None:
            run(handle)
            now = wall()
            if now < watch.short_until:
                counts[0] += 1
            else:
                watch.passed(handle, now)
            turns.since = now
            step.work = ""

        return _run

    def passed(self, handle: Any, now: float) -> None:
        """A step ended, and a millisecond of work has passed since the CPU clock was read."""
        if handle._loop is not self._loop:
            return  # another loop of this process, on its own thread
        wall_s = now - TURNS.since
        before = self._read
        self.read_clocks(now)
        collected, self._collected = self._collected, 0.0
        # What was short before it in the same millisecond cannot be told from it.
        cpu_s = min(wall_s, max(0.0, self._read - before - collected))
        if STEP.is_large:
            STEP.is_large = False
            self.large.note(cpu_s)
            return
        self.steps.note(cpu_s)
        self.steps.sum = self._read - self._begun
        if cpu_s > self.longest_s:
            self.longest_s = cpu_s
            self.longest_wall_s = wall_s
            self.longest_cause = cause_of(handle)
        if cpu_s > STEP_S_MAX:
            self._tell(handle, cpu_s, wall_s, now)

    def read_clocks(self, now: float) -> None:
        """Read the CPU clock: what is done from now on is told from it."""
        self._read = self._cpu()
        # All that the loop's thread did: short steps are not summed up one by one.
        self.steps.sum = self._read - self._begun
        self.unread = 0.0
        self.mark = now
        self.short_until = now + _SHORT_S

    def _tell(self, handle: Any, cpu_s: float, wall_s: float, now: float) -> None:
        if now - self._logged_at < _LOG_EVERY_S:
            self._unlogged += 1
            return
        unlogged, self._unlogged = self._unlogged, 0
        self._logged_at = now
        _LOG.warning(
            "loop-step-long cpu_ms=%.1f wall_ms=%.1f cause=%r others=%d",
            cpu_s * 1000,
            wall_s * 1000,
            cause_of(handle),
            unlogged,
        )

    def _collects(self, phase: str, told: dict[str, int]) -> None:
        """The collector begins or ends; only the oldest generation is everybody's wait."""
        if told["generation"] == 1 and phase == "start" and not STEP.work.endswith(_LOOKING):
            STEP.work = f"{STEP.work}, {_LOOKING}" if STEP.work else _LOOKING
        if told["generation"] < 2 or threading.get_ident() != self._thread_id:
            return
        if phase == "start":
            self._collecting_since = self._cpu()
        elif self._collecting_since >= 0:
            taken = self._cpu() - self._collecting_since
            self._collecting_since = -1.0
            self._collected += taken
            self.collections.note(taken)


@final
class _WatchedSelector:
    """Notes when the loop begins to wait for news, and when there is some: a turn of it is between.

    It is written in one piece, because it runs in every turn. It is no subclass, because compiled
    classes cannot have an interpreted one above them.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        selector = selectors.DefaultSelector()
        self._watchdog: Final = watchdog
        self._select: Final[Callable[[float | None], Any]] = selector.select
        # What the loop calls now and then is the selector's own.
        self.register: Final = selector.register
        self.unregister: Final = selector.unregister
        self.modify: Final = selector.modify
        self.get_key: Final = selector.get_key
        self.get_map: Final = selector.get_map
        self.close: Final = selector.close

    def select(self, timeout: float | None = None) -> Any:
        """Wait for news."""
        watch = self._watchdog
        now = watch.wall()
        if watch.is_on:
            taken = now - watch.turn_begun
            turns = watch.turns
            if taken < _SHORT_S:
                turns.counts[0] += 1
                turns.sum += taken
            else:
                turns.note(taken)
            watch.unread += now - watch.mark
            if watch.unread > _SHORT_S:
                watch.read_clocks(now)
        found = self._select(timeout)
        STEP.is_large = False
        if found:
            TURNS.news += 1
        now = watch.wall()
        watch.turn_begun = watch.mark = TURNS.since = now
        watch.short_until = now + _SHORT_S - watch.unread
        return found


def cause_of(handle: Any) -> str:
    """Say what a step was: the callback or task, whose connection, and what it said it did."""
    callback = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        routine = owner.get_coro()
        kind = getattr(routine, "__qualname__", type(routine).__name__)
        words = f"task {owner.get_name()} ({kind})"
    elif isinstance(owner, asyncio.BaseTransport):
        protocol = type(owner.get_protocol()).__name__
        peer = owner.get_extra_info("peername")
        words = f"{getattr(callback, '__name__', '')} of {protocol} {peer}"
    else:
        words = str(getattr(callback, "__qualname__", callback))
    return f"{words}: {STEP.work}" if STEP.work else words
