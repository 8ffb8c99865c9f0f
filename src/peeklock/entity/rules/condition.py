"""A property that must equal a value: what correlation filters are made of, and what is indexed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, final
from uuid import UUID

from peeklock.entity.rules.operand import SYSTEM
from peeklock.entity.rules.operators import equal
from peeklock.entity.rules.values import (
    DurationValue,
    InstantValue,
    Missing,
    PropertyReader,
    Value,
)


@final
@dataclass(slots=True, init=False)
class Condition:
    """Which property, and the value that it must have; a null is met by a null."""

    scope: Final[int]
    name: Final[str]
    expected: Final[Value]

    def __init__(self, scope: int, name: str, expected: Value) -> None:
        self.scope = scope
        self.name = name
        self.expected = expected

    def holds(self, reader: PropertyReader) -> bool:
        """Return whether the message has that value there."""
        value = read(self.scope, self.name, reader)
        if value is None or self.expected is None:
            return value is self.expected
        return not isinstance(value, Missing) and equal(value, self.expected)


def read(scope: int, name: str, reader: PropertyReader) -> Value | Missing:
    """Ask the message for a property."""
    return reader.system(name) if scope == SYSTEM else reader.user(name)


# Python holds True and 1 for the same key, we do not.
_TRUE: Final = ("boolean", 1)
_FALSE: Final = ("boolean", 0)
_NULL: Final = ("null", 0)


def key_of(value: Any) -> Any:
    """Return a key that equal values share, or None for what equals nothing, other types included.

    The converse does not hold for numbers: doubles stand for all of them, and large integers share
    one. What is found by the key of a number has to be compared.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, (int, float)):
        number = float(value)
        return number if number == number else None
    if value is None:
        return _NULL
    if isinstance(value, Decimal):
        return None if value.is_nan() else float(value)
    if isinstance(value, InstantValue):
        return ("instant", value.ticks)
    if isinstance(value, DurationValue):
        return ("duration", value.ticks)
    if isinstance(value, UUID):
        # By its bytes, whose hash nobody can foresee: that of a UUID is its number.
        return ("uuid", value.bytes)
    return value if isinstance(value, bytes) else None


def is_exact(value: Value) -> bool:
    """Return whether an equal key means an equal value."""
    return isinstance(value, bool) or not isinstance(value, (int, float, Decimal))
