"""The connections that speak HTTP: how many there are, and what is held in memory for them."""

from collections.abc import Iterator
from typing import Final, Protocol, final

from peeklock.budgets import Budgets
from peeklock.settings import HTTP_CONNECTIONS_MAX

# Large bodies that are being read, and answers that nobody reads. It holds two of the largest
# messages, or 32 pages of the journal.
BYTES_MAX: Final = 256 * 1024 * 1024


class LimitedHttpConnection(Protocol):
    """One connection, as the others' limits see it."""

    def abort(self) -> None:
        """End it at once."""
        ...

    def shut_down(self) -> None:
        """End it when what is worked on is answered."""
        ...


@final
class HttpConnectionQuota:
    """Counts connections and bytes; whoever has waited longest makes room for who comes."""

    def __init__(
        self,
        budgets: Budgets | None = None,
        *,
        connections_max: int = HTTP_CONNECTIONS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        budgets = budgets or Budgets()
        self._connections = budgets.register("http_connections", connections_max)
        self._bytes = budgets.register("http_bytes", bytes_max)
        # What is held for each: of its body, and of answers that it does not read.
        self._bodies: dict[LimitedHttpConnection, int] = {}
        self._unread: dict[LimitedHttpConnection, int] = {}
        self._all: set[LimitedHttpConnection] = set()
        # Those for whom nothing is worked on, in the order in which they were last answered, or
        # came: who sends a head byte by byte gets no younger by it.
        self._waiting: dict[LimitedHttpConnection, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[LimitedHttpConnection]:
        return iter(list(self._all))

    def joined(self, connection: LimitedHttpConnection) -> bool:
        """Take a connection in; answers whether there was a place for it."""
        if self._connections.is_exhausted:
            self.make_room()
        if not self._connections.take(1):
            return False
        self._all.add(connection)
        self._waiting[connection] = None
        return True

    def left(self, connection: LimitedHttpConnection) -> None:
        """Forget a connection."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        self._waiting.pop(connection, None)
        self._connections.give_back(1)
        self.gave_body(connection)
        self.read(connection)

    def busy(self, connection: LimitedHttpConnection) -> None:
        """Something is worked on for a connection: it is not let go meanwhile."""
        self._waiting.pop(connection, None)

    def answered(self, connection: LimitedHttpConnection) -> None:
        """A connection has its answer, and is the last who would be let go."""
        if connection in self._all:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def make_room(self) -> bool:
        """Let the one go that waits longest; answers whether there was one."""
        for connection in self._waiting:
            self._connections.refused += 1
            self._let_go(connection)
            return True
        return False

    # --- bytes

    def takes_body(self, connection: LimitedHttpConnection, size: int) -> bool:
        """Hold more of a large body; answers whether there is room for it."""
        while self._bytes.used + size > self._bytes.limit and self._unread:
            self._let_go(next(iter(self._unread)))
        if not self._bytes.take(size):
            return False
        self._bodies[connection] = self._bodies.get(connection, 0) + size
        return True

    def gave_body(self, connection: LimitedHttpConnection) -> None:
        """Hold nothing more of a body."""
        self._bytes.give_back(self._bodies.pop(connection, 0))

    def leaves_unread(self, connection: LimitedHttpConnection, size: int) -> None:
        """Hold an answer that is not read at once; who does so for longest goes, not the answer:
        what it tells may have been done."""
        if connection not in self._all:
            return
        self._bytes.take_anyway(size)
        self._unread[connection] = self._unread.get(connection, 0) + size
        while self._bytes.used > self._bytes.limit and len(self._unread) > 1:
            self._bytes.refused += 1
            self._let_go(next(iter(self._unread)))

    def read(self, connection: LimitedHttpConnection) -> None:
        """Hold nothing unread any more."""
        self._bytes.give_back(self._unread.pop(connection, 0))

    def _let_go(self, connection: LimitedHttpConnection) -> None:
        self.left(connection)
        connection.abort()
