"""The values of options, as people write them."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from peeklock.cli.values import duration, instant_ms, pairs, scalar


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("30s", "PT30S"),
        ("5m", "PT5M"),
        ("1.5h", "PT1H30M"),
        ("7D", "P7D"),
        ("250ms", "PT0.25S"),
        ("PT1M", "PT1M"),
        ("pt90s", "PT1M30S"),
        ("never", "P10675199DT2H48M5.4775807S"),
    ],
)
def test_durations(text: str, written: str) -> None:
    assert duration(text, "--x") == written


@pytest.mark.parametrize("text", ["", "5", "5 apples", "-5s", "P", "soon"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no duration"):
        duration(text, "--x")


def test_instants() -> None:
    assert instant_ms("1970-01-01T00:00:01Z", "--at") == 1000
    assert instant_ms("1970-01-01T00:00:01", "--at") == 1000
    assert instant_ms("1970-01-01T01:00:01.5+01:00", "--at") == 1500
    with pytest.raises(typer.BadParameter, match="is no instant"):
        instant_ms("tomorrow", "--at")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0.5", 0.5),
        ("true", True),
        ("false", False),
        ('"5"', "5"),
        ("five", "five"),
        ("", ""),
        ("null", "null"),
        ("[1]", "[1]"),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ("99999999999999999999", "99999999999999999999"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    found = scalar(text)
    assert (found, type(found)) == (value, type(value))


def test_pairs() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "-p") == {"a": 1, "b": "x=y", "c": ""}
    for wrong in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(typer.BadParameter):
            pairs(wrong, "-p")
