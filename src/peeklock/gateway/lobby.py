"""What AMQP connections share before they belong to a namespace, and beside it.

There are places for those without a token, turns for those who show wrong keys, and two budgets of
bytes: what strangers make us hold, and what all others do.
"""

from typing import Final, Protocol, final

from peeklock.amqp.held import HeldBytes
from peeklock.budgets import Budgets
from peeklock.gateway.guesses import Guesses
from peeklock.gateway.strangers import Stranger, Strangers
from peeklock.settings import CONNECTIONS_MAX

# Attaches, begun requests and unread answers of all connections without a token.
STRANGER_BYTES_MAX: Final = 32 * 1024 * 1024
# Attaches, begun messages and unread answers of all others.
HELD_BYTES_MAX: Final = 512 * 1024 * 1024
GUESSES_WAITING_MAX: Final = 1_000


class Holder(Protocol):
    """A connection with a token."""

    @property
    def held(self) -> HeldBytes:
        """What it makes us keep."""
        ...

    def drop_unfinished(self) -> None:
        """Give up the messages that it has begun: the memory is needed."""
        ...


@final
class Lobby:
    """The shared bounds of all connections."""

    __slots__ = ("_holders", "guesses", "held_bytes", "stranger_bytes", "strangers")

    def __init__(
        self,
        budgets: Budgets | None = None,
        *,
        strangers_max: int = CONNECTIONS_MAX,
        stranger_bytes_max: int = STRANGER_BYTES_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        budgets = budgets or Budgets()
        self.strangers: Final = Strangers(
            budgets.register("amqp_connections_without_token", strangers_max)
        )
        self.guesses: Final = Guesses(
            budgets.register("amqp_wrong_keys_waiting", GUESSES_WAITING_MAX)
        )
        self.stranger_bytes: Final = budgets.register(
            "amqp_bytes_held_without_token", stranger_bytes_max
        )
        self.held_bytes: Final = budgets.register("amqp_bytes_held", held_bytes_max)
        self._holders: Final[dict[Holder, None]] = {}

    def enter(self, holder: Holder) -> None:
        """Note a connection that has shown a token."""
        self._holders[holder] = None

    def leave(self, holder: Holder) -> None:
        """Forget a connection."""
        self._holders.pop(holder, None)

    def make_room_for_stranger(self, asking: Stranger) -> bool:
        """Let a stranger go, so that another may hold more; answers whether somebody went."""
        return self.strangers.let_one_go(asking)

    def make_room(self, asking: Holder) -> bool:
        """Let the one that holds most give up what it has begun, unless that is who asks."""
        largest = max(self._holders, key=_used, default=asking)
        if largest is asking:
            return False
        before = largest.held.used
        largest.drop_unfinished()
        return largest.held.used < before


def _used(holder: Holder) -> int:
    return holder.held.used
