"""The AMQP types for which Python has no type of its own [1.6].

Each is a subclass of the nearest Python type, so that a `Uint` counts and compares like the int it
is, and yet goes back to the wire as the uint that came. Plain int stands for long, float for
double, str for string. A compiled function that takes an `int` hands on a plain int: values that
must keep their type are passed as `Any`.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeVar, final

_Class = TypeVar("_Class", bound=type)


def interpreted(cls: _Class) -> _Class:
    """Keep a class an ordinary Python class: a compiled one cannot inherit from int or str."""
    return cls


@interpreted
class Ubyte(int):
    """An unsigned 8-bit number."""

    __slots__ = ()


@interpreted
class Ushort(int):
    """An unsigned 16-bit number."""

    __slots__ = ()


@interpreted
class Uint(int):
    """An unsigned 32-bit number."""

    __slots__ = ()


@interpreted
class Ulong(int):
    """An unsigned 64-bit number."""

    __slots__ = ()


@interpreted
class Byte(int):
    """A signed 8-bit number."""

    __slots__ = ()


@interpreted
class Short(int):
    """A signed 16-bit number."""

    __slots__ = ()


@interpreted
class Int(int):
    """A signed 32-bit number."""

    __slots__ = ()


@interpreted
class Timestamp(int):
    """An instant in milliseconds since 1970, UTC."""

    __slots__ = ()


@interpreted
class Float(float):
    """A 32-bit floating point number."""

    __slots__ = ()


@interpreted
class Symbol(str):
    """A name from a constrained domain, ASCII only."""

    __slots__ = ()


@interpreted
class Char(str):
    """One Unicode character."""

    __slots__ = ()


@interpreted
class Decimal32(bytes):
    """The four bytes of an IEEE 754 decimal32, which nobody here computes with."""

    __slots__ = ()


@interpreted
class Decimal64(bytes):
    """The eight bytes of an IEEE 754 decimal64."""

    __slots__ = ()


@interpreted
class Decimal128(bytes):
    """The sixteen bytes of an IEEE 754 decimal128."""

    __slots__ = ()


@final
@dataclass(slots=True, init=False)
class Array:
    """Values of one type: the constructor that they share, and its descriptor if it has one."""

    code: Final[int]
    items: Final[list[Any]]
    descriptor: Final[Any]

    def __init__(self, code: int, items: list[Any], descriptor: Any = None) -> None:
        self.code = code
        self.items = items
        self.descriptor = descriptor


@final
@dataclass(slots=True, init=False)
class Described:
    """A value with the descriptor that gives it its meaning."""

    descriptor: Final[Any]
    value: Final[Any]

    def __init__(self, descriptor: Any, value: Any) -> None:
        self.descriptor = descriptor
        self.value = value


@final
@dataclass(slots=True, init=False)
class Encoded:
    """A value that is encoded already and goes to the wire as it is; decoding never gives one."""

    raw: Final[bytes]

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
