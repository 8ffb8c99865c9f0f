"""Limits with their present use, kept in one place.

Whatever can grow on somebody's behalf (bytes of a connection, connections of an address, memory of
a backlog) takes from a budget and gives back. The operator of a refused client then sees which one
ended: every registered budget is shown with its limit, its use and how often it refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final


@final
class Budget:
    """An amount that may be in use at once; counts what it had to refuse."""

    __slots__ = ("limit", "name", "peak", "refused", "used")

    def __init__(self, name: str, limit: int) -> None:
        self.name: Final[str] = name  # as operators read it, with its unit: connections, http_bytes
        self.limit: int = limit
        self.used: int = 0
        self.peak: int = 0
        self.refused: int = 0

    def take(self, amount: int) -> bool:
        """Take an amount, or count a refusal and return False; nothing is taken then."""
        used = self.used + amount
        if used > self.limit:
            self.refused += 1
            return False
        self.used = used
        if used > self.peak:
            self.peak = used
        return True

    def take_anyway(self, amount: int) -> None:
        """Take an amount that must not be refused, even beyond the limit."""
        self.used += amount
        if self.used > self.peak:
            self.peak = self.used

    def give_back(self, amount: int) -> None:
        """Return an amount that was taken."""
        assert amount <= self.used, f"{self.name}: more is given back than was taken"
        self.used -= amount

    @property
    def is_exhausted(self) -> bool:
        """Tell whether nothing more can be taken."""
        return self.used >= self.limit


@final
class Budgets:
    """All budgets of a process that an operator may look at, by name."""

    __slots__ = ("_budgets",)

    def __init__(self) -> None:
        self._budgets: Final[dict[str, Budget]] = {}

    def register(self, name: str, limit: int) -> Budget:
        """Make a budget that is shown; a name is used once."""
        if name in self._budgets:
            raise ValueError(f"there is a budget named {name!r} already")
        budget = Budget(name, limit)
        self._budgets[name] = budget
        return budget

    def forget(self, name: str) -> None:
        """Show a budget no more, because what it bounded is gone; one that is not there is fine."""
        self._budgets.pop(name, None)

    def __iter__(self) -> Iterator[Budget]:
        return iter(self._budgets.values())
