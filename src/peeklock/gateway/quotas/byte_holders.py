"""Who makes us keep bytes, and who of them most, found without looking at all of them each time."""

from heapq import nlargest
from typing import Final, Protocol, final

from peeklock.amqp.held_bytes import HeldBytes

# How many of the largest are remembered from one look at all.
REMEMBERED: Final = 32


class ByteHolder(Protocol):
    """A connection."""

    @property
    def held(self) -> HeldBytes:
        """What it makes us keep."""
        ...

    def drop_unfinished(self) -> None:
        """Give up the messages that it has begun: the memory is needed."""
        ...

    def cut_off(self) -> None:
        """Go, and give back all that is held: the memory is needed."""
        ...


@final
class ByteHolders:
    """Connections that share a budget of bytes."""

    def __init__(self) -> None:
        self._all: Final[dict[ByteHolder, None]] = {}
        # Those that held most when all were looked at, and what the last of them held.
        self._largest: list[ByteHolder] = []
        self._floor = 0

    def enter(self, holder: ByteHolder) -> None:
        """Note a connection."""
        self._all[holder] = None

    def leave(self, holder: ByteHolder) -> None:
        """Forget a connection."""
        self._all.pop(holder, None)
        if holder in self._largest:
            self._largest.remove(holder)

    def largest(self) -> ByteHolder | None:
        """Find the one that holds most, or did when all were looked at and has not given up much
        since; None while nobody holds anything."""
        found = max(self._largest, key=_used, default=None)
        if found is None or _used(found) < self._floor:
            self._largest = nlargest(REMEMBERED, self._all, key=_used)
            if not self._largest:
                return None
            found = self._largest[0]
            self._floor = max(1, _used(self._largest[-1]))
        return found if _used(found) else None


def _used(holder: ByteHolder) -> int:
    return holder.held.used
