"""How much of what has come on a connection is worked off in one pass; others have their turn then.

A pass is a step of the loop. What a peer asks for is counted by what it costs, so a read full of
what is dear is several short steps, and so is one full of tiny frames
(`amqp/frames/frame_splitter.py`).
"""

from typing import Any, Final, final

from peeklock.amqp.sessions.delivery import IncomingDelivery

# What one pass does, in messages that are read: about as many microseconds.
PASS_COST: Final = 4_000
# A token costs a signature, a request to `$management` a look at its arguments.
TOKEN_COST: Final = 40
_REQUEST_COST: Final = 20
_REQUEST_BYTES: Final = 16
# The end of a link is told to each partition of its entity.
LINK_COST: Final = 40
# Whether a link may stay is a look at the rights of its paths.
REVIEW_COST: Final = 4
# A flow asks a partition for more.
FLOW_COST: Final = 4


@final
class Pass:
    """What is left of a pass."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: int = PASS_COST

    def begin(self) -> None:
        """Begin another one."""
        self.left = PASS_COST


@final
class Begun:
    """What a pass has read of a delivery whose rest is for another pass. It belongs to that
    delivery: one that is refused in between leaves nothing to the next one."""

    __slots__ = ("_delivery", "_read")

    def __init__(self) -> None:
        self._delivery: IncomingDelivery | None = None
        self._read: Any = None

    def keep(self, delivery: IncomingDelivery, read: Any) -> None:
        """Keep what was read until the delivery is looked at again."""
        self._delivery = delivery
        self._read = read

    def take(self, delivery: IncomingDelivery) -> Any:
        """Give what was read of a delivery, or None; nothing is kept any more then."""
        read = self._read if self._delivery is delivery else None
        self._delivery = None
        self._read = None
        return read


def request_cost(size: int) -> int:
    """What a request of so many bytes costs, about."""
    return _REQUEST_COST + size // _REQUEST_BYTES
