"""Whoever has much to do lets the others get on, on a loop whose clock the tests move."""

import asyncio
from collections.abc import Iterator

import pytest

from peeklock.turns import PATIENCE_S, TURNS, WORK_S
from tests.test_watchdog import Clocks, watching

# The turns that a request takes, about.
REQUEST_TURNS = 12


@pytest.fixture
def busy() -> Iterator["Busy"]:
    TURNS.committing = 3  # a loop that was closed with commits under way leaves them counted
    clocks = Clocks()
    with watching(clocks) as (_, loop):
        yield Busy(clocks, loop)


class Busy:
    """A loop on which somebody has much to do, in slices."""

    def __init__(self, clocks: Clocks, loop: asyncio.AbstractEventLoop) -> None:
        self.clocks = clocks
        self.loop = loop
        self.slices = 0
        self.slices_max = 1 << 30
        self.is_over = False

    async def work(self, slice_s: float) -> None:
        while not self.is_over and self.slices < self.slices_max:
            self.clocks.work(slice_s)
            self.slices += 1
            await TURNS.give_way()

    async def request(self, turn_s: float = 0.0) -> int:
        """Tells how many slices it had to wait for."""
        before = self.slices
        for _ in range(REQUEST_TURNS):
            self.clocks.work(turn_s)
            await asyncio.sleep(0)
        return self.slices - before

    async def requests(self, slice_s: float, *, workers: int = 1, turn_s: float = 0.0) -> list[int]:
        """What some requests, one after the other, had to wait for."""
        tasks = [self.loop.create_task(self.work(slice_s)) for _ in range(workers)]
        waited = [await self.request(turn_s) for _ in range(10)]
        self.is_over = True
        await asyncio.gather(*tasks)
        return waited


def test_a_request_waits_for_a_slice_not_for_one_in_each_turn(busy: Busy) -> None:
    """Each of its dozen turns had a slice of whoever was busy: 1.3 ms became 16, and 80 with what
    its commits waited."""
    waited = busy.loop.run_until_complete(busy.requests(1.3 * WORK_S))
    assert max(waited) <= 1


def test_several_who_are_busy_take_turns(busy: Busy) -> None:
    """All of them went on in one turn, when the time of one was up."""
    waited = busy.loop.run_until_complete(busy.requests(1.3 * WORK_S, workers=5))
    assert max(waited[1:]) <= 1


def test_each_of_several_who_are_busy_gets_on(busy: Busy) -> None:
    async def all_of_them() -> list[int]:
        done = [0] * 5

        async def work(number: int) -> None:
            while not busy.is_over:
                busy.clocks.work(1.3 * WORK_S)
                done[number] += 1
                await TURNS.give_way()

        tasks = [busy.loop.create_task(work(number)) for number in range(5)]
        for _ in range(20):
            await busy.request(PATIENCE_S / 4)
        busy.is_over = True
        await asyncio.gather(*tasks)
        return done

    done = busy.loop.run_until_complete(all_of_them())
    assert min(done) >= max(done) - 2 > 0


def test_who_is_called_off_keeps_nobody_waiting(busy: Busy) -> None:
    async def some() -> None:
        first = busy.loop.create_task(busy.work(2 * WORK_S))
        second = busy.loop.create_task(busy.work(2 * WORK_S))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        before = busy.slices
        await busy.request(PATIENCE_S / 4)
        assert busy.slices > before
        busy.is_over = True
        await second

    busy.loop.run_until_complete(some())


def test_short_slices_go_on_until_they_are_a_millisecond(busy: Busy) -> None:
    [first, *_] = busy.loop.run_until_complete(busy.requests(WORK_S / 5))
    assert 5 <= first <= 6


def test_who_is_busy_does_not_wait_for_ever(busy: Busy) -> None:
    """Others that are never done get twice as much, not everything."""
    waited = busy.loop.run_until_complete(busy.requests(WORK_S, turn_s=PATIENCE_S / 4))
    assert sum(waited) >= 10 * REQUEST_TURNS // 5


@pytest.mark.parametrize("workers", [1, 4])
def test_nobody_waits_where_nobody_else_is_there(busy: Busy, workers: int) -> None:
    """A turn behind each slice for each of them, to see that there is nobody."""

    async def some() -> int:
        busy.slices_max = 100
        before = sum(TURNS.steps)
        await asyncio.gather(*[busy.work(WORK_S) for _ in range(workers)])
        return sum(TURNS.steps) - before

    assert busy.loop.run_until_complete(some()) <= 100 * (2 + 2 * workers)


def test_while_somebody_commits_the_interpreter_is_given_away(busy: Busy) -> None:
    async def one() -> float:
        TURNS.committing += 1
        begun = busy.loop.time()
        busy.clocks.work(2 * WORK_S)
        await TURNS.give_way()
        TURNS.committing -= 1
        return busy.loop.time() - begun

    assert busy.loop.run_until_complete(one()) >= 0.0009


def test_where_nobody_watches_it_is_one_turn() -> None:
    async def one() -> float:
        loop = asyncio.get_running_loop()
        turns: list[int] = []
        loop.call_soon(turns.append, 1)
        await TURNS.give_way()
        return len(turns)

    assert asyncio.run(one()) == 1
