"""Where commits are done: on the loop while they are short, on the thread while they are not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from peeklock.store.committers import (
    COMMITTERS,
    INLINE_BYTES_MAX,
    INLINE_S_MAX,
    Adaptive,
    CommitRequest,
    Committed,
    Submission,
)
from peeklock.store.store import StoreError, Unavailable


class Disk:
    """Commits in no time, on whatever thread, and says how long that took."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.now = 0.0
        self.threads: list[str] = []
        self.sizes: list[int] = []

    def commit(self, batch: list[Submission]) -> list[int | StoreError]:
        self.now += self.takes_s
        self.threads.append(threading.current_thread().name)
        self.sizes.append(len(batch))
        return [number for number, _ in enumerate(batch)]

    def clock(self) -> float:
        return self.now


class Sized:
    """A request of which a committer sees the size alone."""

    def __init__(self, size: int) -> None:
        self.size = size


def request(size: int = 100) -> tuple[CommitRequest, Committed]:
    return cast(CommitRequest, Sized(size)), asyncio.get_running_loop().create_future()


def test_short_commits_move_to_the_loop_and_long_ones_back() -> None:
    """R-F3: the fixed price of a commit is paid where it is lower."""

    async def scenario() -> None:
        disk = Disk(INLINE_S_MAX / 10)
        committer = Adaptive(disk.commit, "disk", disk.clock)
        for _ in range(40):
            waiting = request()
            committer.submit(waiting)
            await waiting[1]
        assert disk.threads[0] == "commit-disk"
        assert disk.threads[-1] == "MainThread"
        disk.takes_s = INLINE_S_MAX * 10
        for _ in range(40):
            waiting = request()
            committer.submit(waiting)
            await waiting[1]
        assert disk.threads[-1] == "commit-disk"
        await committer.finish()

    asyncio.run(scenario())


def test_the_loop_waits_until_the_thread_has_answered() -> None:
    async def scenario() -> None:
        disk = Disk(INLINE_S_MAX / 10)
        committer = Adaptive(disk.commit, "disk", disk.clock)
        first, second = request(), request()
        committer.submit(first)
        committer.mean_s = 0.0
        places = [committer.is_inline]
        committer.submit(second)
        await asyncio.gather(first[1], second[1])
        assert set(disk.threads) == {"commit-disk"}
        places.append(committer.is_inline)
        assert places == [False, True]
        await committer.finish()

    asyncio.run(scenario())


def test_a_large_commit_leaves_the_loop_and_takes_along_what_waits_there() -> None:
    """A mean says nothing of the next one; and nobody is overtaken."""

    async def scenario() -> None:
        disk = Disk(INLINE_S_MAX / 10)
        committer = Adaptive(disk.commit, "disk", disk.clock)
        committer.mean_s = 0.0
        small, large, after = request(), request(INLINE_BYTES_MAX + 1), request()
        committer.submit(small)
        committer.submit(large)
        committer.submit(after)
        await asyncio.gather(small[1], large[1], after[1])
        assert set(disk.threads) == {"commit-disk"}
        assert sum(disk.sizes) == 3
        again = request()
        committer.submit(again)
        await again[1]
        assert disk.threads[-1] == "MainThread"
        # Many small ones are large together.
        many = [request(INLINE_BYTES_MAX // 4) for _ in range(8)]
        before = len(disk.threads)
        for each in many:
            committer.submit(each)
        await asyncio.gather(*(answer for _, answer in many))
        assert "MainThread" not in disk.threads[before:]
        await committer.finish()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", COMMITTERS)
def test_all_that_was_handed_over_is_answered_at_the_end(name: str) -> None:
    async def scenario() -> None:
        disk = Disk()
        committer = COMMITTERS[name](disk.commit, "disk")
        requests = [request() for _ in range(5)]
        for waiting in requests:
            committer.submit(waiting)
        await committer.finish()
        answers: list[Any] = await asyncio.gather(*(answer for _, answer in requests))
        assert len(answers) == 5
        assert sum(disk.sizes) == 5

    asyncio.run(scenario())


def test_an_error_is_the_answer_to_its_request_alone() -> None:
    async def scenario() -> None:
        failure = Unavailable("no")
        committer = COMMITTERS["inline"](lambda _: [failure, 2], "disk")
        first, second = request(), request()
        committer.submit(first)
        committer.submit(second)
        with pytest.raises(Unavailable):
            await first[1]
        assert await second[1] == 2

    asyncio.run(scenario())
