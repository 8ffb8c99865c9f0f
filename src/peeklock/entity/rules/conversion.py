"""How a value of one type becomes one of another: text for joining, types of system properties."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.values import DurationValue, InstantValue, Value

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 10_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

# 1.02:03:04.5 as .NET writes a time span, and P1DT2H3M4.5S as XML does. What has more digits than
# any duration is none: a text may have thousands of them, which is more than a number is read from.
_CLOCK: Final = re.compile(
    r"(-?)(?:(\d{1,18})\.)?(\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,7}))?)?", re.ASCII
)
_ISO: Final = re.compile(
    r"(-?)P(?=.)(?:(\d{1,18})D)?"
    r"(?:T(?=.)(?:(\d{1,18})H)?(?:(\d{1,18})M)?(?:(\d{1,18})(?:\.(\d{1,7})\d*)?S)?)?",
    re.ASCII,
)


def text_of(value: Value) -> str:
    """Write a value as text, the same everywhere and at all times."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, InstantValue):
        return _instant_text(value.ticks)
    if isinstance(value, DurationValue):
        return _duration_text(value.ticks)
    raise FilterError("this value has no form as text")


def duration_of(value: Value) -> DurationValue:
    """Take a duration as it is and read one that is written."""
    if isinstance(value, DurationValue):
        return value
    if isinstance(value, str):
        match = _CLOCK.fullmatch(value) or _ISO.fullmatch(value)
        if match is not None:
            sign, days, hours, minutes, seconds, fraction = match.groups(default="0")
            ticks = int(days) * _DAY + int(hours) * _HOUR + int(minutes) * _MINUTE
            ticks += int(seconds) * _SECOND + int(fraction.ljust(7, "0"))
            return DurationValue(-ticks if sign == "-" else ticks)
    raise FilterError(f"{_shown(value)} is not a duration such as '0.00:01:30' or 'PT1M30S'")


def instant_of(value: Value) -> InstantValue:
    """Take an instant as it is and read one that is written; without a zone it is UTC."""
    if isinstance(value, InstantValue):
        return value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None:
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return InstantValue((aware - _EPOCH) // timedelta(microseconds=1) * 10)
    raise FilterError(f"{_shown(value)} is not an instant such as '2030-01-31T12:00:00Z'")


def boolean_of(value: Value) -> bool:
    """Take a boolean as it is and read one that is written."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise FilterError(f"{_shown(value)} is not a boolean")


def _double_text(value: float) -> str:
    text = float.__repr__(value).upper()
    return text[:-2] if text.endswith(".0") else text


def _instant_text(ticks: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=ticks // 10)
    except OverflowError as wrong:
        raise FilterError("this instant is in no year between 1 and 9999") from wrong
    # Python's clock is coarser than a tick, so that the fraction is written by hand.
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + _fraction_text(ticks) + "Z"


def _duration_text(ticks: int) -> str:
    rest = abs(ticks)
    days, rest = divmod(rest, _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    start = ("-" if ticks < 0 else "") + (f"{days}." if days else "")
    return f"{start}{hours:02}:{minutes:02}:{rest // _SECOND:02}{_fraction_text(rest)}"


def _fraction_text(ticks: int) -> str:
    fraction = ticks % _SECOND
    return f".{fraction:07}" if fraction else ""


def _shown(value: Value) -> str:
    try:
        return f"'{text_of(value)[:64]}'"
    except FilterError:
        return "binary data"
