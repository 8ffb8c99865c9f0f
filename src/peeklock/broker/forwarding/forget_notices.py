"""What destinations may forget: the numbers of messages that will not come to them again.

A destination remembers each number that it took over, so that a repeat after a crash doubles
nothing. It may forget one only after the message is gone here for good, that is after the record
of its completion rests. Numbers are told in runs, or after a while, so that the memory of every
destination stays as small as what is on its way to it.

What was not told before a crash is told when the lane is opened again: all numbers below the lowest
one that still lives there will not come again. That is said once, before anything is sent, and is
never repeated: a number that was sent afterwards must not be forgotten by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, final

from peeklock.broker.timers import Timer, Timers
from peeklock.clock import Clock
from peeklock.entity.commands import Command, TakeOver
from peeklock.entity.refusals import ENTITY_NOT_FOUND
from peeklock.entity.replies import Refused, Reply, SendsAccepted

# So many numbers are told at once; fewer after a while.
RUN_MAX: Final = 256
WAIT_MS: Final = 1_000
# A destination that could not be told is asked again later: nothing depends on it.
RETRY_MS: Final = 5_000


class Destination(Protocol):
    """An entity that messages are forwarded to."""

    @property
    def path(self) -> str:
        """Its name as its owner wrote it."""
        ...

    def submit(self, command: Command) -> None:
        """Ask the owner of the partition that the command belongs to."""
        ...


Find = Callable[[str], Destination | None]


@final
class ForgetNotices:
    """The numbers of one lane that its destinations may forget, soon or when all is known."""

    __slots__ = (
        "_clock",
        "_closed",
        "_doubtful",
        "_find",
        "_may_have",
        "_numbers",
        "_tag",
        "_timer",
        "_timers",
        "_told",
        "source",
    )

    def __init__(self, source: str, find: Find, clock: Clock, timers: Timers) -> None:
        self.source: str = source  # how destinations know the lane
        self._find: Find = find
        self._clock: Clock = clock
        self._timers: Timers = timers
        self._numbers: dict[str, list[int]] = {}  # by destination
        # Completions whose fate is not known: number and destination.
        self._doubtful: dict[int, str] = {}
        # What was sent to a destination that did not say whether it has it: number and destination.
        self._may_have: dict[int, str] = {}
        self._told: dict[int, tuple[str, list[int]]] = {}  # by tag, while there is no answer
        self._tag: int = 0
        self._timer: Timer | None = None
        self._closed: bool = False

    def gone(self, path: str, numbers: list[int]) -> None:
        """These messages rest at the destination and are gone here for good."""
        known = self._numbers.setdefault(path, [])
        known.extend(numbers)
        if len(known) >= RUN_MAX:
            self._tell(path)
        elif known:
            self._wait(WAIT_MS)

    def doubt(self, path: str, number: int) -> None:
        """The destination has this message; whether it is gone here is not known."""
        self._doubtful[number] = path

    def none_below(self, path: str, number: int) -> None:
        """Nothing that was sent to this destination before lives below this number."""
        destination = self._find(path)
        if destination is not None and not self._closed:
            self._tag += 1
            destination.submit(TakeOver(self, self._tag, self.source, [], [], [], number))

    def sent(self, path: str, numbers: list[int]) -> None:
        """The destination may have these, and its answer will not be heard any more."""
        for number in numbers:
            self._may_have[number] = path

    @property
    def is_in_doubt(self) -> bool:
        """Whether there may be some such."""
        return len(self._may_have) > 0

    def destination_of(self, number: int, path: str) -> str:
        """Where a message goes: to the destination that may have it already, else to this one. A
        change of the destination meanwhile would double it otherwise."""
        return self._may_have.pop(number, path) if self._may_have else path

    def seen(self, numbers: list[int]) -> None:
        """The lane handed these out, in order: what is in doubt and lower is gone by now."""
        if not self._doubtful or not numbers:
            return
        for number in numbers:
            self._doubtful.pop(number, None)  # still here: it goes its way once more
        highest = numbers[-1]
        for number, path in list(self._doubtful.items()):
            if number < highest:
                del self._doubtful[number]
                self.gone(path, [number])

    def close(self) -> None:
        """Tell what is known; no answer is waited for."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for path in list(self._numbers):
            self._tell(path)

    # As an origin.

    def replied(self, reply: Reply) -> None:
        """A destination has forgotten, or could not be told."""
        if isinstance(reply, SendsAccepted):
            for tag in reply.tags:
                self._told.pop(tag, None)
        elif isinstance(reply, Refused):
            for tag in reply.tags:
                told = self._told.pop(tag, None)
                # An entity that is gone has forgotten.
                if told is not None and reply.refusal.kind != ENTITY_NOT_FOUND:
                    path, numbers = told
                    self._numbers.setdefault(path, []).extend(numbers)
                    self._wait(RETRY_MS)

    def flush(self) -> None:
        """Nothing is kept back for this."""

    # Telling.

    def _wait(self, duration_ms: int) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._timers.set(self._clock.now() + duration_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for path in list(self._numbers):
            self._tell(path)

    def _tell(self, path: str) -> None:
        numbers = self._numbers.pop(path, None)
        destination = self._find(path)
        if not numbers or destination is None:
            return
        self._tag += 1
        self._told[self._tag] = (path, numbers)
        destination.submit(TakeOver(self, self._tag, self.source, [], [], numbers))
