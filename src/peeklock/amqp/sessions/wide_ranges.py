"""Which of a session's deliveries a wide range names, found without walking the others.

A disposition names a range in thirty bytes. As long as most of its numbers are unsettled they are
looked up one by one, and this is not needed. A peer that names a range of thousands in which there
is little would have them all walked, again and again: for such a range the ids are kept in order.
What is found dead is forgotten, so that nothing is walked twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final, final

from peeklock.amqp.frames.headers import SERIAL_MASK, serial_distance
from peeklock.amqp.sessions.delivery import OutgoingDelivery

# Dead ids that are kept beside the living, before the order is made anew.
DEAD_MAX: Final = 1_024


@final
class WideRanges:
    """The ids of deliveries in order; made when the first wide range comes.

    `in_order`: each new delivery has a higher id than all before it, and is found without being
    told of; otherwise `moved` tells.
    """

    __slots__ = ("_ids", "_in_order", "_is_made", "_newest", "_unsettled")

    def __init__(self, unsettled: dict[int, OutgoingDelivery], *, in_order: bool = True) -> None:
        self._in_order: Final = in_order
        self._unsettled: Final = unsettled
        self._ids: list[int] = []
        self._newest = 0
        self._is_made = False

    def within(self, first: int, count: int) -> list[OutgoingDelivery]:
        """Return the deliveries from `first` on that are unsettled and have no outcome yet."""
        self._catch_up()
        last = first + count - 1
        if last <= SERIAL_MASK:
            return self._between(first, last)
        return self._between(first, SERIAL_MASK) + self._between(0, last & SERIAL_MASK)

    def moved(self, delivery_id: int) -> None:
        """Note an id that is not behind all others."""
        ids = self._ids
        if self._is_made:
            at = bisect_left(ids, delivery_id)
            if at == len(ids) or ids[at] != delivery_id:
                ids.insert(at, delivery_id)

    def _between(self, low: int, high: int) -> list[OutgoingDelivery]:
        ids = self._ids
        start = bisect_left(ids, low)
        end = bisect_right(ids, high)
        living: list[int] = []
        found: list[OutgoingDelivery] = []
        for at in range(start, end):
            delivery = self._unsettled.get(ids[at])
            if delivery is not None and not delivery.told:
                living.append(ids[at])
                found.append(delivery)
        if len(living) < end - start:
            ids[start:end] = living
        return found

    def _catch_up(self) -> None:
        """Add what was sent since the last time."""
        unsettled = self._unsettled
        if not self._is_made or len(self._ids) > 2 * len(unsettled) + DEAD_MAX:
            self._ids = sorted(unsettled)
            self._is_made = True
        elif self._in_order:
            for delivery_id in reversed(unsettled):
                if serial_distance(delivery_id, self._newest) <= 0:
                    break
                insort(self._ids, delivery_id)
        for delivery_id in reversed(unsettled):
            self._newest = delivery_id
            break
