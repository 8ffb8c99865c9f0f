"""What the operators of the rule language do with two values that are there.

Numbers of all widths meet as in C#: as doubles when one of them is a double, else by their exact
value; integers are 64 bits wide and overflow is an error. Different types are never equal and
have no order. Nulls do not come here: what meets one is unknown.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow
from typing import Any, Final
from uuid import UUID

from peeklock.entity.rules.conversion import text_of
from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.values import DurationValue, InstantValue, Value

EQUAL: Final = 0
NOT_EQUAL: Final = 1
LESS: Final = 2
LESS_OR_EQUAL: Final = 3
GREATER: Final = 4
GREATER_OR_EQUAL: Final = 5

ADD: Final = 0
SUBTRACT: Final = 1
MULTIPLY: Final = 2
DIVIDE: Final = 3
MODULO: Final = 4

# A property value on the wire has at most 32 KB; nothing longer is worth building, and without a
# limit 32 statements could double a text 32 times.
TEXT_LENGTH_MAX: Final = 32_768

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

# Decimals are computed as decimal128 would: 34 digits.
_DECIMALS: Final = Context(prec=34, traps=[DivisionByZero, InvalidOperation, Overflow])


def compare(operator: int, left: Value, right: Value) -> bool:
    """Return whether the comparison holds; a FilterError where the two have no order."""
    if operator == EQUAL:
        return equal(left, right)
    if operator == NOT_EQUAL:
        return not equal(left, right)
    a, b = _ordered(left, right)
    if operator == GREATER:
        return bool(a > b)
    if operator == LESS:
        return bool(a < b)
    if operator == LESS_OR_EQUAL:
        return bool(a <= b)
    return bool(a >= b)


def equal(left: Value, right: Value) -> bool:
    """Return whether two values are the same one; different types never are."""
    if isinstance(left, str):
        return isinstance(right, str) and left == right
    # True is an int to Python, and must not equal 1 here.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    if isinstance(left, (int, float, Decimal)):
        if not isinstance(right, (int, float, Decimal)):
            return False
        a, b = _numbers(left, right)
        return bool(a == b)
    if isinstance(left, InstantValue):
        return isinstance(right, InstantValue) and left.ticks == right.ticks
    if isinstance(left, DurationValue):
        return isinstance(right, DurationValue) and left.ticks == right.ticks
    if isinstance(left, UUID):
        return isinstance(right, UUID) and left == right
    if isinstance(left, bytes):
        return isinstance(right, bytes) and left == right
    return False


def calculate(operator: int, left: Value, right: Value) -> Value:
    """Return the result of an arithmetic operator; `+` joins texts."""
    if operator == ADD and (isinstance(left, str) or isinstance(right, str)):
        return _joined(left, right)
    if not (_is_number(left) and _is_number(right)):
        sign = "+-*/%"[operator]
        raise FilterError(f"{kind_of(left)} {sign} {kind_of(right)} has no result")
    if isinstance(left, int) and isinstance(right, int):
        return _integer(operator, left, right)
    if isinstance(left, float) or isinstance(right, float):
        return _double(operator, _as_double(left), _as_double(right))
    return _decimal(operator, _as_decimal(left), _as_decimal(right))


def signed(negative: bool, value: Value) -> Value:
    """Return a number with the sign before it applied."""
    if not _is_number(value):
        raise FilterError(f"{kind_of(value)} has no sign")
    if not negative:
        return value
    if isinstance(value, int):
        return _in_range(-value)
    return -value if isinstance(value, float) else _DECIMALS.minus(_as_decimal(value))


def kind_of(value: Value) -> str:
    """Name the type of a value as a person would."""
    if isinstance(value, str):
        return "a text"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float, Decimal)):
        return "a number"
    if isinstance(value, InstantValue):
        return "an instant"
    if isinstance(value, DurationValue):
        return "a duration"
    if isinstance(value, UUID):
        return "a uuid"
    return "binary data" if isinstance(value, bytes) else "a value of another type"


def _ordered(left: Value, right: Value) -> tuple[Any, Any]:
    """Bring two values to types that Python orders as we want."""
    if _is_number(left) and _is_number(right):
        return _numbers(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    if isinstance(left, InstantValue) and isinstance(right, InstantValue):
        return left.ticks, right.ticks
    if isinstance(left, DurationValue) and isinstance(right, DurationValue):
        return left.ticks, right.ticks
    if isinstance(left, UUID) and isinstance(right, UUID):
        return left.int, right.int
    raise FilterError(f"{kind_of(left)} and {kind_of(right)} have no order")


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _numbers(left: Value, right: Value) -> tuple[Any, Any]:
    """Bring two numbers to types that Python compares as we want."""
    if isinstance(left, int) and isinstance(right, int):
        return left, right
    if isinstance(left, float) or isinstance(right, float):
        return _as_double(left), _as_double(right)
    a, b = _as_decimal(left), _as_decimal(right)
    # A decimal that is not a number would raise where a double of that kind is merely unequal.
    return (math.nan, math.nan) if a.is_nan() or b.is_nan() else (a, b)


def _as_double(value: Any) -> float:
    if isinstance(value, Decimal) and value.is_nan():
        return math.nan
    return float(value)


def _as_decimal(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(value)


def _joined(left: Value, right: Value) -> str:
    text = text_of(left) + text_of(right)
    if len(text) > TEXT_LENGTH_MAX:
        raise FilterError(f"a text grows beyond {TEXT_LENGTH_MAX:,} characters")
    return text


def _integer(operator: int, left: int, right: int) -> int:
    if operator == ADD:
        return _in_range(left + right)
    if operator == SUBTRACT:
        return _in_range(left - right)
    if operator == MULTIPLY:
        return _in_range(left * right)
    if right == 0:
        raise _divided_by_zero()
    # Python rounds down, C# towards zero.
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return _in_range(quotient if operator == DIVIDE else left - right * quotient)


def _in_range(result: int) -> int:
    if not _INT64_MIN <= result <= _INT64_MAX:
        raise FilterError("the result is beyond 64 bits")
    return result


def _double(operator: int, left: float, right: float) -> float:
    if operator == ADD:
        result = left + right
    elif operator == SUBTRACT:
        result = left - right
    elif operator == MULTIPLY:
        result = left * right
    elif right == 0:
        raise _divided_by_zero()
    elif operator == DIVIDE:
        result = left / right
    else:
        # fmod of an infinite dividend raises where C# says it is not a number.
        result = math.nan if math.isinf(left) else math.fmod(left, right)
    if math.isinf(result) and not (math.isinf(left) or math.isinf(right)):
        raise FilterError("the result is beyond a double")
    return result


def _decimal(operator: int, left: Decimal, right: Decimal) -> Decimal:
    if right == 0 and operator in (DIVIDE, MODULO):
        raise _divided_by_zero()
    try:
        if operator == ADD:
            return _DECIMALS.add(left, right)
        if operator == SUBTRACT:
            return _DECIMALS.subtract(left, right)
        if operator == MULTIPLY:
            return _DECIMALS.multiply(left, right)
        if operator == DIVIDE:
            return _DECIMALS.divide(left, right)
        return _DECIMALS.remainder(left, right)
    except DecimalException as wrong:
        raise FilterError("the result is beyond a decimal") from wrong


def _divided_by_zero() -> FilterError:
    return FilterError("a number is divided by zero")
