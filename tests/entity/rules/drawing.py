"""Random conditions and messages for the properties, and how a condition is written as text."""

import math
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from peeklock.entity.rules.values import DurationValue, InstantValue, PropertyBag
from tests.entity.rules.reference import Node, World

NEW_ID: Final = UUID("00000000-0000-4000-8000-000000000000")


class Strange:
    """A value of a type that the rule language does not know."""

    def __repr__(self) -> str:
        return "strange"


STRANGE: Final = Strange()


class Narrow(int):
    """A number in a wire type of its own, as a uint is."""


# Few names and few values, chosen so that they meet: equal numbers of different types, the edges
# of what 64 bits and doubles hold, texts that look like patterns or numbers.
TEXTS: Final = ("", "a", "A", "ab", "a%b", "a_", "1", "True", "color", "it's", "\n", "\U0001f400")
NUMBERS: Final = (0, 1, 2, 7, 3, 2**53, 2**53 + 1, 2**63 - 1, 0.0, 0.5, 1.0, 2.5, 1e300, 7e-5)
OTHERS: Final = (
    True,
    False,
    None,
    Narrow(7),
    -1,
    -7,
    -2.5,
    -(2**63),
    2**64 - 1,
    math.nan,
    math.inf,
    Decimal(1),
    Decimal("0.5"),
    Decimal("0.1"),
    Decimal("NaN"),
    Decimal("1E+400"),
    b"a",
    UUID(int=7),
    NEW_ID,
    InstantValue(7),
    InstantValue(8),
    DurationValue(7),
    DurationValue(8),
    STRANGE,
)

numbers = st.sampled_from((*NUMBERS, *(v for v in OTHERS if isinstance(v, (int, float, Decimal)))))
texts = st.sampled_from(TEXTS)
values = st.one_of(texts, numbers, st.sampled_from(OTHERS))

# Most messages have most properties, and most have the type that conditions hope for.
NUMBER_NAMES: Final = ("a", "b", "Count")
TEXT_NAMES: Final = ("Color", "with space")
FLAG_NAMES: Final = ("set",)
NAMES: Final = (*NUMBER_NAMES, *TEXT_NAMES, *FLAG_NAMES)


def _short(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The same strategy with a short name: Hypothesis writes the others out, one in the other."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Any:
        return draw(strategy)

    return drawn()


def _mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(usual, usual, usual, values)


user_bags = _short(
    st.builds(
        lambda bag, left_out, more: {n: v for n, v in {**bag, **more}.items() if n not in left_out},
        st.fixed_dictionaries(
            {
                **{name: _mostly(numbers) for name in NUMBER_NAMES},
                **{name: _mostly(texts) for name in TEXT_NAMES},
                **{name: _mostly(st.booleans()) for name in FLAG_NAMES},
            }
        ),
        st.sets(st.sampled_from(NAMES), max_size=2),
        st.dictionaries(st.sampled_from(["COLOR", "A", "B"]), values, max_size=1),
    )
)
system_bags = st.fixed_dictionaries(
    {},
    optional={
        "Label": texts,
        "CorrelationId": texts,
        "TimeToLive": st.sampled_from([DurationValue(7), DurationValue(8)]),
        "SequenceNumber": st.sampled_from([1, 7]),
    },
)


def reader_of(user: dict[str, Any], system: dict[str, Any]) -> PropertyBag:
    return PropertyBag(user, system, random_source=lambda: 0)


def world_of(user: dict[str, Any], system: dict[str, Any]) -> World:
    return World(user, system, NEW_ID)


def _spelled(name: str, how: int) -> Node:
    return ("property", "user", (str, str.upper, str.lower, str.swapcase)[how](name))


def _user(names: tuple[str, ...]) -> st.SearchStrategy[Node]:
    return st.builds(_spelled, st.sampled_from(names), st.sampled_from([0, 0, 0, 1, 2, 3]))


def _system(*names: str) -> st.SearchStrategy[Node]:
    return st.sampled_from(names).map(lambda name: ("property", "sys", name))


def _constant(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Node]:
    return usual.map(lambda constant: ("constant", constant))


constants = _constant(
    st.one_of(texts, st.sampled_from(NUMBERS), st.sampled_from([True, False, None]))
)
properties = _short(
    st.one_of(
        _user(NAMES),
        _user(NAMES),
        _system("Label", "subject", "CORRELATIONID", "TimeToLive", "SequenceNumber"),
        st.sampled_from([("property", "sys", "Nope"), ("computed", ("constant", "color"))]),
    )
)
flags = st.one_of(_user(FLAG_NAMES), _user(FLAG_NAMES), _user(NAMES))
anything = st.one_of(properties, constants, st.just(("newid",)))


def _calculated(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.tuples(st.just("sign"), st.sampled_from("+-"), inner),
        st.tuples(st.just("arithmetic"), st.sampled_from("+-*/%"), inner, inner),
    )


number_operands = _short(
    st.recursive(
        st.one_of(
            _constant(st.sampled_from(NUMBERS)),
            _constant(st.sampled_from(NUMBERS)),
            _user(NUMBER_NAMES),
            _user(NUMBER_NAMES),
            _user(NUMBER_NAMES),
            _system("SequenceNumber"),
            st.one_of(_user(NAMES), anything),
        ),
        _calculated,
        max_leaves=4,
    )
)
_text_leaves = st.one_of(
    _constant(texts), _user(TEXT_NAMES), _user(TEXT_NAMES), _system("Label"), anything
)
text_operands = _short(
    st.one_of(
        _text_leaves,
        _text_leaves,
        st.tuples(st.just("arithmetic"), st.just("+"), _text_leaves, _text_leaves),
        st.tuples(st.just("arithmetic"), st.just("+"), _text_leaves, number_operands),
        st.tuples(st.just("computed"), _text_leaves),
    )
)
operands = st.one_of(number_operands, text_operands, anything)
_pairs = st.one_of(
    st.tuples(number_operands, number_operands),
    st.tuples(text_operands, text_operands),
    st.tuples(_user(NUMBER_NAMES), _constant(st.sampled_from(NUMBERS))),
    st.tuples(_user(TEXT_NAMES), _constant(texts)),
    st.tuples(operands, operands),
)
_lists = st.one_of(
    st.tuples(number_operands, st.lists(number_operands, min_size=1, max_size=3)),
    st.tuples(text_operands, st.lists(_constant(texts), min_size=1, max_size=3)),
    st.tuples(operands, st.lists(operands, min_size=1, max_size=3)),
)
patterns = _short(
    st.one_of(
        _constant(st.text("aA1%_!", max_size=4)),
        _constant(st.text("aA1%_!", max_size=4)),
        text_operands,
    )
)
escapes = st.one_of(st.none(), st.none(), st.just(("constant", "!")), _text_leaves)
subjects = st.one_of(properties, st.tuples(st.just("computed"), constants))
comparators = st.sampled_from(["=", "=", "<>", "!=", "<", "<=", ">", ">="])
equalities = st.builds(
    lambda name, constant: ("compare", "=", name, constant), _user(NAMES), constants
)
tests = _short(
    st.one_of(
        st.builds(lambda sign, pair: ("compare", sign, *pair), comparators, _pairs),
        st.builds(lambda sign, pair: ("compare", sign, *pair), comparators, _pairs),
        equalities,
        st.builds(lambda negated, pair: ("in", negated, *pair), st.booleans(), _lists),
        st.tuples(st.just("like"), st.booleans(), text_operands, patterns, escapes),
        st.tuples(st.just("is null"), st.booleans(), subjects),
        st.tuples(st.just("exists"), subjects),
        flags,
        st.sampled_from([("constant", True), ("constant", False), ("constant", None)]),
    )
)


def _joined(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
    )


conditions = _short(
    st.one_of(
        st.recursive(tests, _joined, max_leaves=5),
        tests,
        # What most filters look like, and what the index is made for.
        st.tuples(st.just("and"), equalities, tests),
    )
)

# How strongly each kind binds; what binds less than its place asks for goes into brackets.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGN, _PRIMARY = range(8)


def written(node: Node, place: int = _OR) -> str:
    """The text of a condition or an expression, with no more brackets than it needs."""
    text, strength = _written(node)
    return text if strength >= place else f"({text})"


def _written(node: Node) -> tuple[str, int]:
    kind = node[0]
    if kind == "or":
        return f"{written(node[1])} OR {written(node[2], _AND)}", _OR
    if kind == "and":
        return f"{written(node[1], _AND)} and {written(node[2], _NOT)}", _AND
    if kind == "not":
        return f"Not {written(node[1], _NOT)}", _NOT
    if kind == "compare":
        return f"{written(node[2], _SUM)}{node[1]}{written(node[3], _SUM)}", _TEST
    if kind in ("in", "like", "is null"):
        return _written_test(node), _TEST
    if kind == "exists":
        return f"exists ({written(node[1])})", _TEST
    if kind == "sign":
        return f"{node[1]} {written(node[2], _SIGN)}", _SIGN
    if kind == "arithmetic":
        strength = _SUM if node[1] in "+-" else _PRODUCT
        return f"{written(node[2], strength)} {node[1]} {written(node[3], strength + 1)}", strength
    return _written_leaf(node), _PRIMARY


def _written_test(node: Node) -> str:
    word = "NOT " if node[1] else ""
    if node[0] == "in":
        items = ", ".join(written(item, _SUM) for item in node[3])
        return f"{written(node[2], _SUM)} {word}IN ({items})"
    if node[0] == "is null":
        return f"{written(node[2], _SUM)} is {word}null"
    escape = "" if node[4] is None else f" escape {written(node[4], _SUM)}"
    return f"{written(node[2], _SUM)} {word}like {written(node[3], _SUM)}{escape}"


def _written_leaf(node: Node) -> str:
    if node[0] == "newid":
        return "NewId()"
    if node[0] == "computed":
        return f"property({written(node[1])})"
    if node[0] == "property":
        scope = "sys." if node[1] == "sys" else ""
        return f"{scope}[{node[2]}]" if " " in node[2] else f"{scope}{node[2]}"
    constant = node[1]
    if isinstance(constant, str):
        return "'" + constant.replace("'", "''") + "'"
    return "NULL" if constant is None else str(constant)
