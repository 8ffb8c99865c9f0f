"""How a log line is written: an event and its facts as key=value, one line each."""

# Looked up by name when a text is escaped for the first time, which opens a file; there may be no
# descriptor left then.
import asyncio
import contextlib
import encodings.unicode_escape  # noqa: F401
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

# What needs no quotes; everything else is quoted so that a line can always be taken apart again.
_PLAIN: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@$#+*"
)
# Texts come from the network, directly or not: no line may grow without bound.
_TEXT_LENGTH_MAX: Final = 1_000

# How many lines of one event are written in a row, and how soon there may be as many again.
LINES_MAX: Final = 20
INTERVAL_S: Final = 5.0


def line(event: str, /, **facts: str | int | None) -> str:
    """Write an event with its facts; facts that are None are left out."""
    parts = [event]
    parts.extend(f"{name}={_value(fact)}" for name, fact in facts.items() if fact is not None)
    return " ".join(parts)


@final
class Sparing:
    """A log for what unauthenticated peers can cause as often as they like.

    Of each event, and of each of its kinds where facts name one, a few lines are written in each
    interval. Those held back are counted, and a line at the interval's end says how many they were.
    """

    def __init__(
        self,
        log: logging.Logger,
        *,
        lines_max: int = LINES_MAX,
        interval_s: float = INTERVAL_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._lines_max = lines_max
        self._interval_s = interval_s
        self._now = now
        self._events: dict[tuple[str, str | int | None], _Event] = {}

    def write(self, level: int, event: str, /, **facts: str | int | None) -> None:
        """Write a line, or count it; without a loop the count is told with the next line."""
        if not self._log.isEnabledFor(level):
            return
        key = (event, facts.get("kind"))
        known = self._events.setdefault(key, _Event())
        now = self._now()
        if now >= known.over_at:
            self._tell(key, level)
            known.over_at = now + self._interval_s
            known.written = 0
        if known.written < self._lines_max:
            known.written += 1
            self._log.log(level, "%s", line(event, **facts))
            return
        known.held_back += 1
        if known.held_back == 1:
            with contextlib.suppress(RuntimeError):
                loop = asyncio.get_running_loop()
                loop.call_later(known.over_at - now, self._tell, key, level)

    def _tell(self, key: tuple[str, str | int | None], level: int) -> None:
        known = self._events[key]
        count, known.held_back = known.held_back, 0
        if count:
            event, kind = key
            self._log.log(level, "%s", line(event, kind=kind, more=count))


@final
@dataclass(slots=True)
class _Event:
    """What was written of one event in its interval, and what was not."""

    over_at: float = 0.0
    written: int = 0
    held_back: int = 0


def _value(fact: str | int) -> str:
    if isinstance(fact, int):
        return str(fact)
    text = fact[:_TEXT_LENGTH_MAX]
    if text and _PLAIN.issuperset(text):
        return text
    # repr-like escapes keep line breaks and control characters of peers out of the log.
    escaped = text.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'
