"""How much a receiver lets come in advance (R-F4): a number of messages, and 256 KB at most.

Credit counts messages, so the bytes are kept to by the mean size of those that came: the first
one that a receive brings tells it, and lets the others come.
"""

from collections.abc import Sequence
from typing import Final, final

from peeklock.amqp.sessions.delivery import IncomingDelivery

PREFETCH_BYTES_MAX: Final = 256 * 1024
# How much the latest messages count against those before them.
_WEIGHT: Final = 0.2


@final
class Prefetch:
    """The size of a receiver's cache."""

    def __init__(self, count: int) -> None:
        if count < 0:
            raise ValueError("prefetch_count cannot be negative")
        self.count: Final = count
        # 0 says that nothing has come yet.
        self._mean = 0.0

    def saw(self, deliveries: Sequence[IncomingDelivery]) -> None:
        """Learn from what came."""
        for delivery in deliveries:
            size = float(len(delivery.payload))
            self._mean = size if not self._mean else self._mean + _WEIGHT * (size - self._mean)

    @property
    def target(self) -> int:
        """How many messages may be in the cache or on their way to it."""
        if not self._mean:
            # Nobody knows yet how large they are; the first ones tell.
            return min(self.count, 1)
        return min(self.count, max(1, int(PREFETCH_BYTES_MAX / self._mean)))

    def grant(self, asked: int, cached: int, credit: int) -> int:
        """Return how much credit there must be now, or -1 when there is enough.

        What is asked for is let in whatever its size. The cache is filled again when half of it is
        used, so that there is a flow for many messages and not for each.
        """
        target = self.target
        wanted = max(target, asked) - cached
        if cached + credit > max(target // 2, asked - 1):
            return -1
        return wanted if wanted > credit else -1

    def rest(self, cached: int, credit: int) -> int:
        """Return how much credit may be left when a call has ended, or -1 when that is right.

        A call may ask for more than the cache holds; what did not come for it is not to come
        into the cache instead, and wait there with a lock.
        """
        target = self.target
        return max(0, target - cached) if cached + credit > target and credit > 0 else -1
