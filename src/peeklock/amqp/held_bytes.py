"""Bytes that a peer makes us keep: its attaches, messages that it has begun, answers it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from peeklock.budgets import Budget

# What a kept piece takes beside its bytes: an object, and its place in a list.
PIECE_BYTES: Final = 64
# So many others are let go for one that needs room.
ROUNDS_MAX: Final = 16
# What a connection may hold whose owner has set no limit.
NO_LIMIT: Final = 1 << 62


@final
class HeldBytes:
    """What one connection holds, within a limit of its own and a budget of all together.

    `make_room` is asked where that of all is used up: it lets somebody go who holds more.
    """

    __slots__ = ("base", "limit", "make_room", "shared", "used")

    def __init__(self, limit: int = NO_LIMIT, shared: Budget | None = None) -> None:
        self.base = limit
        self.limit = limit
        self.shared = shared
        self.make_room: Callable[[], bool] | None = None
        self.used = 0

    def take(self, amount: int) -> bool:
        """Keep so many bytes more; return whether there is room for them."""
        shared = self.shared
        if self.used + amount > self.limit:
            if shared is not None:
                shared.refused += 1
            return False
        if shared is not None:
            rounds = 0
            while not shared.take(amount):
                rounds += 1
                if rounds > ROUNDS_MAX or self.make_room is None or not self.make_room():
                    return False
        self.used += amount
        return True

    def give_back(self, amount: int) -> None:
        """Keep so many bytes less."""
        amount = min(amount, self.used)
        self.used -= amount
        if self.shared is not None:
            self.shared.give_back(amount)

    def move(self, limit: int, shared: Budget | None) -> None:
        """Let another limit and another budget hold: the peer has shown who it is."""
        if self.shared is not None:
            self.shared.give_back(self.used)
        if shared is not None:
            shared.take_anyway(self.used)
        self.base = limit
        self.limit = limit
        self.shared = shared

    def allow_message(self, size: int) -> None:
        """Let there be room for a message of this size, whatever else is held."""
        self.limit = max(self.limit, self.base + size)
