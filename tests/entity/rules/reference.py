"""A slow evaluator of the rule language, written from the service's reference and nothing else.

It has its own tree (tuples, the first item names the kind) and its own operators, shares no code
with the broker, and writes every rule out at length. What it cannot evaluate raises `Failed`.
"""

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from peeklock.entity.rules.values import SYSTEM_PROPERTIES, DurationValue, InstantValue

Node = tuple[Any, ...]
UNKNOWN = None
ABSENT = object()


class Failed(Exception):
    """The service would raise a FilterException."""


class World:
    """One message as the reference sees it: plain dictionaries, searched from the start."""

    def __init__(self, user: Mapping[str, Any], system: Mapping[str, Any], new_id: UUID) -> None:
        self.user = user
        self.system = system
        self.new_id = new_id

    def look_up(self, scope: str, name: str) -> Any:
        if scope == "user":
            if name in self.user:
                return self.user[name]
            for key, value in self.user.items():
                if key.lower() == name.lower():
                    return value
            return ABSENT
        for known in SYSTEM_PROPERTIES:
            if known.lower() == name.lower() or (known, name.lower()) == ("Label", "subject"):
                return self.system.get(known, ABSENT)
        raise Failed(name)


def truth(node: Node, world: World) -> bool | None:
    """The truth of a condition: True, False or UNKNOWN."""
    kind = node[0]
    if kind == "and":
        left = truth(node[1], world)
        if left is False:
            return False
        right = truth(node[2], world)
        if right is False:
            return False
        return True if left is True and right is True else UNKNOWN
    if kind == "or":
        left = truth(node[1], world)
        if left is True:
            return True
        right = truth(node[2], world)
        if right is True:
            return True
        return False if left is False and right is False else UNKNOWN
    if kind == "not":
        return opposite(truth(node[1], world))
    if kind == "compare":
        return compared(node, world)
    if kind == "in":
        return opposite(contained(node, world)) if node[1] else contained(node, world)
    if kind == "like":
        return opposite(like(node, world)) if node[1] else like(node, world)
    if kind == "is null":
        found = property_of(node[2], world)
        is_null = found is ABSENT or found is None
        return not is_null if node[1] else is_null
    if kind == "exists":
        return property_of(node[1], world) is not ABSENT
    found = value(node, world)
    if found is not None and type(found) is not bool:
        raise Failed("not a boolean")
    return found


def opposite(known: bool | None) -> bool | None:
    return UNKNOWN if known is UNKNOWN else not known


def compared(node: Node, world: World) -> bool | None:
    _, sign, left_node, right_node = node
    left = value(left_node, world)
    if left is None:
        return UNKNOWN
    right = value(right_node, world)
    if right is None:
        return UNKNOWN
    if sign == "=":
        return same(left, right)
    if sign in ("<>", "!="):
        return not same(left, right)
    a, b = in_order(left, right)
    orders: dict[str, Callable[[], bool]] = {
        "<": lambda: a < b,
        "<=": lambda: a <= b,
        ">": lambda: a > b,
        ">=": lambda: a >= b,
    }
    return orders[sign]()


def contained(node: Node, world: World) -> bool | None:
    left = value(node[2], world)
    if left is None:
        return UNKNOWN
    some_unknown = False
    for item in node[3]:
        right = value(item, world)
        if right is None:
            some_unknown = True
        elif same(left, right):
            return True
    return UNKNOWN if some_unknown else False


def like(node: Node, world: World) -> bool | None:
    _, _, text_node, pattern_node, escape_node = node
    text = value(text_node, world)
    if text is None:
        return UNKNOWN
    pattern = value(pattern_node, world)
    if pattern is None:
        return UNKNOWN
    escape = None
    if escape_node is not None:
        escape = value(escape_node, world)
        if escape is None:
            return UNKNOWN
    if not isinstance(pattern, str) or not isinstance(text, str):
        raise Failed("LIKE is for texts")
    if escape_node is not None and not (isinstance(escape, str) and len(escape) == 1):
        raise Failed("one character")
    return fits(text, shape_of(pattern, escape))


def shape_of(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    """The pattern as (kind, character): any, one or the character itself."""
    shape = []
    rest = list(pattern)
    while rest:
        character = rest.pop(0)
        if character == escape:
            if not rest:
                raise Failed("nothing is escaped")
            shape.append(("itself", rest.pop(0)))
        elif character == "%":
            shape.append(("any", ""))
        elif character == "_":
            shape.append(("one", ""))
        else:
            shape.append(("itself", character))
    return shape


def fits(text: str, shape: list[tuple[str, str]]) -> bool:
    """Row by row: which beginnings of the text does each beginning of the pattern cover?"""
    row = [True] + [False] * len(text)
    for kind, character in shape:
        following = [kind == "any" and row[0]]
        for index, letter in enumerate(text):
            if kind == "any":
                following.append(following[index] or row[index + 1])
            else:
                following.append(row[index] and (kind == "one" or letter == character))
        row = following
    return row[-1]


def value(node: Node, world: World) -> Any:
    """The value of an expression; None is null or unknown."""
    kind = node[0]
    if kind == "constant":
        return node[1]
    if kind in ("property", "computed"):
        found = property_of(node, world)
        return None if found is ABSENT else found
    if kind == "newid":
        return world.new_id
    if kind == "sign":
        return signed(node[1], value(node[2], world))
    _, sign, left_node, right_node = node
    left = value(left_node, world)
    if left is None:
        return None
    right = value(right_node, world)
    return None if right is None else calculated(sign, left, right)


def property_of(node: Node, world: World) -> Any:
    if node[0] == "property":
        return world.look_up(node[1], node[2])
    name = value(node[1], world)
    if name is None:
        return ABSENT
    if not isinstance(name, str):
        raise Failed("a name is a text")
    return world.look_up("user", name)


def is_number(known: Any) -> bool:
    return isinstance(known, (int, float, Decimal)) and type(known) is not bool


def same(left: Any, right: Any) -> bool:
    if is_number(left) and is_number(right):
        a, b = promoted(left, right)
        return bool(a == b)
    for kind in (str, bool, bytes, UUID, InstantValue, DurationValue):
        if isinstance(left, kind) and isinstance(right, kind):
            return bool(left == right)
    return False


def in_order(left: Any, right: Any) -> tuple[Any, Any]:
    if is_number(left) and is_number(right):
        return promoted(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    if isinstance(left, UUID) and isinstance(right, UUID):
        return left.bytes, right.bytes
    for kind in (InstantValue, DurationValue):
        if isinstance(left, kind) and isinstance(right, kind):
            return left.ticks, right.ticks
    raise Failed("no order")


def promoted(left: Any, right: Any) -> tuple[Any, Any]:
    """Two numbers as doubles when one is a double, else as exact fractions."""
    if any(isinstance(side, Decimal) and side.is_nan() for side in (left, right)):
        return math.nan, math.nan
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return Fraction(left), Fraction(right)


def signed(sign: str, number: Any) -> Any:
    if number is None:
        return None
    if not is_number(number):
        raise Failed("no sign")
    if sign == "+":
        return number
    return long(-number) if isinstance(number, int) else number * -1


def calculated(sign: str, left: Any, right: Any) -> Any:
    if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
        joined = as_text(left) + as_text(right)
        if len(joined) > 32 * 1024:
            raise Failed("too long")
        return joined
    if not is_number(left) or not is_number(right):
        raise Failed("no arithmetic")
    if sign in "/%" and right == 0:
        raise Failed("division by zero")
    if isinstance(left, int) and isinstance(right, int):
        whole = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "/": lambda: math.trunc(Fraction(left, right)),
            "%": lambda: left - right * math.trunc(Fraction(left, right)),
        }
        return long(whole[sign]())
    if isinstance(left, float) or isinstance(right, float):
        return double(sign, float(left), float(right))
    return exact(sign, Decimal(left), Decimal(right))


def long(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise Failed("overflow")
    return number


def double(sign: str, left: float, right: float) -> float:
    if sign == "%" and math.isinf(left):
        return math.nan
    operations: dict[str, Callable[[], float]] = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left / right,
        "%": lambda: math.fmod(left, right),
    }
    result = operations[sign]()
    if math.isinf(result) and math.isfinite(left) and math.isfinite(right):
        raise Failed("overflow")
    return result


def exact(sign: str, left: Decimal, right: Decimal) -> Decimal:
    context = Context(prec=34)
    operations: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
        "+": context.add,
        "-": context.subtract,
        "*": context.multiply,
        "/": context.divide,
        "%": context.remainder,
    }
    try:
        return operations[sign](left, right)
    except ArithmeticError as wrong:
        raise Failed("no decimal") from wrong


def as_text(known: Any) -> str:
    """As the broker writes it; times are drawn with a fraction and of less than a second."""
    if isinstance(known, str):
        return known
    if isinstance(known, float):
        text = repr(float(known))
        return (text.removesuffix(".0")).replace("e", "E") if math.isfinite(known) else text.upper()
    if isinstance(known, (bool, int, Decimal, UUID)):
        return str(known)
    if isinstance(known, InstantValue):
        moment = datetime(1970, 1, 1) + timedelta(microseconds=known.ticks // 10)
        return moment.isoformat(timespec="microseconds") + f"{known.ticks % 10}Z"
    if isinstance(known, DurationValue):
        return f"0{timedelta(microseconds=known.ticks // 10)}" + f".{known.ticks % 10**7:07}"
    raise Failed("no text")
