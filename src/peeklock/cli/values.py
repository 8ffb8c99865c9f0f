"""The values of options: durations, instants, and properties with their types."""

import re
from typing import Any, Final

import typer

from peeklock.durations import LONGEST_DURATION_MS, format_duration, parse_duration

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PLAIN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_NEVER: Final = "never"


def duration_ms(text: str, option: str) -> int:
    """Read a duration: `30s`, `1.5h`, `PT1M`, or `never` for the longest."""
    if text.lower() == _NEVER:
        return LONGEST_DURATION_MS
    plain = _PLAIN.fullmatch(text.lower())
    if plain is not None:
        return round(float(plain[1]) * _UNITS_MS[plain[2]])
    try:
        return parse_duration(text.upper())
    except ValueError:
        raise wrong(
            option, f"'{text}' is no duration such as 30s, 5m, 2h, 1d, PT1M or never"
        ) from None


def duration(text: str, option: str) -> str:
    """Read a duration and give it in the form of ISO 8601."""
    return format_duration(duration_ms(text, option))


def instant_ms(text: str, option: str) -> int:
    """Read an instant such as 2030-01-31T12:00:00Z; without a zone it is UTC."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong(option, f"'{text}' is no instant such as 2030-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def pairs(texts: list[str], option: str) -> dict[str, Any]:
    """Read `key=value` pairs; a number, true and false have their types, all else is text."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise wrong(option, f"'{text}' is not of the form key=value")
        if key in found:
            raise wrong(option, f"'{key}' is given twice")
        found[key] = scalar(value)
    return found


def scalar(text: str) -> str | int | float | bool:
    """Read a value; in double quotes it is a text whatever it looks like."""
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return text
    # What JSON reads as something else (null, a list, NaN) was meant as it stands there.
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    if isinstance(value, float) and abs(value) < float("inf"):
        return value
    return value if isinstance(value, str) else text


def wrong(option: str, problem: str) -> typer.BadParameter:
    """Return the error for a wrong value of an option; the command ends with 2."""
    return typer.BadParameter(problem, param_hint=f"'{option}'")
