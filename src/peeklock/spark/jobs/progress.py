"""How far a job is, in one line: kept up to date in a terminal, written now and then elsewhere."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO, final

# Where lines cannot be overwritten, so often one is written.
_EVERY_S: Final = 10.0
_CLEAR_LINE: Final = "\r\x1b[2K"


@final
class Progress:
    """The line of one job, on standard error, because output is for tables."""

    def __init__(
        self,
        name: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._is_live = self._stream.isatty()
        self._is_shown = False  # whether a line stands there that will be overwritten
        self._written_at = -_EVERY_S

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._write(f"{text}\n")
        self._is_shown = False

    def show(self, text: str) -> None:
        """Write what is true just now; the next line takes its place, or it is left out."""
        if self._is_live:
            self._write(text)
            self._is_shown = True
        elif self._clock() - self._written_at >= _EVERY_S:
            self._written_at = self._clock()
            self._write(f"{text}\n")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Return what is being done, and how long it took if that was worth a line."""
        begun_at = self._clock()
        self.show(f"{text} ...")
        yield
        took_s = self._clock() - begun_at
        if took_s >= 1.0:
            self.say(f"{text}: done in {duration(took_s)}")

    def _write(self, text: str) -> None:
        before = _CLEAR_LINE if self._is_shown else ""
        self._stream.write(f"{before}{self._name}: {text}")
        self._stream.flush()


@final
class Batches:
    """The batches of a stream as its progress events tell of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = 0
        self._clock = clock
        self._begun_at = clock()
        self._seen: set[int] = set()
        self._backlog: int | None = None

    def take(self, event: Mapping[str, Any]) -> bool:
        """Count a progress event; return whether it is news."""
        batch, rows = event["batchId"], event["numInputRows"]
        if batch in self._seen or not rows:
            return False
        self._seen.add(batch)
        self.rows += rows
        self._backlog = _backlog_of(event.get("sources") or ())
        return True

    def line(self) -> str:
        """Say rows, rate, backlog and the time that is left."""
        rate = self.rows / max(self._clock() - self._begun_at, 0.001)
        parts = [f"{self.rows:,} rows", f"{rate:,.0f}/s"]
        if self._backlog is not None:
            parts.append(f"{self._backlog:,} left")
            if self._backlog and rate >= 1:
                parts.append(f"about {duration(self._backlog / rate)}")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """Write a length of time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def _backlog_of(sources: Any) -> int | None:
    """What the sources have still to give, where all of them say so."""
    told = [
        _left(_parsed(one.get("endOffset")), _parsed(one.get("latestOffset"))) for one in sources
    ]
    if not told or None in told:
        return None
    return sum(one for one in told if one is not None)


def _left(end: dict[str, Any], latest: dict[str, Any]) -> int | None:
    if "active" in latest:  # claims: what nobody has claimed yet
        active = latest["active"]
        return active if isinstance(active, int) and active >= 0 else None
    places, ends = latest.get("next"), end.get("p")
    if isinstance(places, dict) and isinstance(ends, dict):  # journals: positions behind this batch
        return sum(max(int(at) - int(ends.get(index, 0)), 0) for index, at in places.items())
    return None


def _parsed(offset: Any) -> dict[str, Any]:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, dict) else {}
