"""Instants and durations as HTTP writes them."""

import re
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from typing import Final

# The last second of the year 9999, beyond which no date has a text.
_TEXT_MAX_S: Final = 253_402_300_799

_RFC_1123: Final = re.compile(r"[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT")
# .NET's form: [days.]hours:minutes:seconds[.fraction]
_TIMESPAN: Final = re.compile(
    r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,7}))?", re.ASCII
)


def http_date(instant: int) -> str | None:
    """Write an instant in RFC 1123's form; None where it has none."""
    if not 0 <= instant // 1000 <= _TEXT_MAX_S:
        return None
    return formatdate(instant // 1000, usegmt=True)


def read_http_date(text: str) -> int | None:
    """Read exactly the form of RFC 1123; None for anything else."""
    if _RFC_1123.fullmatch(text) is None:
        return None
    try:
        return int(parsedate_to_datetime(text).timestamp()) * 1000
    except ValueError:
        return None


def read_instant(text: str) -> int | None:
    """Read RFC 1123 or ISO 8601, which is UTC where it does not say; None for anything else."""
    found = read_http_date(text)
    if found is not None:
        return found
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def read_timespan(text: str) -> int | None:
    """Read a duration in .NET's form as milliseconds; None for anything else."""
    found = _TIMESPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds, fraction = found.groups()
    if int(hours) > 23 or int(minutes) > 59 or int(seconds) > 59:
        return None
    whole = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int((fraction or "0").ljust(7, "0")) // 10_000


def timespan(ticks: int) -> str:
    """Write a duration in .NET's form."""
    sign = "-" if ticks < 0 else ""
    seconds, fraction = divmod(abs(ticks), 10_000_000)
    days, seconds = divmod(seconds, 86_400)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if fraction:
        text += f".{fraction:07}"
    return f"{sign}{days}.{text}" if days else sign + text
