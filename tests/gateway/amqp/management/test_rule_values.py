"""Decimals between the wire and rules; the other types are tested with whole messages."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.values.types import (
    Decimal32,
    Decimal64,
    Decimal128,
)
from peeklock.gateway.amqp.management.rule_values import rule_value, wire_value
from tests.amqp.any_values import same


@given(st.decimals(allow_nan=False))
def test_decimals_are_written_as_decimal128(value: Decimal) -> None:
    written = wire_value(value)
    assert isinstance(written, Decimal128)
    read = rule_value(written)
    if value.is_finite() and len(value.as_tuple().digits) <= 34 and -6143 < value.adjusted() < 6111:
        assert read == value
        assert read.is_signed() == value.is_signed()
    assert same(wire_value(read), written)


@pytest.mark.parametrize("kind", [Decimal32, Decimal64, Decimal128])
def test_decimals_at_their_bounds(kind: Any) -> None:
    size, digits = {Decimal32: (4, 7), Decimal64: (8, 16), Decimal128: (16, 34)}[kind]
    rest = bytes(size - 1)
    assert rule_value(kind(b"\x78" + rest)) == Decimal("Infinity")
    assert rule_value(kind(b"\xf8" + rest)) == Decimal("-Infinity")
    assert rule_value(kind(b"\x7c" + rest)).is_nan()
    assert rule_value(kind(b"\x7e" + rest)).is_qnan()
    assert rule_value(kind(bytes(size))) == 0
    assert rule_value(kind(b"\x6f" + b"\xff" * (size - 1))) == 0
    greatest = {
        Decimal32: "77f8967f",
        Decimal64: "77fb86f26fc0ffff",
        Decimal128: "5fffed09bead87c0378d8e63ffffffff",
    }[kind]
    assert rule_value(kind(bytes.fromhex(greatest))).as_tuple().digits == (9,) * digits
    assert wire_value(Decimal("NaN")) == Decimal128(b"\x7c" + bytes(15))


@given(st.sampled_from([4, 8, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)))
def test_any_bytes_are_a_decimal(raw: bytes) -> None:
    kinds: dict[int, Any] = {4: Decimal32, 8: Decimal64, 16: Decimal128}
    value = rule_value(kinds[len(raw)](raw))
    again = rule_value(wire_value(value))
    assert again == value or (again.is_nan() and value.is_nan())
