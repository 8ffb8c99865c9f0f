"""The typed values of rules: each comes back as it went, in a form that the clients read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID
from xml.etree.ElementTree import fromstring

import pytest

from peeklock.entity.rules.values import DurationValue, InstantValue
from peeklock.gateway.http.admin.reading import Content, MalformedEntry
from peeklock.gateway.http.admin.values import read_value, write_value

XSI = "http://www.w3.org/2001/XMLSchema-instance"


def read(xml: str) -> Any:
    root = fromstring(f'<Pair xmlns:i="{XSI}">{xml}</Pair>')
    return read_value(Content(root[0]), "key")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("", "string", ""),
        (" a <b> & 'c'\r\n", "string", " a &lt;b&gt; &amp; 'c'&#13;\n"),
        (5, "int", "5"),
        (-(2**31) + 1, "int", "-2147483647"),
        (2**31, "long", "2147483648"),
        (1.5, "double", "1.5"),
        (5.0, "double", "5"),
        (1e300, "double", "1E+300"),
        (True, "boolean", "true"),
        (False, "boolean", "false"),
        (Decimal("1.50"), "decimal", "1.50"),
        (InstantValue(16_000_000_000_000_001), "dateTime", "2020-09-13T12:26:40.0000001Z"),
        (DurationValue(50_000_000), "duration", "P0DT0H0M5S"),
        (DurationValue(-864_610_000_001), "duration", "-P1DT0H1M1.0000001S"),
        (UUID(int=7), "guid", "00000000-0000-0000-0000-000000000007"),
        (b"\x00\xff", "base64Binary", "AP8="),
    ],
)
def test_a_value_comes_back_with_its_type(value: Any, kind: str, text: str) -> None:
    written = write_value(value)
    # Four characters and a colon before the type: a client cuts five off.
    assert written.startswith(f'<Value i:type="d6p1:{kind}" xmlns:d6p1="http')
    assert written.endswith(f">{text}</Value>")
    again = read(written)
    # Instants are read as finely as Python's clock is.
    if not isinstance(value, InstantValue):
        assert (type(again), again) == (type(value), value)


def test_nothing_is_a_value_too() -> None:
    assert write_value(None) == '<Value i:nil="true"/>'
    assert read('<Value i:nil="true"/>') is None


def test_what_has_no_type_is_a_text() -> None:
    assert read("<Value>5</Value>") == "5"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "five"),
        ("int", "9" * 5_000),
        ("double", "x"),
        ("boolean", "maybe"),
        ("decimal", "1,5"),
        ("decimal", "NaN"),
        ("decimal", "1E+999999999"),
        ("decimal", "1E-999999999"),
        ("dateTime", "yesterday"),
        ("duration", "a while"),
        ("duration", "P" + "9" * 5_000 + "D"),
        ("guid", "7"),
        ("base64Binary", "*"),
        ("unheardOf", "x"),
    ],
)
def test_what_is_not_of_its_type_is_malformed(kind: str, text: str) -> None:
    with pytest.raises(MalformedEntry, match="'key'"):
        read(f'<Value i:type="d6p1:{kind}">{text}</Value>')
