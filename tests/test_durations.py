"""ISO-8601 durations."""

import pytest

from peeklock.durations import LONGEST_DURATION_MS, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT1M", 60_000),
        ("PT5S", 5_000),
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.005S", 93_784_005),
        ("PT0.5S", 500),
        ("PT0.0019S", 1),
        ("PT0S", 0),
        ("PT90M", 5_400_000),
        ("P2W", 14 * 86_400_000),
        ("P1Y2M", 425 * 86_400_000),
    ],
)
def test_a_duration_is_read_in_milliseconds(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


def test_every_clients_longest_duration_is_at_least_the_longest() -> None:
    for text in ("P10675199DT2H48M5.4775807S", "P10675199DT2H48M5.477539S", "P10675199D"):
        assert parse_duration(text) >= LONGEST_DURATION_MS
    assert parse_duration("P10675198DT23H59M59S") < LONGEST_DURATION_MS


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "1M", "PT1", "PT-5S", "-PT5S", "PT1M ", "pt1m", "PT1.5M", "PT\u0661S"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an ISO-8601 duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "PT0S"),
        (1, "PT0.001S"),
        (90_500, "PT1M30.5S"),
        (60_000, "PT1M"),
        (3_600_000, "PT1H"),
        (86_400_000, "P1D"),
        (131_400_000, "P1DT12H30M"),
        (LONGEST_DURATION_MS - 1, "P10675198DT23H59M59.999S"),
        (LONGEST_DURATION_MS, "P10675199DT2H48M5.4775807S"),
    ],
)
def test_durations_are_written_as_they_are_read(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text
    assert min(parse_duration(text), LONGEST_DURATION_MS) == duration_ms
