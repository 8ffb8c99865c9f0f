"""Destinations that a lane had before: which of its messages they have and could not say so.

Before anything goes to a destination, the lane has that written down. After a crash nobody here
knows what was under way. A message that a former destination has goes there once more, where the
repeat is ignored, and is completed; all others go to the new one. Until all have answered nothing
goes anywhere: it would come twice. An entity that is gone has nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol, final

from peeklock.broker.forwarding.forget_notices import Find
from peeklock.broker.forwarding.route import BACKOFF_MS_MAX, BACKOFF_MS_MIN
from peeklock.broker.timers import Timer, Timers
from peeklock.clock import Clock
from peeklock.entity.commands import Command, NoteDestination, TellTaken
from peeklock.entity.refusals import ENTITY_NOT_FOUND
from peeklock.entity.replies import Named, Numbered, Refused, Reply

NOTING: Final = 0  # the tag of what the lane is asked

# What is known of the destinations before the present one.
UNKNOWN: Final = 0  # they are asked
UNDER_WAY: Final = 1  # another lane forwarder brings to an end what they may have
NOTHING: Final = 2  # they have nothing that is still here

_log: Final = logging.getLogger("peeklock.broker")


class LaneOwner(Protocol):
    """Whoever owns the partition that messages are taken from."""

    def submit(self, command: Command) -> None:
        """Put a command into the mailbox."""
        ...


@final
class FormerDestinations:
    """Has the destination of a lane written down, and asks those before it, until each has
    answered once."""

    __slots__ = (
        "_asks",
        "_backoff_ms",
        "_clock",
        "_closed",
        "_destination",
        "_find",
        "_has_others",
        "_lane",
        "_numbers",
        "_on_known",
        "_on_refused",
        "_owner",
        "_paths",
        "_source",
        "_timer",
        "_timers",
    )

    def __init__(
        self,
        lane: int,
        destination: str,
        source: str,
        owner: LaneOwner,
        find: Find,
        clock: Clock,
        timers: Timers,
        on_known: Callable[[dict[str, list[int]]], None],
        on_refused: Callable[[], None],
    ) -> None:
        self._lane: int = lane
        self._destination: str = destination
        self._source: str = source  # how destinations know the lane
        self._owner: LaneOwner = owner
        self._find: Find = find
        self._clock: Clock = clock
        self._timers: Timers = timers
        # Told what each has, when all have answered; or that nothing could be written down.
        self._on_known: Callable[[dict[str, list[int]]], None] = on_known
        self._on_refused: Callable[[], None] = on_refused
        self._asks: bool = True
        self._has_others: bool = False  # who were asked
        self._paths: dict[int, str] = {}  # of those that have not answered, by tag
        self._numbers: dict[str, list[int]] = {}
        self._backoff_ms: int = BACKOFF_MS_MIN
        self._timer: Timer | None = None
        self._closed: bool = False

    def start(self, known: int) -> None:
        """Write down where messages will go; ask where they went before unless that is known."""
        self._asks = known == UNKNOWN
        is_only = known == NOTHING
        self._owner.submit(NoteDestination(self, NOTING, self._lane, self._destination, is_only))

    def _ask(self) -> None:
        """Ask those who have not answered yet."""
        self._timer = None
        for tag, path in list(self._paths.items()):
            destination = self._find(path)
            if destination is None:
                del self._paths[tag]
            else:
                destination.submit(TellTaken(self, tag, self._source))
        if not self._paths:
            self._finish()

    def close(self) -> None:
        """Nobody wants to know any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # As an origin.

    def replied(self, reply: Reply) -> None:
        """The lane has it written down; a destination says what it has, or cannot."""
        if self._closed:
            return
        if isinstance(reply, Named):
            others = [path for path in reply.names if path != self._destination]
            self._has_others = self._asks and len(others) > 0
            self._paths = dict(enumerate(others, NOTING + 1)) if self._asks else {}
            self._ask()
            return
        if isinstance(reply, Refused) and NOTING in reply.tags:
            self._on_refused()
            return
        if isinstance(reply, Numbered):
            path = self._paths.pop(reply.tag, None)
            if path is not None and reply.numbers:
                self._numbers[path] = reply.numbers
        elif isinstance(reply, Refused):
            for tag in reply.tags:
                if reply.refusal.kind == ENTITY_NOT_FOUND:
                    self._paths.pop(tag, None)
                elif tag in self._paths:
                    self._later(self._paths[tag], reply.refusal.kind)
        if not self._paths:
            self._finish()

    def flush(self) -> None:
        """Nothing is kept back for this."""

    def _later(self, path: str, refusal: str) -> None:
        if self._timer is not None:
            return
        if self._backoff_ms == BACKOFF_MS_MIN:
            _log.warning(
                "forwarding-waits source=%s former-destination=%s refusal=%s",
                self._source,
                path,
                refusal,
            )
        self._timer = self._timers.set(self._clock.now() + self._backoff_ms, self._ask)
        self._backoff_ms = min(2 * self._backoff_ms, BACKOFF_MS_MAX)

    def _finish(self) -> None:
        if self._closed:
            return
        self.close()
        if self._has_others and not self._numbers:
            # Nobody else has anything; the answer does not matter.
            self._owner.submit(NoteDestination(self, NOTING, self._lane, self._destination, True))
        self._on_known(self._numbers)
