"""Any AMQP value, for Hypothesis; and a comparison that sees types where == does not."""

import math
from typing import Any

from hypothesis import strategies as st

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


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(0, min(300, 2**bits - 1)), st.integers(0, 2**bits - 1))


def signed(bits: int) -> st.SearchStrategy[int]:
    top = 2 ** (bits - 1)
    return st.one_of(st.integers(max(-top, -200), min(top - 1, 200)), st.integers(-top, top - 1))


ascii_texts = st.text(st.characters(max_codepoint=127), max_size=300)
texts = st.text(max_size=300)

scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    unsigned(8).map(Ubyte),
    unsigned(16).map(Ushort),
    unsigned(32).map(Uint),
    unsigned(64).map(Ulong),
    signed(8).map(Byte),
    signed(16).map(Short),
    signed(32).map(Int),
    signed(64),
    signed(64).map(Timestamp),
    st.floats(width=32).map(Float),
    st.floats(),
    st.characters().map(Char),
    st.uuids(),
    st.binary(max_size=300),
    texts,
    ascii_texts.map(Symbol),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
)
# Keys that stay apart in a Python dict: a map may not hold the same key twice.
keys = st.one_of(texts, signed(64).map(lambda number: Int(number % 2**31)), st.uuids())

arrays: st.SearchStrategy[Array] = st.one_of(
    st.builds(Array, st.just(0xA3), st.lists(st.text("abc", max_size=9).map(Symbol), max_size=99)),
    st.builds(Array, st.just(0xB1), st.lists(texts, max_size=5)),
    st.builds(Array, st.just(0x81), st.lists(signed(64), max_size=40)),
    st.builds(Array, st.just(0x56), st.lists(st.booleans(), max_size=9)),
    st.builds(Array, st.just(0x98), st.lists(st.uuids(), max_size=20)),
    st.builds(Array, st.just(0x40), st.lists(st.none(), max_size=9)),
    st.builds(Array, st.just(0x70), st.lists(unsigned(32).map(Uint), max_size=9), st.just("d")),
    st.builds(Array, st.just(0xD0), st.lists(st.lists(scalars, max_size=3), max_size=3)),
    st.builds(Array, st.just(0xD1), st.lists(st.dictionaries(keys, scalars, max_size=2))),
    st.builds(
        Array,
        st.just(0xE0),
        st.lists(st.builds(Array, st.just(0x50), st.lists(unsigned(8).map(Ubyte), max_size=4))),
    ),
)

values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(scalars, arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(keys, inner, max_size=5),
        st.builds(Described, st.one_of(unsigned(64).map(Ulong), ascii_texts.map(Symbol)), inner),
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Compares two values with their types, all the way down; nan is nan here."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, Array):
        mine = [one.code, one.items, one.descriptor]
        return same(mine, [other.code, other.items, other.descriptor])
    if isinstance(one, Described):
        return same([one.descriptor, one.value], [other.descriptor, other.value])
    return bool(one == other)
