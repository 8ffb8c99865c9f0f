"""Python values -> AMQP bytes: the writing half of the codec; everybody else finds it in `codec`.

A value that has no AMQP form is our own mistake: TypeError for the wrong type, ValueError for a
number or a text that does not fit.
"""

import struct
from struct import Struct
from typing import Any, Final
from uuid import UUID

from peeklock.amqp.values.constructors import (
    ARRAY8,
    ARRAY32,
    ARRAY_NUMBERS,
    BINARY8,
    BINARY32,
    BOOLEAN,
    BYTE,
    CHAR,
    DECIMAL32,
    DECIMAL64,
    DECIMAL128,
    DESCRIBED,
    DOUBLE,
    FALSE,
    FLOAT,
    INT,
    LIST0,
    LIST8,
    LIST32,
    LONG,
    MAP8,
    MAP32,
    NULL,
    SHORT,
    SIZED8,
    SMALL_INT,
    SMALL_LONG,
    SMALL_UINT,
    SMALL_ULONG,
    STRING8,
    STRING32,
    SYMBOL8,
    SYMBOL32,
    TIMESTAMP,
    TRUE,
    UBYTE,
    UINT,
    UINT0,
    ULONG,
    ULONG0,
    USHORT,
    UUID_CODE,
    WIDTHS,
)
from peeklock.amqp.values.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Encoded,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

# Which constructors carry which type; the widest comes last.
_CODES: Final[dict[Any, tuple[int, ...]]] = {
    type(None): (NULL,),
    bool: (TRUE, FALSE, BOOLEAN),
    Ubyte: (UBYTE,),
    Ushort: (USHORT,),
    Uint: (UINT0, SMALL_UINT, UINT),
    Ulong: (ULONG0, SMALL_ULONG, ULONG),
    Byte: (BYTE,),
    Short: (SHORT,),
    Int: (SMALL_INT, INT),
    int: (SMALL_LONG, LONG),
    Float: (FLOAT,),
    float: (DOUBLE,),
    Decimal32: (DECIMAL32,),
    Decimal64: (DECIMAL64,),
    Decimal128: (DECIMAL128,),
    Char: (CHAR,),
    Timestamp: (TIMESTAMP,),
    UUID: (UUID_CODE,),
    bytes: (BINARY8, BINARY32),
    str: (STRING8, STRING32),
    Symbol: (SYMBOL8, SYMBOL32),
    list: (LIST0, LIST8, LIST32),
    dict: (MAP8, MAP32),
    Array: (ARRAY8, ARRAY32),
}
_UNSIGNED: Final = (UBYTE, USHORT, SMALL_UINT, UINT, SMALL_ULONG, ULONG)
# The one value that each constructor without bytes can stand for.
_EMPTY: Final[dict[int, Any]] = {
    NULL: None,
    TRUE: True,
    FALSE: False,
    UINT0: 0,
    ULONG0: 0,
    LIST0: [],
}
_FLOAT: Final = Struct(">f")
_DOUBLE: Final = Struct(">d")


def encode(value: Any) -> bytes:
    """Write one value in its smallest form; the type of the value chooses the AMQP type."""
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: Any) -> None:
    """Write one value behind what is there already."""
    if isinstance(value, Described):
        out.append(DESCRIBED)
        encode_into(out, value.descriptor)
        encode_into(out, value.value)
    elif isinstance(value, Encoded):
        out += value.raw
    else:
        codes = _CODES.get(type(value))
        if codes is None:
            raise TypeError(f"{type(value).__name__} has no AMQP type")
        _write_smallest(out, codes, value)


def _write_smallest(out: bytearray, codes: tuple[int, ...], value: Any) -> None:
    widest = codes[-1]
    if widest < LIST8:
        code = _scalar_code(codes, value)
        out.append(code)
        _write_scalar(out, code, value)
    elif value == []:
        out.append(LIST0)
    else:
        body = _elements(value)
        count = _count(value)
        narrow = count < 256 and len(body) < 255  # the size counts the count's byte too
        code = codes[-2] if narrow else widest
        out.append(code)
        _write_sized(out, code, count, body)


def _scalar_code(codes: tuple[int, ...], value: Any) -> int:
    """Choose the smallest constructor that can hold the value."""
    widest = codes[-1]
    if len(codes) == 1:
        return widest
    if widest == BOOLEAN:
        return TRUE if value else FALSE
    if widest in (INT, LONG):
        return codes[0] if -128 <= value < 128 else widest
    if widest in (UINT, ULONG):
        if value == 0:
            return codes[0]
        return codes[1] if 0 < value < 256 else widest
    return codes[0] if len(_octets(value)) < 256 else widest


def _write_scalar(out: bytearray, code: int, value: Any) -> None:
    """Write what follows the constructor of a value that holds no others."""
    width = WIDTHS[code]
    if width == 0:
        if value != _EMPTY[code]:
            raise ValueError(f"{value!r} is not what the constructor {code:#04x} stands for")
    elif width > 16:
        octets = _octets(value)
        out += _size(code, len(octets))
        out += octets
    elif code == BOOLEAN:
        out.append(1 if value else 0)
    elif code == DOUBLE:
        out += _DOUBLE.pack(value)
    elif code == FLOAT:
        out += _FLOAT.pack(value)
    elif code == CHAR:
        out += ord(value).to_bytes(4, "big")
    elif code == UUID_CODE:
        out += value.bytes
    elif isinstance(value, bytes):
        if len(value) != width:
            raise ValueError(f"a decimal of {width} bytes cannot have {len(value)}")
        out += value
    else:
        _write_number(out, code, width, value)


def _write_number(out: bytearray, code: int, width: int, value: int) -> None:
    try:
        out += value.to_bytes(width, "big", signed=code not in _UNSIGNED)
    except OverflowError:
        raise ValueError(f"{value} does not fit the constructor {code:#04x}") from None


def _octets(value: Any) -> bytes:
    if isinstance(value, Symbol):
        return value.encode("ascii")
    if isinstance(value, str):
        return value.encode("utf-8")
    return bytes(value)


def _elements(value: Any) -> bytearray:
    """Write what a list, map or array holds, without its size and its count."""
    body = bytearray()
    if isinstance(value, dict):
        for key, item in value.items():
            encode_into(body, key)
            encode_into(body, item)
    elif isinstance(value, Array):
        if value.descriptor is not None:
            body.append(DESCRIBED)
            encode_into(body, value.descriptor)
        body.append(value.code)
        if not _write_numbers(body, value.code, value.items):
            for item in value.items:
                _write_element(body, value.code, item)
    else:
        for item in value:
            encode_into(body, item)
    return body


def _write_numbers(out: bytearray, code: int, items: list[Any]) -> bool:
    """Write the elements of an array at once where they are whole numbers of its type; return
    whether they are. The constructor tells the width, so that plain numbers will do for both."""
    form = ARRAY_NUMBERS.get(code)
    if form is None:
        return False
    for item in items:
        kind = type(item)
        if kind is not int and (code == LONG or kind is not Int):
            return False
    try:
        out += struct.pack(f">{len(items)}{form}", *items)
    except struct.error:
        return False  # one is too large: whoever writes them one by one says which
    return True


def _write_element(out: bytearray, code: int, value: Any) -> None:
    """Write an element of an array, which has no constructor of its own."""
    if code not in _CODES.get(type(value), ()):
        raise TypeError(f"{value!r} cannot be an element under the constructor {code:#04x}")
    if code >= LIST8:
        _write_sized(out, code, _count(value), _elements(value))
    else:
        _write_scalar(out, code, value)


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return 2 * len(value)
    return len(value.items) if isinstance(value, Array) else len(value)


def _write_sized(out: bytearray, code: int, count: int, body: bytearray) -> None:
    written = _size(code, count)
    out += _size(code, len(written) + len(body))
    out += written
    out += body


def _size(code: int, size: int) -> bytes:
    """Write a size or a count as wide as the constructor asks for."""
    if WIDTHS[code] == SIZED8 and size > 255:
        raise ValueError(f"{size} does not fit the constructor {code:#04x}")
    return size.to_bytes(1 if WIDTHS[code] == SIZED8 else 4, "big")
