"""The one clock: instants are whole milliseconds since 1970, UTC; all that waits asks a clock."""

import time
from typing import Final, Protocol, TypeAlias, final

Instant: TypeAlias = int

# Where a manual clock starts unless told: round, and so far from zero that days can be subtracted.
MANUAL_START: Final = 1_700_000_000_000


class Clock(Protocol):
    """Tells the present instant."""

    def now(self) -> Instant:
        """Return the present instant in milliseconds."""
        ...


@final
class SystemClock:
    """Reads the machine's clock and never runs backwards while the process lives."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: Instant = 0

    def now(self) -> Instant:
        """Return the machine's time, or the latest one already told if the machine was set back."""
        # A clock that is set back must not stretch locks or make enqueue times run backwards.
        instant = time.time_ns() // 1_000_000
        if instant > self._latest:
            self._latest = instant
        return self._latest


@final
class ManualClock:
    """Stands still until a test advances it."""

    __slots__ = ("_now",)

    def __init__(self, start: Instant = MANUAL_START) -> None:
        self._now: Instant = start

    def now(self) -> Instant:
        """Return the instant the clock was last moved to."""
        return self._now

    def advance(self, duration_ms: int) -> Instant:
        """Move forward by a duration and return the new instant."""
        if duration_ms < 0:
            raise ValueError(f"a clock does not run backwards: advance({duration_ms})")
        self._now += duration_ms
        return self._now

    def move_to(self, instant: Instant) -> Instant:
        """Move forward to an instant and return it."""
        return self.advance(instant - self._now)
