"""A receiver as its partition knows it: how much more it takes, by count and by bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from peeklock.entity.replies import Origin

if TYPE_CHECKING:
    from peeklock.budgets import Budget
    from peeklock.entity.lane import Lane


@final
class Receiver:
    """Who waits for messages of a lane, and for how many more."""

    __slots__ = (
        "budget",
        "closed",
        "consumer",
        "delivered",
        "drain",
        "lane",
        "limit",
        "mode",
        "origin",
        "size_delivered",
        "size_limit",
        "waiting",
        "watch",
    )

    def __init__(self, origin: Origin, lane: Lane, mode: int, consumer: str) -> None:
        self.origin: Origin = origin
        self.consumer: str = consumer  # what the journal calls it
        self.lane: Lane = lane
        self.mode: int = mode
        self.limit: int = 0
        self.delivered: int = 0
        self.size_limit: int = 0
        self.size_delivered: int = 0
        self.budget: Budget | None = None  # shared with other receivers
        self.drain: bool = False
        self.watch: bool = False  # wants to be told when there is something to grant for
        self.waiting: bool = False  # in the lane's line of receivers with credit
        self.closed: bool = False

    def has_credit(self) -> bool:
        """Return whether it takes one more message, by count and by bytes."""
        return self.limit > self.delivered and self.size_limit > self.size_delivered
