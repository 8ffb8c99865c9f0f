"""Application properties as text and as JSON without loss."""

import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import (
    Array,
    Byte,
    Char,
    Decimal64,
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
from peeklock.spark.properties import as_text, from_json, to_json

_simple = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(0, 255).map(Ubyte)
    | st.integers(0, 65_535).map(Ushort)
    | st.integers(0, (1 << 32) - 1).map(Uint)
    | st.integers(0, (1 << 64) - 1).map(Ulong)
    | st.integers(-128, 127).map(Byte)
    | st.integers(-5, 5).map(Short)
    | st.integers(-5, 5).map(Int)
    | st.integers(-(1 << 63), (1 << 63) - 1).map(Timestamp)
    | st.floats(allow_nan=False)
    | st.floats(allow_nan=False, width=32).map(Float)
    | st.text()
    | st.characters(codec="utf-8").map(Char)
    | st.sampled_from(["a", "x-opt-b"]).map(Symbol)
    | st.binary()
    | st.binary(min_size=8, max_size=8).map(Decimal64)
    | st.uuids()
)


@given(st.dictionaries(st.text(), _simple | st.lists(_simple)))
def test_json_loses_nothing(properties: dict[str, Any]) -> None:
    """R-D1: what is replayed from a lake has the types it had."""
    again = from_json(to_json(properties))
    assert encode(again) == encode(properties)


@given(_simple)
def test_every_value_has_a_text(value: Any) -> None:
    text = as_text(value)
    assert (text is None) == (value is None)


def test_compounds_are_kept_too() -> None:
    value = {"a": Array(0x71, [Int(1)]), "d": Described(Symbol("x"), {"k": [None, b"\x00"]})}
    assert from_json(to_json(value)) == value
    assert as_text([1, "x"]) == '{"list": [{"long": 1}, {"string": "x"}]}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (Int(3), "3"),
        (1.5, "1.5"),
        (Timestamp(1_767_225_600_123), "2026-01-01T00:00:00.123Z"),
        (Timestamp(1 << 62), str(1 << 62)),
        (b"\x00\x01", "AAE="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Symbol("name"), "name"),
    ],
)
def test_texts_are_for_people(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_what_json_has_no_numbers_for_is_kept() -> None:
    again = from_json(to_json({"n": math.nan, "i": math.inf}))
    assert math.isnan(again["n"])
    assert again["i"] == math.inf
    assert decode(encode(again["i"]))[0] == math.inf


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ValueError, match="no AMQP type"):
        from_json('{"a":{"word":1}}')
