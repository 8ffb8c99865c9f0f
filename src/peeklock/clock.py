"""The one clock: instants are whole milliseconds since 1970, UTC; all that waits asks a clock.

The machine's clock on the wall can be set while we look at it. Ours is an offset to the time since
the machine was started, which nobody can set:

    set back      ours goes on, a tenth slower, until the wall has caught up with it
    set forward   ours follows at once, and `skipped_ms` tells how much of it never passed: what
                  was promised for a duration (a lock) is to last so much longer

How the machine's time is read is an argument, so that a test can move it.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias, final

Instant: TypeAlias = int

# Where a manual clock starts unless told: round, and so far from zero that days can be subtracted.
MANUAL_START: Final = 1_700_000_000_000

_NS_PER_MS: Final = 1_000_000
# While the wall is behind, ours runs at nine tenths of the real speed.
_PACE_NUMERATOR: Final = 9
_PACE_DENOMINATOR: Final = 10
# Two clocks cannot be read at one instant. A lead that is bigger than this is read again before it
# is believed: between the two readings the process may have been made to wait.
_READING_NS: Final = _NS_PER_MS
_READINGS: Final = 2


class Clock(Protocol):
    """Tells the present instant."""

    def now(self) -> Instant:
        """Return the present instant in milliseconds; it never runs backwards."""
        ...

    def wall(self) -> Instant:
        """Return what the machine's clock says, right or wrong: others made their tokens by one."""
        ...

    @property
    def skipped_ms(self) -> int:
        """How much of the time that `now` has told so far never passed."""
        ...

    def not_before(self, instant: Instant) -> None:
        """Tell nothing below that instant from here on: it was told already, before a restart."""
        ...


# The time for which the machine was asleep counts, where it can be known.
_boot_ns: Final = partial(
    time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)


@final
class SystemClock:
    """Reads the machine's clocks."""

    __slots__ = ("_boot", "_latest", "_offset", "_read_boot", "_read_wall", "_skipped")

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, boot: Callable[[], int] = _boot_ns
    ) -> None:
        self._read_wall = wall
        self._read_boot = boot
        self._boot = boot()  # when it was last looked at
        self._latest = wall()  # what it told then
        # By how much it is ahead of the time since boot, as far as that is in `_skipped`.
        self._offset = self._latest - self._boot
        self._skipped = 0

    def now(self) -> Instant:
        """Return the machine's time; or our own, while the machine's is behind it."""
        # In this order: a pause in between makes the wall look ahead, never behind.
        boot = self._read_boot()
        wall = self._read_wall()
        told = self._latest + (boot - self._boot) * _PACE_NUMERATOR // _PACE_DENOMINATOR
        if wall > told:
            told = wall
        offset = told - boot
        if offset > self._offset + _READING_NS or boot < self._boot:
            return self._look_closer()
        self._latest = told
        self._boot = boot
        if offset < self._offset:
            self._offset = offset
        return told // _NS_PER_MS

    def _look_closer(self) -> Instant:
        """Somebody seems to have set the wall forward, unless two readings lie far apart."""
        boot = self._read_boot()
        told = self._told(boot, self._read_wall())
        for _ in range(_READINGS):
            if told - boot <= self._offset + _READING_NS:
                break
            boot = self._read_boot()
            told = self._told(boot, self._read_wall())
        if boot < self._boot:
            return self._latest // _NS_PER_MS  # another thread was faster
        self._latest = told
        self._boot = boot
        self._set_offset(told - boot)
        return told // _NS_PER_MS

    def _told(self, boot: int, wall: int) -> int:
        passed = (boot - self._boot) * _PACE_NUMERATOR // _PACE_DENOMINATOR
        return max(wall, self._latest + passed)

    def _set_offset(self, offset: int) -> None:
        if offset > self._offset + _READING_NS:
            self._skipped += offset - self._offset
            self._offset = offset
        elif offset < self._offset:
            self._offset = offset

    def wall(self) -> Instant:
        """Return what the machine's clock says."""
        return self._read_wall() // _NS_PER_MS

    @property
    def skipped_ms(self) -> int:
        """How much was skipped, rounded up."""
        return -(-self._skipped // _NS_PER_MS)

    def not_before(self, instant: Instant) -> None:
        """Skip to that instant, unless it is over."""
        if instant > self.now():
            self._latest = instant * _NS_PER_MS
            self._set_offset(self._latest - self._boot)


@final
class MovedClock:
    """Goes on like another clock, and ahead of it by what somebody has moved it.

    What it was moved by has passed: locks end, schedules fall due. The wall stays, because others
    made their tokens by it, unless it is moved as well.
    """

    __slots__ = ("_clock", "_moved_ms", "_wall_moved_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._moved_ms: int = 0
        self._wall_moved_ms: int = 0

    def now(self) -> Instant:
        """Return the instant of the other clock and what this one was moved by."""
        return self._clock.now() + self._moved_ms

    def wall(self) -> Instant:
        """Return what the machine's clock says, and what that was moved by."""
        return self._clock.wall() + self._wall_moved_ms

    @property
    def moved_ms(self) -> int:
        """By how much it was moved in all."""
        return self._moved_ms

    @property
    def skipped_ms(self) -> int:
        """How much the other clock skipped: what this one is moved by passes."""
        return self._clock.skipped_ms

    def advance(self, duration_ms: int) -> None:
        """Let a duration pass at once."""
        if duration_ms < 0:
            raise ValueError(f"a clock does not run backwards: advance({duration_ms})")
        self._moved_ms += duration_ms

    def advance_wall(self, duration_ms: int) -> None:
        """Move the wall, by which tokens end."""
        if duration_ms < 0:
            raise ValueError(f"a clock does not run backwards: advance_wall({duration_ms})")
        self._wall_moved_ms += duration_ms

    def not_before(self, instant: Instant) -> None:
        """Skip to that instant, unless it is over."""
        self._clock.not_before(instant - self._moved_ms)


@final
class ManualClock:
    """Stands still until a test advances it, or sets it as a machine's clock can be set."""

    __slots__ = ("_now", "_skipped_ms", "_wall_ahead_ms")

    def __init__(self, start: Instant = MANUAL_START) -> None:
        self._now: Instant = start
        self._wall_ahead_ms: int = 0
        self._skipped_ms: int = 0

    def now(self) -> Instant:
        """Return the instant the clock was last moved to."""
        return self._now

    def wall(self) -> Instant:
        """Return the same, or what the wall was set to."""
        return self._now + self._wall_ahead_ms

    @property
    def skipped_ms(self) -> int:
        """How much was skipped."""
        return self._skipped_ms

    def advance(self, duration_ms: int) -> Instant:
        """Move forward by a duration that passes and return the new instant."""
        if duration_ms < 0:
            raise ValueError(f"a clock does not run backwards: advance({duration_ms})")
        self._now += duration_ms
        return self._now

    def move_to(self, instant: Instant) -> Instant:
        """Move forward to an instant and return it."""
        return self.advance(instant - self._now)

    def skip(self, duration_ms: int) -> Instant:
        """Move forward by a duration that does not pass and return the new instant."""
        self._skipped_ms += duration_ms
        return self.advance(duration_ms)

    def not_before(self, instant: Instant) -> None:
        """Skip to that instant, unless it is over."""
        if instant > self._now:
            self.skip(instant - self._now)

    def set_wall(self, ahead_ms: int) -> None:
        """Let the wall differ from the instant that is told."""
        self._wall_ahead_ms = ahead_ms
