"""The loop behind the blocking client."""

import asyncio
import os
import threading

import pytest

from peeklock.client.blocking_loop import BlockingLoop


async def value(result: int) -> int:
    await asyncio.sleep(0)
    return result


async def failure() -> None:
    raise KeyError("inside")


def test_a_coroutine_is_run_and_waited_for() -> None:
    loop = BlockingLoop.of_this_process()
    assert loop.run(value(3)) == 3
    with pytest.raises(KeyError, match="inside"):
        loop.run(failure())


def test_everybody_in_a_process_shares_one_loop() -> None:
    loop = BlockingLoop.of_this_process()
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda at=at: found.append(loop.run(value(at)))) for at in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8))
    assert BlockingLoop.of_this_process() is loop


def test_the_loop_does_not_wait_for_itself() -> None:
    loop = BlockingLoop.of_this_process()

    async def inside() -> None:
        loop.run(value(1))

    with pytest.raises(RuntimeError, match="its own event loop"):
        loop.run(inside())


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    before = BlockingLoop.of_this_process()
    child = os.fork()
    if child == 0:
        mine = BlockingLoop.of_this_process()
        is_well = mine is not before and mine.run(value(5)) == 5
        os._exit(0 if is_well else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
