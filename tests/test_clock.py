"""The clock: whole milliseconds, never backwards."""

import time

import pytest

from peeklock.clock import MANUAL_START, Clock, ManualClock, SystemClock


def test_the_system_clock_tells_milliseconds_since_1970() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now()
    assert before <= now <= time.time_ns() // 1_000_000


def test_the_system_clock_never_runs_backwards() -> None:
    clock = SystemClock()
    told = [clock.now() for _ in range(1000)]
    assert told == sorted(told)


def test_the_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock()
    assert (clock.now(), clock.now()) == (MANUAL_START, MANUAL_START)
    assert clock.advance(250) == MANUAL_START + 250 == clock.now()
    assert clock.move_to(MANUAL_START + 300) == clock.now()


def test_the_manual_clock_refuses_to_run_backwards() -> None:
    clock = ManualClock(start=10)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="backwards"):
        clock.move_to(9)
    assert clock.now() == 10


def test_both_are_clocks() -> None:
    clocks: list[Clock] = [SystemClock(), ManualClock()]
    assert all(clock.now() > 0 for clock in clocks)
