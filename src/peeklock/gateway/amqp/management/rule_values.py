"""Values on the wire <-> values that rules compute with.

Numbers, texts and uuids are the same on both sides: a uint is an int to a rule, and stays a uint
where a rule copies it. Instants, durations and decimals have forms of their own on each side.
"""

from decimal import Context, Decimal
from typing import Any, Final

from peeklock.amqp.dialect import TICKS_AT_1970
from peeklock.amqp.values.types import (
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Symbol,
    Timestamp,
    Ulong,
)
from peeklock.entity.rules.values import DurationValue, InstantValue

TICKS_PER_MS: Final = 10_000

# What .NET's clients write into application properties (protocol 4.3).
_TIMESPAN: Final = Symbol("com.microsoft:timespan")
_DATETIME_OFFSET: Final = Symbol("com.microsoft:datetime-offset")
_URI: Final = Symbol("com.microsoft:uri")
# .NET counts from the year 1.

_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1

# By the bytes of a decimal: the bits of its exponent, the exponent's bias, and its digits.
_DECIMAL_FORMS: Final = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}
# What a decimal128 can hold; what does not fit is rounded, as arithmetic with it would be.
_DECIMAL128: Final = Context(prec=34, Emin=-6143, Emax=6144, clamp=1, traps=[])
_COEFFICIENT_BITS: Final = 113
_BIAS: Final = 6176
_INFINITY: Final = 0x78 << 120
_NOT_A_NUMBER: Final = 0x7C << 120
_NEGATIVE: Final = 0x80 << 120


def rule_value(value: Any) -> Any:
    """Give a decoded value as rules know it; one of a type that they do not know stays as it is."""
    if isinstance(value, Timestamp):
        return InstantValue(int(value) * TICKS_PER_MS)
    if isinstance(value, Described):
        return _plain(value)
    if isinstance(value, (Decimal32, Decimal64, Decimal128)):
        return _decimal(value)
    return value


def wire_value(value: Any) -> Any:
    """Give a rule's value as it is encoded; whatever came from the wire keeps its type."""
    if isinstance(value, InstantValue):
        return Timestamp(_long(value.ticks // TICKS_PER_MS))
    if isinstance(value, DurationValue):
        return Described(_TIMESPAN, _long(value.ticks))
    if isinstance(value, Decimal):
        return _decimal128(value)
    if type(value) is int and value > _LONG_MAX:
        return Ulong(value)
    return value


def _plain(value: Described) -> Any:
    content = value.value
    # Ticks are longs, which are plain ints here.
    if type(content) is int:
        if value.descriptor == _TIMESPAN:
            return DurationValue(content)
        if value.descriptor == _DATETIME_OFFSET:
            return InstantValue(content - TICKS_AT_1970)
    if value.descriptor == _URI and isinstance(content, str):
        return content
    return value


def _long(number: int) -> int:
    return min(max(number, _LONG_MIN), _LONG_MAX)


def _decimal(raw: bytes) -> Decimal:
    """Read an IEEE 754 decimal whose coefficient is a binary integer [1.6.13-1.6.15]."""
    exponent_bits, bias, digits = _DECIMAL_FORMS[len(raw)]
    width = 8 * len(raw)
    coefficient_bits = width - 1 - exponent_bits
    bits = int.from_bytes(raw, "big")
    sign = bits >> (width - 1)
    if bits >> (width - 3) & 3 == 3:
        kind = bits >> (width - 6) & 0x1F
        if kind >= 0x1E:
            return Decimal("NaN" if kind == 0x1F else "-Infinity" if sign else "Infinity")
        # A large coefficient: its three leading bits are 100 and not written.
        coefficient_bits -= 2
        coefficient = bits & ((1 << coefficient_bits) - 1) | 1 << (coefficient_bits + 2)
    else:
        coefficient = bits & ((1 << coefficient_bits) - 1)
    exponent = bits >> coefficient_bits & ((1 << exponent_bits) - 1)
    if coefficient >= 10**digits:
        coefficient = 0  # more digits than there can be: the standard says that it is zero
    return Decimal((sign, tuple([int(digit) for digit in str(coefficient)]), exponent - bias))


def _decimal128(value: Decimal) -> Any:
    fitting = _DECIMAL128.create_decimal(value)
    sign = _NEGATIVE if fitting.is_signed() else 0
    if fitting.is_nan():
        bits = _NOT_A_NUMBER
    elif fitting.is_infinite():
        bits = sign | _INFINITY
    else:
        _, digits, exponent = fitting.as_tuple()
        coefficient = int("".join([str(digit) for digit in digits]))
        bits = sign | (int(exponent) + _BIAS) << _COEFFICIENT_BITS | coefficient
    return Decimal128(bits.to_bytes(16, "big"))
