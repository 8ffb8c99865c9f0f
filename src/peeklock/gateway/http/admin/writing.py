"""Writes what administration clients read; by hand, because some of them look at prefixes."""

import re
from datetime import UTC, datetime
from typing import Final, final
from xml.sax.saxutils import escape

from peeklock.clock import Instant
from peeklock.durations import LONGEST_DURATION_MS, format_duration
from peeklock.entity.definition import FOREVER_MS

SERVICE_BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
SCHEMA_INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"

NEVER_MS: Final = 0
_NEVER: Final = "0001-01-01T00:00:00Z"

# What XML 1.0 cannot hold in any form: texts that came another way may have it.
_IMPOSSIBLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# A parser makes newlines of carriage returns that are not written as references.
_REFERENCES: Final = {"\r": "&#13;"}
_IN_ATTRIBUTES: Final = {**_REFERENCES, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}


@final
class XmlWriter:
    """Gathers elements, one after the other."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def text(self, name: str, value: str) -> None:
        """A text."""
        self._parts.append(f"<{name}>{escaped(value)}</{name}>")

    def optional(self, name: str, value: str) -> None:
        """A text that is left out when it is empty, which is how the service says nothing."""
        if value:
            self.text(name, value)

    def flag(self, name: str, value: bool) -> None:
        """A boolean."""
        self._parts.append(f"<{name}>{'true' if value else 'false'}</{name}>")

    def whole(self, name: str, value: int) -> None:
        """A whole number."""
        self._parts.append(f"<{name}>{value}</{name}>")

    def duration(self, name: str, value_ms: int) -> None:
        """A duration, which may be forever."""
        self.text(
            name, format_duration(LONGEST_DURATION_MS if value_ms == FOREVER_MS else value_ms)
        )

    def instant(self, name: str, value: Instant) -> None:
        """An instant; 0 is never."""
        self.text(name, iso_instant(value))

    def raw(self, xml: str) -> None:
        """What is written already."""
        self._parts.append(xml)

    def xml(self) -> str:
        """All of it."""
        return "".join(self._parts)

    def described(self, name: str) -> str:
        """All of it within the root of a description."""
        return f'<{name} xmlns="{SERVICE_BUS}" xmlns:i="{SCHEMA_INSTANCE}">{self.xml()}</{name}>'


def escaped(text: str) -> str:
    """Write a text so that a parser reads the same."""
    return escape(_IMPOSSIBLE.sub("\ufffd", text), _REFERENCES)


def in_attribute(text: str) -> str:
    """Write a text so that a parser reads the same between double quotes."""
    return escape(_IMPOSSIBLE.sub("\ufffd", text), _IN_ATTRIBUTES)


def iso_instant(instant: Instant) -> str:
    """Write an instant; 0 is the one before all others."""
    if instant == NEVER_MS:
        return _NEVER
    moment = datetime.fromtimestamp(instant // 1000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{instant % 1000:03}Z"
