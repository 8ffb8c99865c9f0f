"""How many connections a namespace has, and whether it takes another (R-F7)."""

from typing import Final, final

from peeklock.settings import CONNECTIONS_MAX


@final
class Attendance:
    """Counts the connections of one namespace."""

    __slots__ = ("connections_max", "count")

    def __init__(self, connections_max: int = CONNECTIONS_MAX) -> None:
        self.connections_max: Final = connections_max
        self.count = 0

    def join(self) -> bool:
        """Count one more, if there is room for it; answers whether there was."""
        if self.count >= self.connections_max:
            return False
        self.count += 1
        return True

    def leave(self) -> None:
        """Count one less."""
        self.count -= 1
