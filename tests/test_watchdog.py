"""The watchdog, on loops of its own whose clocks the tests move."""

import asyncio
import gc
import logging
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from peeklock.step import STEP, Step
from peeklock.watchdog import STEP_S_MAX, Watchdog


class Clocks:
    """Wall and CPU time that pass when a test says so."""

    def __init__(self) -> None:
        self.wall_s = 1000.0
        self.cpu_s = 5.0

    def wall(self) -> float:
        return self.wall_s

    def cpu(self) -> float:
        return self.cpu_s

    def work(self, seconds: float) -> None:
        self.wall_s += seconds
        self.cpu_s += seconds

    def wait(self, seconds: float) -> None:
        self.wall_s += seconds


@contextmanager
def watching(clocks: Clocks) -> Iterator[tuple[Watchdog, asyncio.AbstractEventLoop]]:
    watchdog = Watchdog(clocks.wall, clocks.cpu)
    loop = watchdog.new_loop()
    try:
        loop.run_until_complete(asyncio.sleep(0))
        loop.call_soon(watchdog.begin)
        loop.run_until_complete(asyncio.sleep(0))
        yield watchdog, loop
    finally:
        watchdog.end()
        loop.close()


def run(loop: asyncio.AbstractEventLoop, *steps: Callable[[], None]) -> None:
    """Run steps in one turn of the loop."""

    async def all_of_them() -> None:
        for step in steps:
            loop.call_soon(step)
        await asyncio.sleep(0)

    loop.run_until_complete(all_of_them())


def test_a_long_step_is_counted_logged_and_named(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()

    def long_step() -> None:
        STEP.work = "deciding"
        clocks.work(0.030)
        clocks.wait(0.5)

    with watching(clocks) as (watchdog, loop), caplog.at_level(logging.WARNING, "peeklock.loop"):
        run(loop, lambda: clocks.work(0.0001), long_step, lambda: clocks.work(0.0001))

    assert watchdog.longest_s == pytest.approx(0.030, abs=0.001)
    assert watchdog.longest_wall_s == pytest.approx(0.530, abs=0.001)
    assert "long_step: deciding" in watchdog.longest_cause
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("loop-step-long cpu_ms=30")
    assert "deciding" in line
    beyond = [count for bound, count in counted(watchdog) if bound > STEP_S_MAX]
    assert sum(beyond) == 1
    assert STEP.work == ""


def counted(watchdog: Watchdog) -> list[tuple[float, int]]:
    bounds = (*watchdog.steps.bounds, float("inf"))
    return list(zip(bounds, watchdog.steps.counts, strict=True))


def test_short_steps_are_counted_and_do_not_add_up() -> None:
    clocks = Clocks()
    with watching(clocks) as (watchdog, loop):
        before = watchdog.steps.count
        run(loop, *[lambda: clocks.work(0.0009)] * 50)
        assert watchdog.steps.count >= before + 50
        # In one turn: everybody waited for all of them, and none of them was long.
        assert watchdog.turns.largest == pytest.approx(0.045, abs=0.001)
    assert watchdog.longest_s < 0.002


def test_many_short_turns_do_not_add_up_to_a_long_step() -> None:
    clocks = Clocks()
    with watching(clocks) as (watchdog, loop):
        for _ in range(100):
            run(loop, lambda: clocks.work(0.0004))
        run(loop, lambda: clocks.wait(0.2))
    assert watchdog.longest_s < 0.002


def test_waiting_is_not_working() -> None:
    clocks = Clocks()
    with watching(clocks) as (watchdog, loop):
        run(loop, lambda: clocks.wait(1.0))
    assert watchdog.longest_s < 0.002
    assert watchdog.turns.largest == pytest.approx(1.0, abs=0.01)


def test_work_on_one_large_message_is_counted_apart() -> None:
    clocks = Clocks()

    def large() -> None:
        STEP.is_large = True
        clocks.work(0.040)

    with watching(clocks) as (watchdog, loop):
        run(loop, large, lambda: clocks.work(0.003))
    assert watchdog.large.largest == pytest.approx(0.040, abs=0.001)
    assert watchdog.longest_s == pytest.approx(0.003, abs=0.001)


def test_only_one_large_message_is_an_excuse() -> None:
    """Many messages could have been cut into steps, however many bytes they have together."""
    mb = 1 << 20
    for size, largest, is_large in [
        (5 * mb, 5 * mb, True),
        (9 * mb, 5 * mb, True),
        (64 * mb, mb, False),
        (10 * mb, 5 * mb, False),
        (4 * mb, 4 * mb, False),
    ]:
        step = Step()
        step.works_on(size, largest)
        assert step.is_large == is_large, (size, largest)


def test_full_collections_are_counted_apart() -> None:
    clocks = Clocks()

    def collect() -> None:
        # It begins and ends between two callbacks of others, which take their time here.
        gc.callbacks.append(during)
        gc.collect()
        gc.callbacks.remove(during)

    def during(phase: str, told: dict[str, int]) -> None:
        if phase == "start":
            clocks.work(0.060)

    with watching(clocks) as (watchdog, loop):
        run(loop, collect)
    assert watchdog.collections.largest == pytest.approx(0.060, abs=0.001)
    assert watchdog.longest_s < 0.002


def test_lines_of_the_log_are_few(caplog: pytest.LogCaptureFixture) -> None:
    clocks = Clocks()
    with watching(clocks) as (_, loop), caplog.at_level(logging.WARNING, "peeklock.loop"):
        run(loop, *[lambda: clocks.work(0.020)] * 10)
        clocks.wait(1.0)
        run(loop, lambda: clocks.work(0.020))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[1].endswith("others=9")


def test_a_task_is_named_and_so_is_whose_connection_it_was() -> None:
    clocks = Clocks()

    async def work() -> None:
        clocks.work(0.020)

    with watching(clocks) as (watchdog, loop):
        loop.run_until_complete(loop.create_task(work(), name="partition orders"))
    assert watchdog.longest_cause.startswith("task partition orders (")
    assert watchdog.longest_cause.endswith("work)")

    class Slow(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            clocks.work(0.050)
            done.set()

    async def talk() -> None:
        server = await asyncio.get_running_loop().create_server(Slow, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        await done.wait()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    done = asyncio.Event()
    with watching(clocks) as (watchdog, loop):
        loop.run_until_complete(talk())
    assert watchdog.longest_cause.startswith("_read_ready of Slow ('127.0.0.1', ")


def test_nothing_is_left_of_it_when_it_ends() -> None:
    before = events.Handle._run
    clocks = Clocks()
    with watching(clocks):
        assert events.Handle._run is not before
        # Other loops of the process are none of its business.
        asyncio.run(asyncio.sleep(0))
    assert events.Handle._run is before
