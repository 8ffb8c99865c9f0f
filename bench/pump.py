"""Waits for the lines of a client and moves what is ready; one pass over each, then one write."""

import selectors
from typing import Protocol, final

from bench.line import Line
from peeklock.amqp.events import Event


class End(Protocol):
    """A sender or a receiver."""

    line: Line

    def take(self, events: list[Event]) -> None:
        """Act on what the server said."""
        ...


@final
class Pump:
    """A few ends and the selector that waits for them.

    `select` takes its time-out in microseconds where `epoll` rounds it up to milliseconds, and with
    two sockets it costs the same.
    """

    def __init__(self, *ends: End) -> None:
        self._ends = ends
        self._selector = selectors.SelectSelector()
        for end in ends:
            self._selector.register(end.line, selectors.EVENT_READ, end)
        self._stuck = [False] * len(ends)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until something can be done, and take what has come."""
        for key, mask in self._selector.select(timeout_s):
            if mask & selectors.EVENT_READ:
                key.data.take(key.data.line.read())

    def flush(self) -> None:
        """Write what the ends have to say; what the kernel does not take waits for its time."""
        for index, end in enumerate(self._ends):
            line = end.line
            line.flush()
            if line.is_stuck is not self._stuck[index]:
                self._stuck[index] = line.is_stuck
                write = selectors.EVENT_WRITE if line.is_stuck else 0
                self._selector.modify(line, selectors.EVENT_READ | write, end)

    def close(self) -> None:
        """Close all lines."""
        self._selector.close()
        for end in self._ends:
            end.line.close()
