"""Turns of the event loop: how whoever has much to do lets the others get on.

A request takes a dozen turns of the loop, and its commit, on a thread, as many of the interpreter.
Somebody who works a millisecond in each turn makes all of them as long: no step is, and yet a
request waits for dozens. So whatever can be cut stops after a millisecond of work until the loop
has nothing else to do. If a commit is under way it sleeps for as long, because compiled code does
not give the interpreter away, and a look for news that does not wait gives it for too short a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, final

# After so much work the others come first, and not longer than that where they never end.
WORK_S: Final = 0.001
PATIENCE_S: Final = 0.002
# How long one sleeps for a commit that is under way; no selector sleeps shorter.
_SLEEP_S: Final = 0.001


@final
class Turns:
    """What is known of the loop's turns; the watchdog keeps it up, where there is one."""

    __slots__ = (
        "_idle",
        "_spent_s",
        "_ticket",
        "_until",
        "_waiting",
        "committing",
        "news",
        "since",
        "steps",
        "wall",
    )

    def __init__(self) -> None:
        self.wall: Callable[[], float] = perf_counter
        # Wall time at the last boundary of a step.
        self.since: float = 0.0
        # Turns in which there was something to read or write.
        self.news: int = 0
        # How many steps took how long, none of them counted where nobody watches.
        self.steps: list[int] = []
        # Requests that a thread is to commit.
        self.committing: int = 0
        # Steps in which somebody only looked whether the others are done.
        self._idle: int = 0
        self._spent_s: float = 0.0
        # Who waits for the others, the longest first, and until when: one of them goes on then.
        self._waiting: dict[int, bool] = {}
        self._ticket: int = 0
        self._until: float = 0.0

    def begin(self, wall: Callable[[], float], steps: list[int]) -> None:
        """A loop is watched from now on."""
        self.wall = wall
        self.steps = steps
        self.since = wall()
        # What a loop that was closed has left under way is nobody's concern.
        self.committing = 0
        self._idle = 0
        self._spent_s = 0.0
        self._waiting = {}

    def end(self) -> None:
        """No loop is watched any more."""
        self.steps = []

    def worked(self) -> None:
        """Say, before an await, that this step did something that can be cut."""
        self._spent_s += self.wall() - self.since

    async def give_way(self) -> None:
        """Let the others have a turn; behind a millisecond of work, until they are done."""
        self.worked()
        if self._spent_s < WORK_S or not self.steps:
            await asyncio.sleep(0)
            return
        self._spent_s = 0.0
        self._until = self.wall() + PATIENCE_S
        self._ticket += 1
        ticket = self._ticket
        self._waiting[ticket] = True
        try:
            await self._wait_for_others(ticket)
        finally:
            self._waiting.pop(ticket, None)

    async def _wait_for_others(self, ticket: int) -> None:
        pause_s = _SLEEP_S if self.committing > 0 else 0.0
        while True:
            news = self.news
            done = sum(self.steps) - self._idle
            await asyncio.sleep(pause_s)
            # The step that went to sleep has been counted since then.
            is_quiet = self.news == news and sum(self.steps) - self._idle <= done + 1
            is_next = next(iter(self._waiting), ticket) == ticket
            if is_next and (is_quiet or self.wall() >= self._until):
                return
            pause_s = 0.0
            self._idle += 1


TURNS: Final[Turns] = Turns()
