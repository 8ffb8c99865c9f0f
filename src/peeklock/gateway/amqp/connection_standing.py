"""How far a connection has come: without a token and limited, then with one."""

from typing import Final, final

from peeklock.amqp.held_bytes import HeldBytes
from peeklock.gateway.quotas.shared_limits import LimitedConnection, SharedLimits

# The steps to a token.
AUTHENTICATED: Final = 1
OPENED: Final = 2
ATTACHED: Final = 3
ASKED: Final = 4
ADMITTED: Final = 5


@final
class ConnectionStanding:
    """Its place, how far it has come, and what it makes us keep."""

    __slots__ = ("_counted", "_owner", "_shared_limits", "_step", "address", "held")

    def __init__(
        self, owner: LimitedConnection, shared_limits: SharedLimits, host: str, held_max: int
    ) -> None:
        """The host is the address that it counts for."""
        self._owner: LimitedConnection | None = owner
        self._shared_limits: Final = shared_limits
        self.held: Final = HeldBytes(held_max, shared_limits.unauthenticated_bytes)
        self.held.make_room = self._make_room
        self.address: Final = shared_limits.came(owner, host)
        self._step = 0
        # What a connection without a token leaves unread or half said, as it was last counted.
        self._counted = 0

    @property
    def is_admitted(self) -> bool:
        """Whether it has what a connection with a token may have."""
        return self._step >= ADMITTED

    def progressed(self, step: int) -> None:
        """Note a step on the way to a token; each counts once."""
        if step > self._step and self._owner is not None:
            self._step = step
            self._shared_limits.unauthenticated.progressed(self._owner, self.address)

    def admit(self, held_max: int) -> None:
        """Let it hold what a connection with a token may hold."""
        self._step = ADMITTED
        if self._owner is not None:
            self._shared_limits.admit(self._owner, self.address)
        self.held.give_back(self._counted)
        self._counted = 0
        self.held.move(held_max, self._shared_limits.held_bytes)

    def count(self, unread: int, half_said: int) -> bool:
        """Count what it leaves unread and half said without a token; tells whether it may.

        What is half said is a frame or a read at most, so only all connections without a token
        together can have too much of it.
        """
        self.held.limit = self.held.base + half_said
        size = unread + half_said
        more = size - self._counted
        if more > 0 and not self.held.take(more):
            return False
        if more < 0:
            self.held.give_back(-more)
        self._counted = size
        return True

    def leave(self) -> None:
        """Free its place: it is over."""
        if self._owner is not None:
            self._shared_limits.left(self._owner, self.address)

    def let_go(self) -> None:
        """Give everything back at once, because others need it; what ends later frees nothing
        more."""
        self.leave()
        self.held.give_back(self.held.used)
        self._counted = 0

    def part(self) -> None:
        """Let go of its owner: nothing should wait in memory for a rare collection."""
        self.leave()
        self._owner = None
        self.held.make_room = None

    def _make_room(self) -> bool:
        if self._owner is None:
            return False
        if self._step >= ADMITTED:
            return self._shared_limits.make_room(self._owner)
        return self._shared_limits.make_room_without_token(self._owner)
