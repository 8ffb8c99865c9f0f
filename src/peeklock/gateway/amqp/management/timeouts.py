"""How long requests to `$management` may take, as their clients have said.

A client allows less than it waits itself, so that the broker's word comes first: that the time is
over says more than silence. What was asked for may be done nevertheless.
"""

from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, final

from peeklock.amqp.dialect import SERVER_TIMEOUT, SERVER_TIMEOUT_BARE
from peeklock.gateway.amqp.nodes.transactions import NO_DEADLINE

# So many are told at once that their time is over; others have their turn then.
_EXPIRED_MAX: Final = 100
# Fewer than these are not worth being looked through for those that were answered.
_KEPT_MIN: Final = 64


class RequestNode(Protocol):
    """Who answers requests, each known by its tag."""

    def is_waiting(self, tag: int) -> bool:
        """Tell whether a request has no answer yet."""
        ...

    def timed_out(self, tag: int, waited_ms: int) -> None:
        """Answer that it took too long, unless there was an answer."""
        ...


@final
class RequestTimeouts:
    """The requests of one connection that have to be answered in a time."""

    __slots__ = ("_begun", "_count", "_heap", "_kept_max")

    def __init__(self) -> None:
        # Those of this pass, whose time has not begun to run.
        self._begun: list[tuple[int, RequestNode, int]] = []
        self._heap: list[tuple[int, int, int, RequestNode, int]] = []
        self._count = 0
        self._kept_max = _KEPT_MIN

    def begin(self, node: RequestNode, tag: int, wait_ms: int) -> None:
        """Give a request its time, from this pass on."""
        self._begun.append((wait_ms, node, tag))

    def next_due(self, at: int) -> int:
        """Tell when the first of them is late, by the loop's time."""
        if self._begun:
            for wait_ms, node, tag in self._begun:
                self._count += 1
                heappush(self._heap, (at + wait_ms, self._count, wait_ms, node, tag))
            self._begun.clear()
            if len(self._heap) > self._kept_max:
                self._forget_answered()
        return self._heap[0][0] if self._heap else NO_DEADLINE

    def expire(self, at: int) -> None:
        """Tell those whose time is over, as many as fit one pass."""
        for _ in range(_EXPIRED_MAX):
            if not self._heap or self._heap[0][0] > at:
                return
            _, _, wait_ms, node, tag = heappop(self._heap)
            node.timed_out(tag, wait_ms)

    def clear(self) -> None:
        """Forget all of them: nobody is there to be told."""
        self._begun.clear()
        self._heap.clear()

    def _forget_answered(self) -> None:
        # What was answered stays until there is twice as much as was waiting the last time.
        self._heap = [each for each in self._heap if each[3].is_waiting(each[4])]
        heapify(self._heap)
        self._kept_max = max(_KEPT_MIN, 2 * len(self._heap))


def wait_ms_of(properties: dict[str, Any]) -> int:
    """Read how long a request may take; 0 where it does not say.

    Clients that have less than a second left say 0, too: they give up before any answer of ours.
    """
    value = properties.get(SERVER_TIMEOUT)
    if value is None:
        value = properties.get(SERVER_TIMEOUT_BARE)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
