"""How many connections with a token a namespace has, and whether it takes another (R-F7)."""

from typing import Final, final

from peeklock.budgets import Budget
from peeklock.settings import CONNECTIONS_MAX


def budget_name(namespace: str) -> str:
    """Name the connections of a namespace as operators see them."""
    return f"amqp_connections_{namespace}"


@final
class ConnectionQuota:
    """Counts the connections of one namespace; a place is taken by showing a token or a key."""

    def __init__(self, places: Budget | None = None) -> None:
        self._places: Final = places or Budget("amqp_connections", CONNECTIONS_MAX)

    @property
    def connections_max(self) -> int:
        """How many there may be."""
        return self._places.limit

    @property
    def count(self) -> int:
        """How many there are."""
        return self._places.used

    def join(self) -> bool:
        """Count one more, if there is room for it; answers whether there was."""
        return self._places.take(1)

    def leave(self) -> None:
        """Count one less."""
        self._places.give_back(1)
