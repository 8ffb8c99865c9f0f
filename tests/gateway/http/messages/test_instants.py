"""Instants and durations as HTTP writes them."""

from __future__ import annotations

import pytest

from peeklock.gateway.http.messages.instants import (
    http_date,
    read_http_date,
    read_instant,
    read_timespan,
    timespan,
)

TEXT = "Sun, 06 Nov 1994 08:49:37 GMT"
INSTANT = 784_111_777_000


def test_an_instant_is_written_and_read() -> None:
    assert http_date(INSTANT + 999) == TEXT
    assert read_http_date(TEXT) == INSTANT
    assert http_date(-1) is None
    assert http_date(253_402_300_800_000) is None


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        (TEXT, INSTANT),
        ("1994-11-06T08:49:37Z", INSTANT),
        ("1994-11-06T08:49:37.5", INSTANT + 500),
        ("1994-11-06T09:49:37+01:00", INSTANT),
        ("", None),
        ("now", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Xxx 1994 08:49:37 GMT", None),
    ],
)
def test_instants_are_understood_in_two_forms(text: str, instant: int | None) -> None:
    assert read_instant(text) == instant


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("00:00:30", 30_000),
        ("1:2:3", 3_723_000),
        ("1.02:03:04.5", 93_784_500),
        ("00:00:00.0000001", 0),
        ("24:00:00", None),
        ("00:60:00", None),
        ("00:00:60", None),
        ("30", None),
        ("-00:00:30", None),
        ("٣:00:00", None),
    ],
)
def test_durations_are_read(text: str, duration_ms: int | None) -> None:
    assert read_timespan(text) == duration_ms


@pytest.mark.parametrize(
    ("ticks", "text"),
    [
        (0, "00:00:00"),
        (300_000_000, "00:00:30"),
        (-937_230_000_000, "-1.02:02:03"),
        (1, "00:00:00.0000001"),
    ],
)
def test_durations_are_written(ticks: int, text: str) -> None:
    assert timespan(ticks) == text
