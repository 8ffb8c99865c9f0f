"""What AMQP connections share before they belong to a namespace, and beside it.

There are places for those without a token, turns for those who show wrong keys, and two budgets of
bytes: what unauthenticated connections make us hold, and what all others do.
"""

from typing import Final, Protocol, final

from peeklock.budgets import Budgets
from peeklock.gateway.quotas.byte_holders import ByteHolder, ByteHolders
from peeklock.gateway.quotas.unauthenticated import (
    UnauthenticatedConnection,
    UnauthenticatedConnections,
)
from peeklock.gateway.quotas.wrong_key_throttle import WrongKeyThrottle
from peeklock.settings import CONNECTIONS_MAX

# Attaches, begun requests and frames, and unread answers of all connections without a token.
UNAUTHENTICATED_BYTES_MAX: Final = 32 * 1024 * 1024
# Attaches, begun messages and unread answers of all others.
HELD_BYTES_MAX: Final = 512 * 1024 * 1024
WRONG_KEYS_WAITING_MAX: Final = 1_000


class LimitedConnection(ByteHolder, UnauthenticatedConnection, Protocol):
    """A connection: it comes without a token, and may hold something before and after it."""


@final
class SharedLimits:
    """The shared bounds of all connections."""

    def __init__(
        self,
        budgets: Budgets | None = None,
        *,
        unauthenticated_max: int = CONNECTIONS_MAX,
        unauthenticated_bytes_max: int = UNAUTHENTICATED_BYTES_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        budgets = budgets or Budgets()
        self.unauthenticated: Final = UnauthenticatedConnections(
            budgets.register("amqp_connections_without_token", unauthenticated_max)
        )
        self.wrong_keys: Final = WrongKeyThrottle(
            budgets.register("amqp_wrong_keys_waiting", WRONG_KEYS_WAITING_MAX)
        )
        self.unauthenticated_bytes: Final = budgets.register(
            "amqp_bytes_held_without_token", unauthenticated_bytes_max
        )
        self.held_bytes: Final = budgets.register("amqp_bytes_held", held_bytes_max)
        self._without_token: Final = ByteHolders()
        self._with_token: Final = ByteHolders()
        self._is_making_room = False

    def came(self, connection: LimitedConnection, host: str) -> str:
        """Give a connection without a token a place; answers which address it counts for."""
        address = self.unauthenticated.came(connection, host)
        self._without_token.enter(connection)
        return address

    def admit(self, connection: LimitedConnection, address: str) -> None:
        """Note that a connection has shown a token."""
        self.left(connection, address)
        self._with_token.enter(connection)

    def left(self, connection: LimitedConnection, address: str) -> None:
        """Forget a connection."""
        self.unauthenticated.left(connection, address)
        self._without_token.leave(connection)
        self._with_token.leave(connection)

    def make_room_without_token(self, asking: ByteHolder) -> bool:
        """Cut the connection off that holds most, unless that is who asks; answers whether there is
        more room."""
        return self._free(self._without_token, asking)

    def make_room(self, asking: ByteHolder) -> bool:
        """Let the one that holds most give up what it has begun, or go where that frees nothing,
        unless that is who asks; answers whether there is more room."""
        return self._free(self._with_token, asking)

    def _free(self, holders: ByteHolders, asking: ByteHolder) -> bool:
        # Whoever goes may let others hold more by that: they wait until it is gone.
        largest = None if self._is_making_room else holders.largest()
        if largest is None or largest is asking:
            return False
        self._is_making_room = True
        try:
            before = largest.held.used
            if holders is self._with_token:
                largest.drop_unfinished()
            if largest.held.used >= before:
                largest.cut_off()
            return largest.held.used < before
        finally:
            self._is_making_room = False
