"""Timers on the loop: in time, also when somebody sets the clock."""

from __future__ import annotations

import asyncio
import logging

import pytest

from peeklock.broker.timers import LOOK_MS, LoopTimers
from peeklock.clock import ManualClock, MovedClock
from tests.broker.broker_harness import settle_down, until

HOUR_MS = 3_600_000


def test_a_timer_fires_once_the_clock_says_so_and_not_before() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        timers = LoopTimers(clock, asyncio.get_running_loop())
        rung: list[str] = []
        timers.set(clock.now() + 2, lambda: rung.append("soon"))
        timers.set(clock.now() + HOUR_MS, lambda: rung.append("later"))
        # The loop's time passes, the clock's does not.
        deadline = asyncio.get_running_loop().time() + 0.02
        await until(lambda: asyncio.get_running_loop().time() > deadline)
        assert rung == []
        clock.advance(2)
        await until(lambda: rung == ["soon"])

    asyncio.run(scenario())


def test_a_clock_that_is_set_forward_is_noticed_soon(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        loop = asyncio.get_running_loop()
        timers = LoopTimers(clock, loop)
        rung: list[str] = []
        timers.set(clock.now() + HOUR_MS + 1, lambda: rung.append("second"))
        timers.set(clock.now() + HOUR_MS, lambda: rung.append("first"))
        begun = loop.time()
        clock.skip(2 * HOUR_MS)
        await until(lambda: rung == ["first", "second"])
        assert loop.time() - begun < 10 * LOOK_MS / 1000
        clock.set_wall(-HOUR_MS)
        timers.set(clock.now(), lambda: rung.append("third"))
        await until(lambda: len(rung) == 3)

    with caplog.at_level(logging.WARNING, "peeklock.broker"):
        asyncio.run(scenario())
    assert [record.message for record in caplog.records] == [
        f"clock-set-forward by_ms={2 * HOUR_MS}",
        f"clock-set-back by_ms={HOUR_MS}",
    ]


def test_cancelled_timers_do_not_fire_and_do_not_pile_up() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        timers = LoopTimers(clock, asyncio.get_running_loop())
        rung: list[int] = []
        kept = timers.set(clock.now() + HOUR_MS, lambda: rung.append(0))
        for number in range(10_000):
            timer = timers.set(clock.now() + HOUR_MS + number, lambda: rung.append(1))
            timer.cancel()
            timer.cancel()
        assert len(timers._heap) < 1_000
        clock.advance(2 * HOUR_MS)
        await until(lambda: rung)
        await settle_down()
        kept.cancel()
        assert rung == [0]

    asyncio.run(scenario())


def test_one_who_fails_does_not_keep_the_others_from_ringing() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
        timers = LoopTimers(clock, loop)
        rung: list[int] = []

        def fail() -> None:
            raise RuntimeError("no")

        timers.set(clock.now(), fail)
        timers.set(clock.now(), lambda: rung.append(1))
        await until(lambda: rung == [1])
        assert len(failures) == 1

    asyncio.run(scenario())


def test_who_moves_the_clock_lets_it_be_looked_at_and_nobody_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        clock = MovedClock(ManualClock())
        timers = LoopTimers(clock, asyncio.get_running_loop(), is_moved=True)
        rung: list[str] = []
        timers.set(clock.now() + HOUR_MS, lambda: rung.append("later"))
        assert timers.next_at == clock.now() + HOUR_MS
        clock.advance(HOUR_MS)
        timers.look()
        await settle_down()
        assert rung == ["later"]

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert caplog.messages == []
