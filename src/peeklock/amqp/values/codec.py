"""Python values <-> AMQP types, with nothing lost: decode(encode(x)) is x again, type too [1.6].

The decoder trusts no number that it reads. Nothing is allocated from a declared length; every
element of a list, map or array is paid for from an `ElementBudget`, those without bytes too;
nesting has a floor; keys of maps that a peer can make collide are few. `skip` walks over a value
without decoding it, which is what the hot path does with nearly everything.
"""

from struct import Struct, unpack_from
from typing import Any, Final, final
from uuid import UUID

from peeklock.amqp.errors import DecodeError
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
    LIST8,
    LIST32,
    LONG,
    MAP8,
    MAP32,
    NULL,
    SHORT,
    SIZED8,
    SIZED32,
    SMALL_INT,
    SMALL_LONG,
    SMALL_UINT,
    SMALL_ULONG,
    STRING8,
    STRING32,
    TIMESTAMP,
    TRUE,
    UBYTE,
    UINT,
    UINT0,
    ULONG,
    ULONG0,
    UNKNOWN,
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

# Three times what the official clients nest at most; each level is one Python call.
NESTING_MAX: Final = 32
# A request that schedules 1,000 messages needs about 10,000; the longest answers list the session
# of each of 100,000 messages.
ELEMENTS_MAX: Final = 262_144
# An honest element takes a byte or more; the few that do not (an array of nulls) live on this.
ELEMENTS_FREE: Final = 64
# Keys of maps that are neither text nor binary. Python hashes those two with a secret, but numbers
# and UUIDs by their value: a peer can choose them so that each walks past all before it. Nobody's
# map has so many of them, and the square of this is a millisecond.
NUMBER_KEYS_MAX: Final = 1_024
# Of these, as many may have the very same hash; without intent there are hardly ever two.
NUMBER_KEYS_ALIKE_MAX: Final = 8

# A UUID takes as long to make as so many elements more.
_UUID_ELEMENTS: Final = 3

_FLOAT: Final = Struct(">f")
_DOUBLE: Final = Struct(">d")
_UNSIGNED: Final[dict[int, Any]] = {
    UBYTE: Ubyte,
    USHORT: Ushort,
    SMALL_UINT: Uint,
    UINT: Uint,
    SMALL_ULONG: Ulong,
    ULONG: Ulong,
}
_SIGNED: Final[dict[int, Any]] = {
    BYTE: Byte,
    SHORT: Short,
    SMALL_INT: Int,
    INT: Int,
    TIMESTAMP: Timestamp,
}
_DECIMALS: Final[dict[int, Any]] = {
    DECIMAL32: Decimal32,
    DECIMAL64: Decimal64,
    DECIMAL128: Decimal128,
}


@final
class ElementBudget:
    """How many elements the values of one frame or message may still have."""

    __slots__ = ("left", "number_keys_left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.number_keys_left = NUMBER_KEYS_MAX

    def spend(self, count: int) -> None:
        """Pay for the elements of one compound before any of them is made."""
        if count > self.left:
            raise DecodeError(f"{count} elements where {self.left} are still allowed")
        self.left -= count

    def spend_number_key(self) -> None:
        """Pay for a key whose hash the peer chooses."""
        if not self.number_keys_left:
            raise DecodeError(
                f"maps with more than {NUMBER_KEYS_MAX} keys that are neither text nor binary"
            )
        self.number_keys_left -= 1


def budget_for(length: int) -> ElementBudget:
    """Return the budget of a frame or message of this many bytes."""
    return ElementBudget(min(length + ELEMENTS_FREE, ELEMENTS_MAX))


def decode(
    buffer: bytes, position: int = 0, end: int | None = None, budget: ElementBudget | None = None
) -> tuple[Any, int]:
    """Read one value and tell where the next one begins."""
    limit = len(buffer) if end is None else end
    if not 0 <= position <= limit <= len(buffer):
        raise DecodeError("a value outside its frame")
    return _value(buffer, position, limit, budget or budget_for(limit - position), 0)


def skip(buffer: bytes, position: int, end: int) -> int:
    """Walk over one value without decoding it and tell where the next one begins."""
    if end > len(buffer):
        raise DecodeError("a value outside its frame")
    pending = 1
    while pending:
        if position >= end:
            raise _cut()
        code = buffer[position]
        position += 1
        if code == DESCRIBED:
            pending += 1  # the descriptor and then the value: two where one was expected
            continue
        pending -= 1
        width = WIDTHS[code]
        if width <= 16:
            position += width
        elif width == SIZED8:
            if position >= end:
                raise _cut()
            position += 1 + buffer[position]
        elif width == SIZED32:
            if position + 4 > end:
                raise _cut()
            position += 4 + int.from_bytes(buffer[position : position + 4], "big")
        else:
            raise _unknown(code)
    if position > end:
        raise _cut()
    return position


def _value(
    buffer: bytes, position: int, end: int, budget: ElementBudget, depth: int
) -> tuple[Any, int]:
    if position >= end:
        raise _cut()
    code = buffer[position]
    if code != DESCRIBED:
        return _body(code, buffer, position + 1, end, budget, depth)
    if depth >= NESTING_MAX:
        raise _too_deep()
    budget.spend(1)
    descriptor, position = _value(buffer, position + 1, end, budget, depth + 1)
    value, position = _value(buffer, position, end, budget, depth + 1)
    return Described(descriptor, value), position


def _body(
    code: int, buffer: bytes, position: int, end: int, budget: ElementBudget, depth: int
) -> tuple[Any, int]:
    """Read what follows the constructor `code`; elements of an array have nothing else."""
    width = WIDTHS[code]
    if width <= 16:
        after = position + width
        if after > end:
            raise _cut()
        if code == UUID_CODE:
            budget.spend(_UUID_ELEMENTS)
        return _fixed(code, buffer, position, after), after
    if width == UNKNOWN:
        raise _unknown(code)
    size_width = 1 if width == SIZED8 else 4
    start = position + size_width
    if start > end:
        raise _cut()
    after = start + int.from_bytes(buffer[position:start], "big")
    if after > end:
        raise _cut()
    if code < LIST8:
        return _variable(code, buffer, start, after), after
    if depth >= NESTING_MAX:
        raise _too_deep()
    first = start + size_width
    if first > after:
        raise _cut()
    count = int.from_bytes(buffer[start:first], "big")
    if code in (ARRAY8, ARRAY32) and first < after and buffer[first] in ARRAY_NUMBERS:
        return _numbers(buffer, first, after, count), after
    budget.spend(count)
    if code in (LIST8, LIST32):
        return _list(buffer, first, after, count, budget, depth + 1), after
    if code in (MAP8, MAP32):
        return _map(buffer, first, after, count, budget, depth + 1), after
    return _array(buffer, first, after, count, budget, depth + 1), after


def _fixed(code: int, buffer: bytes, position: int, after: int) -> Any:
    if code < UBYTE:
        return _empty(code)
    if code == UUID_CODE:
        return UUID(bytes=buffer[position:after])
    unsigned = _UNSIGNED.get(code)
    if unsigned is not None:
        return unsigned(int.from_bytes(buffer[position:after], "big"))
    if code in (LONG, SMALL_LONG):
        return int.from_bytes(buffer[position:after], "big", signed=True)
    signed = _SIGNED.get(code)
    if signed is not None:
        return signed(int.from_bytes(buffer[position:after], "big", signed=True))
    if code == BOOLEAN:
        if buffer[position] > 1:
            raise DecodeError(f"a boolean of {buffer[position]}")
        return buffer[position] == 1
    if code == DOUBLE:
        return _DOUBLE.unpack_from(buffer, position)[0]
    if code == FLOAT:
        return Float(_FLOAT.unpack_from(buffer, position)[0])
    if code == CHAR:
        point = int.from_bytes(buffer[position:after], "big")
        if point > 0x10FFFF:
            raise DecodeError(f"a char beyond Unicode: {point:#x}")
        return Char(chr(point))
    return _DECIMALS[code](buffer[position:after])


def _empty(code: int) -> Any:
    if code == NULL:
        return None
    if code == TRUE:
        return True
    if code == FALSE:
        return False
    if code == UINT0:
        return Uint(0)
    if code == ULONG0:
        return Ulong(0)
    return []


def _variable(code: int, buffer: bytes, start: int, after: int) -> Any:
    raw = buffer[start:after]
    if code in (BINARY8, BINARY32):
        return raw
    try:
        if code in (STRING8, STRING32):
            return raw.decode("utf-8")
        return Symbol(raw.decode("ascii"))
    except UnicodeDecodeError:
        raise DecodeError("a text that is not UTF-8, or a symbol that is not ASCII") from None


def _list(
    buffer: bytes, position: int, end: int, count: int, budget: ElementBudget, depth: int
) -> list[Any]:
    if count > end - position:
        raise _cut()
    items: list[Any] = []
    for _ in range(count):
        item, position = _value(buffer, position, end, budget, depth)
        items.append(item)
    if position != end:
        raise _left_over()
    return items


def _map(
    buffer: bytes, position: int, end: int, count: int, budget: ElementBudget, depth: int
) -> dict[Any, Any]:
    if count > end - position:
        raise _cut()
    if count % 2:
        raise DecodeError("a map with a key and no value")
    items: dict[Any, Any] = {}
    alike: dict[bytes, int] = {}
    for _ in range(count // 2):
        key, position = _value(buffer, position, end, budget, depth)
        if not isinstance(key, (str, bytes)):
            if isinstance(key, (list, dict, Array, Described)):
                raise DecodeError("a map whose key is a compound or described value")
            budget.spend_number_key()
            _count_alike(alike, key)
        if key in items:
            raise DecodeError(f"a map with the same key twice: {key!r}")
        value, position = _value(buffer, position, end, budget, depth)
        items[key] = value
    if position != end:
        raise _left_over()
    return items


def _count_alike(alike: dict[bytes, int], key: Any) -> None:
    """Refuse keys that were made to have one hash; counted by its bytes, which hash at random."""
    hashed = hash(key).to_bytes(8, "big", signed=True)
    count = alike.get(hashed, 0) + 1
    if count > NUMBER_KEYS_ALIKE_MAX:
        raise DecodeError("a map whose keys were made to have the same hash")
    alike[hashed] = count


def _array(
    buffer: bytes, position: int, end: int, count: int, budget: ElementBudget, depth: int
) -> Array:
    if position >= end:
        raise _cut()
    descriptor: Any = None
    if buffer[position] == DESCRIBED:
        descriptor, position = _value(buffer, position + 1, end, budget, depth)
        if position >= end:
            raise _cut()
        if descriptor is None or buffer[position] == DESCRIBED:
            raise DecodeError("an array whose descriptor is null or described again")
    code = buffer[position]
    if WIDTHS[code] == UNKNOWN:
        raise _unknown(code)
    position += 1
    if WIDTHS[code] and count > end - position:
        raise _cut()
    items: list[Any] = []
    for _ in range(count):
        item, position = _body(code, buffer, position, end, budget, depth)
        items.append(item)
    if position != end:
        raise _left_over()
    return Array(code, items, descriptor)


def _numbers(buffer: bytes, position: int, end: int, count: int) -> Array:
    """Read an array of whole numbers at once. They are as many as their bytes allow, so that they
    need no budget: requests and answers about many messages are made of them."""
    code = buffer[position]
    position += 1
    if count * WIDTHS[code] > end - position:
        raise _cut()
    if count * WIDTHS[code] < end - position:
        raise _left_over()
    items = list(unpack_from(f">{count}{ARRAY_NUMBERS[code]}", buffer, position))
    return Array(code, items if code == LONG else [Int(item) for item in items])


def _cut() -> DecodeError:
    return DecodeError("a value that ends before it should")


def _left_over() -> DecodeError:
    return DecodeError("a compound that is longer than its elements")


def _too_deep() -> DecodeError:
    return DecodeError(f"values nested deeper than {NESTING_MAX} levels")


def _unknown(code: int) -> DecodeError:
    return DecodeError(f"an unknown constructor {code:#04x}")
