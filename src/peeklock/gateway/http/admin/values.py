"""The typed values of rules, as XML writes them.

The client for JavaScript takes the type to begin after five characters, and knows only some types;
what it sends and what messages from it hold is among them.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Final
from uuid import UUID

from peeklock.entity.rules.conversion import boolean_of, duration_of, instant_of, text_of
from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.values import DurationValue, InstantValue, Value
from peeklock.gateway.http.admin.reading import Content, MalformedEntry
from peeklock.gateway.http.admin.writing import escaped

_SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
# What XML's own types do not have.
_SERIALIZATION: Final = "http://schemas.microsoft.com/2003/10/Serialization/"
_INT_MAX: Final = (1 << 31) - 1
_TICKS_PER_SECOND: Final = 10_000_000
_DIGITS_MAX: Final = 40
# That of the largest decimals in messages (decimal128).
_EXPONENT_MAX: Final = 6144


def read_value(content: Content, key: str) -> Value:
    """Read a value of the type that it says it has; without one it is a text."""
    if content.is_nil:
        return None
    kind, text = content.type or "string", content.value
    if kind in ("string", "char"):
        return text
    read = _READERS.get(kind)
    if read is None:
        raise MalformedEntry(
            f"The value of '{key}' has the type '{kind}', which rules do not know."
        )
    try:
        return read(text.strip())
    except (ValueError, FilterError, InvalidOperation, ArithmeticError) as error:
        raise MalformedEntry(f"The value of '{key}' is not of the type '{kind}'.") from error


def _integer(text: str) -> int:
    if len(text) > _DIGITS_MAX or not text.isascii():
        raise ValueError("no integer has so many digits")
    return int(text)


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    # Written out, a number with a large exponent would fill all memory.
    if not value.is_finite() or abs(value.adjusted()) > _EXPONENT_MAX:
        raise ValueError("no message has such a number")
    return value


def _boolean(text: str) -> bool:
    return boolean_of({"1": "true", "0": "false"}.get(text, text))


def _instant(text: str) -> InstantValue:
    """Read an instant; it is shown as it was given, with the zone that it had, or none."""
    return InstantValue(instant_of(text).ticks, text)


def _binary(text: str) -> bytes:
    return b64decode(text, validate=True)


_READERS: Final[dict[str, Callable[[str], Value]]] = {
    **dict.fromkeys(("int", "long", "short", "byte", "integer"), _integer),
    **dict.fromkeys(("unsignedInt", "unsignedLong", "unsignedShort", "unsignedByte"), _integer),
    **dict.fromkeys(("double", "float"), float),
    "decimal": _decimal,
    "boolean": _boolean,
    "dateTime": _instant,
    "duration": duration_of,
    "guid": UUID,
    "base64Binary": _binary,
    "anyURI": str,
}


def write_value(value: Value) -> str:
    """Write a value with its type."""
    if value is None:
        return '<Value i:nil="true"/>'
    kind, text, namespace = _typed(value)
    return f'<Value i:type="d6p1:{kind}" xmlns:d6p1="{namespace}">{escaped(text)}</Value>'


def _typed(value: Value) -> tuple[str, str, str]:
    if isinstance(value, bool):
        return "boolean", "true" if value else "false", _SCHEMA
    if isinstance(value, str):
        return "string", str(value), _SCHEMA
    if isinstance(value, int):
        return "int" if -_INT_MAX <= value <= _INT_MAX else "long", str(int(value)), _SCHEMA
    if isinstance(value, float):
        return "double", text_of(float(value)), _SCHEMA
    if isinstance(value, Decimal):
        return "decimal", f"{value:f}", _SCHEMA
    if isinstance(value, InstantValue):
        return "dateTime", _instant_text(value), _SCHEMA
    if isinstance(value, DurationValue):
        return "duration", _duration_text(value.ticks), _SERIALIZATION
    if isinstance(value, UUID):
        return "guid", str(value), _SERIALIZATION
    assert isinstance(value, bytes), f"no rule has the value {value!r}"
    return "base64Binary", b64encode(value).decode("ascii"), _SCHEMA


def _instant_text(value: InstantValue) -> str:
    if value.text:
        return value.text
    try:
        return text_of(value)
    except FilterError:
        # An instant that no calendar has: the last one that there is stands for it.
        return "9999-12-31T23:59:59Z"


def _duration_text(ticks: int) -> str:
    """Write a duration to the tick, which is finer than other durations here."""
    seconds, fraction = divmod(abs(ticks), _TICKS_PER_SECOND)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    written = f"{seconds}.{fraction:07}".rstrip("0") if fraction else str(seconds)
    return f"{'-' if ticks < 0 else ''}P{days}DT{hours}H{minutes}M{written}S"
