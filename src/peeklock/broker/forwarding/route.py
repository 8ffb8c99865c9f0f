"""The way from one lane to one destination: what is under way on it, what waits, and for how long.

Messages travel in runs. A run that is refused for a reason that may pass waits and is tried again;
one that is refused for good is tried message by message, so that one message that cannot arrive
does not take the others with it.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol, final

from peeklock.broker.forwarding.forget_notices import Find
from peeklock.broker.timers import Timer, Timers
from peeklock.clock import Clock
from peeklock.entity.commands import TakeOver
from peeklock.entity.message import Message
from peeklock.entity.refusals import (
    BUSY,
    ENTITY_NOT_FOUND,
    INTERNAL,
    TIMED_OUT,
    UNAVAILABLE,
    Refusal,
)
from peeklock.entity.replies import Refused, Reply, SendsAccepted
from peeklock.entity.settlement import Settlement

# What is taken over with one command: it is stored by one write.
RUN_MAX: Final = 256
RUN_BYTES_MAX: Final = 1 << 20

BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 5_000

# The same wish may succeed later; after all but the first it may even have succeeded already.
PASSING: Final = (BUSY, UNAVAILABLE, INTERNAL, TIMED_OUT)

_log: Final = logging.getLogger("peeklock.broker")


@final
class HeldMessage:
    """A message that its lane handed to the forwarder: locked there until it is settled."""

    __slots__ = (
        "in_doubt",
        "is_stuck",
        "lock_number",
        "message",
        "path",
        "sequence",
        "settled_with",
        "settlement",
        "size",
    )

    def __init__(self, sequence: int, lock_number: int, path: str) -> None:
        self.sequence: int = sequence
        self.lock_number: int = lock_number
        self.path: str = path  # where it goes
        self.message: Message | None = None  # as it goes on; None once it needs not be sent
        self.size: int = 0
        # Whether the destination may have it although it did not say so.
        self.in_doubt: bool = False
        self.is_stuck: bool = False  # it cannot go and has no other place to be
        self.settlement: Settlement | None = None  # what it was settled with, or will be
        self.settled_with: int = 0  # the lock that the settlement under way presented


class RunSender(Protocol):
    """Whoever sends messages along a route."""

    def arrived(self, held: list[HeldMessage]) -> None:
        """These rest at the destination."""
        ...

    def cannot_arrive(self, held: list[HeldMessage], refusal: Refusal) -> None:
        """The destination will not take these, and surely has not."""
        ...

    def go_on(self) -> None:
        """All answers of a round are there."""
        ...


@final
class Route:
    """Takes messages of one lane to one destination, in order while nothing fails."""

    __slots__ = (
        "_backoff_ms",
        "_clock",
        "_closed",
        "_find",
        "_runs",
        "_sender",
        "_source",
        "_tag",
        "_timer",
        "_timers",
        "_waiting",
        "path",
        "waiting_size",
    )

    def __init__(
        self,
        path: str,
        source: str,
        sender: RunSender,
        find: Find,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.path: str = path
        self.waiting_size: int = 0  # in bytes
        self._source: str = source
        self._sender: RunSender = sender
        self._find: Find = find
        self._clock: Clock = clock
        self._timers: Timers = timers
        self._runs: dict[int, list[HeldMessage]] = {}  # under way, by tag
        self._waiting: list[HeldMessage] = []
        self._tag: int = 0
        self._backoff_ms: int = BACKOFF_MS_MIN
        self._timer: Timer | None = None  # set while the destination is left in peace
        self._closed: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way and nothing waits."""
        return not self._runs and not self._waiting and self._timer is None

    @property
    def waiting(self) -> int:
        """How many messages wait until the destination is tried again."""
        return len(self._waiting)

    def send(self, held: list[HeldMessage]) -> None:
        """Take these along, behind what waits already."""
        if self._timer is not None:
            self._park(held)
        else:
            self._send_runs(held)

    def withdraw(self) -> list[HeldMessage]:
        """Give back what waits and has surely not arrived; the others must be tried until it is
        known."""
        sure = [each for each in self._waiting if not each.in_doubt]
        self._waiting = [each for each in self._waiting if each.in_doubt]
        self.waiting_size = sum(each.size for each in self._waiting)
        return sure

    def in_doubt(self) -> list[int]:
        """The numbers of what is under way or may have arrived."""
        numbers = [each.sequence for run in self._runs.values() for each in run]
        numbers += [each.sequence for each in self._waiting if each.in_doubt]
        return numbers

    def close(self) -> None:
        """Nothing is sent any more and no answer is heard."""
        self._closed = True
        self._runs.clear()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # As an origin.

    def replied(self, reply: Reply) -> None:
        """The destination has taken a run, or declined it."""
        if isinstance(reply, SendsAccepted):
            for tag in reply.tags:
                run = self._runs.pop(tag, None)
                if run is not None:
                    if self._timer is None:
                        self._recover()
                    self._sender.arrived(run)
        elif isinstance(reply, Refused):
            for tag in reply.tags:
                run = self._runs.pop(tag, None)
                if run is not None:
                    self._refused(run, reply.refusal)

    def flush(self) -> None:
        """All answers of a round are there."""
        if not self._closed:
            self._sender.go_on()

    # Sending.

    def _send_runs(self, held: list[HeldMessage]) -> None:
        run: list[HeldMessage] = []
        size = 0
        for each in held:
            if run and (len(run) == RUN_MAX or size + each.size > RUN_BYTES_MAX):
                self._send_run(run)
                run = []
                size = 0
            run.append(each)
            size += each.size
        if run:
            self._send_run(run)

    def _send_run(self, run: list[HeldMessage]) -> None:
        destination = self._find(self.path)
        if destination is None:
            for each in run:
                each.in_doubt = False  # what it had taken is gone with it
            text = f"The messaging entity '{self.path}' could not be found."
            self._sender.cannot_arrive(run, Refusal(ENTITY_NOT_FOUND, text))
            return
        numbers: list[int] = []
        messages: list[Message] = []
        for each in run:
            assert each.message is not None, "what is sent has a body"
            numbers.append(each.sequence)
            messages.append(each.message)
        self._tag += 1
        self._runs[self._tag] = run
        destination.submit(TakeOver(self, self._tag, self._source, numbers, messages, []))

    def _refused(self, run: list[HeldMessage], refusal: Refusal) -> None:
        if refusal.kind in PASSING:
            # A destination of several partitions may be busy in one and have stored in another.
            if refusal.kind != BUSY or len(run) > 1:
                for each in run:
                    each.in_doubt = True
            self._back_off(refusal)
            self._park(run)
        elif len(run) > 1:
            for each in run:
                self._send_run([each])
        else:
            run[0].in_doubt = False
            self._sender.cannot_arrive(run, refusal)

    # Waiting.

    def _park(self, held: list[HeldMessage]) -> None:
        self._waiting += held
        self.waiting_size += sum(each.size for each in held)

    def _back_off(self, refusal: Refusal) -> None:
        if self._timer is not None:
            return
        if self._backoff_ms == BACKOFF_MS_MIN:
            _log.warning(
                "forwarding-waits source=%s destination=%s refusal=%s",
                self._source,
                self.path,
                refusal.kind,
            )
        self._timer = self._timers.set(self._clock.now() + self._backoff_ms, self._on_timer)
        self._backoff_ms = min(2 * self._backoff_ms, BACKOFF_MS_MAX)

    def _on_timer(self) -> None:
        self._timer = None
        waiting = self._waiting
        self._waiting = []
        self.waiting_size = 0
        waiting.sort(key=_by_sequence)
        self._send_runs(waiting)
        self._sender.go_on()

    def _recover(self) -> None:
        if self._backoff_ms != BACKOFF_MS_MIN:
            self._backoff_ms = BACKOFF_MS_MIN
            _log.info("forwarding-resumed source=%s destination=%s", self._source, self.path)


def _by_sequence(held: HeldMessage) -> int:
    return held.sequence
