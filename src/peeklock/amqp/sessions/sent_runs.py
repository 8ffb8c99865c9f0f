"""Which deliveries of a session are those of one link, found without walking the others.

A session has many links and one set of unsettled deliveries. When a link goes, its own are looked
for. To note each of them for its link would cost every delivery; noted is what was sent in a row,
as (first id, how many), whatever was settled since then. What is settled is forgotten when there is
more of it than of anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from peeklock.amqp.frames.headers import SERIAL_HALF, SERIAL_MASK, serial_distance
from peeklock.amqp.sessions.delivery import OutgoingDelivery

if TYPE_CHECKING:
    from peeklock.amqp.sessions.link import Link

# Ids that are noted before it is looked for the first time which of them are settled.
NOTED_MIN: Final = 4096


@final
class SentRuns:
    """The ids that one link has sent unsettled; some of them may be settled meanwhile."""

    __slots__ = ("_counts", "_firsts", "_is_in_order", "_look_at", "noted")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._counts: list[int] = []
        self._is_in_order = True
        self.noted = 0
        self._look_at = NOTED_MIN

    def add(
        self, link: Link, first: int, count: int, unsettled: dict[int, OutgoingDelivery]
    ) -> None:
        """Note what was just sent in a row."""
        firsts = self._firsts
        counts = self._counts
        if firsts and (firsts[-1] + counts[-1]) & SERIAL_MASK == first:
            counts[-1] += count
        else:
            if firsts and serial_distance(first, firsts[-1]) < 0:
                self._is_in_order = False  # it has moved up
            firsts.append(first)
            counts.append(count)
        self.noted += count
        if self.noted > self._look_at:
            self._forget_settled(link, unsettled)

    def living(self, link: Link, unsettled: dict[int, OutgoingDelivery]) -> list[OutgoingDelivery]:
        """Return those of the link's deliveries that are not settled, in the order of their ids."""
        found: dict[int, OutgoingDelivery] = {}
        firsts = self._firsts
        counts = self._counts
        for at in range(len(firsts)):
            first = firsts[at]
            for ahead in range(counts[at]):
                delivery_id = (first + ahead) & SERIAL_MASK
                delivery = unsettled.get(delivery_id)
                # An id can be another link's meanwhile: those that wait move up when a link goes.
                if delivery is not None and delivery.link is link:
                    found[delivery_id] = delivery
        if self._is_in_order or not found:
            return list(found.values())
        base = firsts[0]
        ids = sorted(found, key=lambda each: serial_distance(each, base))
        return [found[each] for each in ids]

    def _forget_settled(self, link: Link, unsettled: dict[int, OutgoingDelivery]) -> None:
        """Forget what is settled, in time that all that was noted has paid for."""
        self._cut(unsettled)
        if self.noted > self._look_at // 2:
            # Something old is unsettled among all that is settled: only a closer look tells.
            living = self.living(link, unsettled)
            self._firsts = []
            self._counts = []
            self._is_in_order = True
            self.noted = 0
            self._look_at = 2 * len(living) + NOTED_MIN
            for delivery in living:
                self.add(link, delivery.id, 1, unsettled)

    def _cut(self, unsettled: dict[int, OutgoingDelivery]) -> None:
        """Forget all before the session's oldest: usually that is nearly everything."""
        firsts = self._firsts
        counts = self._counts
        oldest = (firsts[-1] + counts[-1]) & SERIAL_MASK
        for delivery_id in unsettled:
            oldest = delivery_id  # they are in the order of their ids
            break
        gone = 0
        for at in range(len(firsts)):
            over = (oldest - firsts[at]) & SERIAL_MASK
            if over == 0 or over > SERIAL_HALF:
                break
            if over < counts[at]:
                firsts[at] = oldest
                counts[at] -= over
                self.noted -= over
                break
            self.noted -= counts[at]
            gone = at + 1
        del firsts[:gone]
        del counts[:gone]
