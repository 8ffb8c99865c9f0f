"""TLS handshakes under way: each costs memory from its first byte on, so that only so many are.

Whoever comes while all places are taken waits with its hello unread, which costs a socket. Those
who dawdle while others wait are cut off, the longest first.
"""

import asyncio
from itertools import islice
from typing import Final, Protocol, final

from peeklock.budgets import Budget

# About 90 KB each.
HANDSHAKES_MAX: Final = 500
# What a handshake may take while others wait; longer than any honest one on a busy machine.
_DAWDLE_S: Final = 2.0
# How many are cut off before others have their turn.
_CUT_OFF_AT_ONCE_MAX: Final = 32


class Shaking(Protocol):
    """A connection that wants a handshake."""

    def shake(self) -> None:
        """Begin the handshake."""
        ...

    def abort(self) -> None:
        """End the connection."""
        ...


@final
class Handshakes:
    """Gives places to handshakes, in the order of their coming."""

    def __init__(self, budget: Budget, *, dawdle_s: float = _DAWDLE_S) -> None:
        self._budget = budget
        self._dawdle_s = dawdle_s
        # With the instant from which on each has taken too long.
        self._begun: dict[Shaking, float] = {}
        self._waiting: dict[Shaking, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, shaking: Shaking) -> None:
        """Let a handshake begin, now or when there is a place for it."""
        if self._budget.is_exhausted:
            self._waiting[shaking] = None
            self._look_later()
        else:
            self._let_begin(shaking)

    def ended(self, shaking: Shaking) -> None:
        """Forget a handshake that is done, has failed or was not waited for."""
        self._waiting.pop(shaking, None)
        if self._begun.pop(shaking, None) is None:
            return
        self._budget.give_back(1)
        if self._waiting and not self._budget.is_exhausted:
            following = next(iter(self._waiting))
            del self._waiting[following]
            self._let_begin(following)

    def _let_begin(self, shaking: Shaking) -> None:
        self._budget.take_anyway(1)
        self._begun[shaking] = asyncio.get_running_loop().time() + self._dawdle_s
        shaking.shake()

    def _look_later(self) -> None:
        if self._timer is None and self._begun:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(next(iter(self._begun.values())), self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        count = min(len(self._waiting), _CUT_OFF_AT_ONCE_MAX)
        oldest = list(islice(self._begun.items(), count))
        for shaking in [shaking for shaking, due in oldest if due <= now]:
            self._budget.refused += 1
            shaking.abort()
        if self._waiting:
            self._look_later()
