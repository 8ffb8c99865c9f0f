"""What all connections have ahead of their readers, in one budget, and who waits for it.

Partitions look at the budget before they hand messages to a receiver, and count what they have
decided on until the gateway has it; each connection then counts what its peer has not taken.
While the budget is exhausted nobody gets more who has something to take already; a connection that
has taken everything gets the least share, so that others cannot stop it. Receivers wait in one line
and ask again, in turns, as others read or are cut off.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

from peeklock.budgets import Budget

NAME: Final = "amqp_delivery_bytes"
DELIVERY_BYTES_MAX: Final = 512 * 1024 * 1024
# How many ask again in one step of the loop.
_SERVED_AT_ONCE: Final = 64
# Who takes nothing for so long while others wait is cut off: its window may be closed for ever.
STALLED_MS_MAX: Final = 120_000


class BudgetWaiter(Protocol):
    """A node that could get messages, were it not for the budget."""

    def flowed(self) -> None:
        """Ask again."""
        ...


@final
class UnsentBudget:
    """The budget of all deliveries that no reader has taken, and the line before it."""

    __slots__ = ("_is_called", "_later", "budget", "line")

    def __init__(
        self,
        budget: Budget | None = None,
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """With `later`, the loop's call_soon, a long line is served in several steps."""
        self.budget: Final = budget or Budget(NAME, DELIVERY_BYTES_MAX)
        self._later: Final = later
        self._is_called = False
        self.line: dict[BudgetWaiter, bool] = {}

    def count(self, before: int, now: int) -> None:
        """Note what a connection has ahead, instead of what it had."""
        if now > before:
            self.budget.take_anyway(now - before)
        else:
            self.budget.give_back(before - now)

    def serve(self) -> None:
        """Let those in the line ask again, as long as there is something to get."""
        if not self.line or self._is_called or self.budget.is_exhausted:
            return
        served = list(self.line)
        if self._later is not None and len(served) > _SERVED_AT_ONCE:
            served = served[:_SERVED_AT_ONCE]
            self._is_called = True
            self._later(self._go_on)
        for waiting in served:
            del self.line[waiting]
        for waiting in served:
            waiting.flowed()

    def _go_on(self) -> None:
        self._is_called = False
        self.serve()
