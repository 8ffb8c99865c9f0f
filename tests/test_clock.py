"""The clock: whole milliseconds, never backwards, whatever becomes of the clock on the wall."""

import time
from itertools import pairwise

import pytest

from peeklock.clock import MANUAL_START, Clock, ManualClock, MovedClock, SystemClock

MS = 1_000_000
SECOND = 1_000 * MS
HOUR_MS = 3_600_000


class Machine:
    """The two clocks of a machine, moved by a test."""

    def __init__(self) -> None:
        self.wall_ns = MANUAL_START * MS
        self.boot_ns = 77 * SECOND
        # What passes between two readings of the wall, whoever reads: a busy machine.
        self.pauses_ns: list[int] = []
        self.clock = SystemClock(self.wall, lambda: self.boot_ns)

    def wall(self) -> int:
        if self.pauses_ns:
            self.run(self.pauses_ns.pop())
        return self.wall_ns

    def run(self, duration_ns: int) -> None:
        self.wall_ns += duration_ns
        self.boot_ns += duration_ns

    def set_wall(self, by_ms: int) -> None:
        self.wall_ns += by_ms * MS


def test_the_system_clock_tells_milliseconds_since_1970() -> None:
    before = time.time_ns() // MS
    clock = SystemClock()
    now = clock.now()
    assert before <= now <= time.time_ns() // MS
    assert before <= clock.wall() <= time.time_ns() // MS


def test_the_system_clock_never_runs_backwards() -> None:
    clock = SystemClock()
    told = [clock.now() for _ in range(1000)]
    assert told == sorted(told)
    assert clock.skipped_ms == 0


def test_a_wall_that_is_set_back_is_waited_for_a_tenth_slower() -> None:
    machine = Machine()
    machine.run(10 * SECOND)
    before = machine.clock.now()
    machine.set_wall(-HOUR_MS)
    told = [before]
    for _ in range(100):
        machine.run(SECOND // 10)
        told.append(machine.clock.now())
    steps = {after - earlier for earlier, after in pairwise(told)}
    assert steps == {90}
    assert machine.clock.wall() == machine.wall_ns // MS < told[-1]
    for _ in range(10):
        machine.run(3_600 * SECOND)
        machine.clock.now()
    # The hour is made good after ten, and from there on both go together.
    assert machine.clock.now() == machine.clock.wall()
    machine.run(SECOND)
    assert machine.clock.now() == machine.clock.wall()
    assert machine.clock.skipped_ms == 0


def test_a_wall_that_is_set_forward_is_followed_at_once_and_what_was_skipped_is_told() -> None:
    machine = Machine()
    before = machine.clock.now()
    machine.run(2 * SECOND)
    machine.set_wall(HOUR_MS)
    assert machine.clock.now() == before + 2_000 + HOUR_MS == machine.clock.wall()
    assert machine.clock.skipped_ms == HOUR_MS
    machine.run(5 * SECOND)
    assert machine.clock.now() == before + 7_000 + HOUR_MS
    assert machine.clock.skipped_ms == HOUR_MS


def test_what_is_set_back_and_forward_again_is_skipped_as_far_as_it_was_waited_for() -> None:
    machine = Machine()
    machine.set_wall(-HOUR_MS)
    machine.run(10 * SECOND)
    before = machine.clock.now()
    machine.set_wall(HOUR_MS)
    assert machine.clock.now() == before + 1_000 == machine.clock.wall()
    assert machine.clock.skipped_ms == 1_000


def test_small_steps_add_up() -> None:
    machine = Machine()
    for _ in range(50):
        machine.run(SECOND)
        machine.wall_ns += MS // 2
        machine.clock.now()
    assert 24 <= machine.clock.skipped_ms <= 25


def test_a_pause_between_two_readings_is_no_step() -> None:
    machine = Machine()
    machine.run(SECOND)
    machine.pauses_ns = [700 * MS]
    assert machine.clock.now() == MANUAL_START + 1_700
    assert machine.clock.skipped_ms == 0


def test_no_instant_is_told_below_one_that_was_told_before_a_restart() -> None:
    machine = Machine()
    machine.clock.not_before(MANUAL_START - 5)
    assert machine.clock.now() == MANUAL_START
    machine.clock.not_before(MANUAL_START + HOUR_MS)
    assert machine.clock.now() == MANUAL_START + HOUR_MS
    assert machine.clock.skipped_ms == HOUR_MS
    machine.run(10 * SECOND)
    assert machine.clock.now() == MANUAL_START + HOUR_MS + 9_000


def test_the_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock()
    assert (clock.now(), clock.now()) == (MANUAL_START, MANUAL_START)
    assert clock.advance(250) == MANUAL_START + 250 == clock.now() == clock.wall()
    assert clock.move_to(MANUAL_START + 300) == clock.now()
    assert clock.skipped_ms == 0


def test_the_manual_clock_can_be_set_as_a_machine_s_can() -> None:
    clock = ManualClock()
    assert clock.skip(HOUR_MS) == MANUAL_START + HOUR_MS == clock.wall()
    clock.not_before(clock.now() + 5)
    clock.not_before(MANUAL_START)
    assert clock.skipped_ms == HOUR_MS + 5
    clock.set_wall(-HOUR_MS)
    assert clock.wall() == MANUAL_START + 5


def test_the_manual_clock_refuses_to_run_backwards() -> None:
    clock = ManualClock(start=10)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="backwards"):
        clock.move_to(9)
    assert clock.now() == 10


def test_all_are_clocks() -> None:
    clocks: list[Clock] = [SystemClock(), ManualClock(), MovedClock(SystemClock())]
    assert all(clock.now() > 0 for clock in clocks)


def test_a_moved_clock_is_ahead_by_what_has_passed_and_leaves_the_wall() -> None:
    other = ManualClock()
    clock = MovedClock(other)
    clock.advance(HOUR_MS)
    other.advance(5)
    assert clock.now() == MANUAL_START + HOUR_MS + 5
    assert (clock.moved_ms, clock.skipped_ms) == (HOUR_MS, 0)
    assert clock.wall() == MANUAL_START + 5
    clock.advance_wall(HOUR_MS)
    assert clock.wall() == MANUAL_START + HOUR_MS + 5
    clock.not_before(clock.now() + 1)
    clock.not_before(MANUAL_START)
    assert (clock.now(), clock.skipped_ms) == (MANUAL_START + HOUR_MS + 6, 1)
    for move in (clock.advance, clock.advance_wall):
        with pytest.raises(ValueError, match="backwards"):
            move(-1)
