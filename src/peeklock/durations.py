"""ISO-8601 durations, as configuration files and admin clients write them, in milliseconds."""

import re
from typing import Final

_DAY_MS: Final = 86_400_000
# The service's "never ends" is .NET's longest TimeSpan, P10675199DT2H48M5.4775807S; clients cut
# its fraction differently, so that everything from the whole days on means the same.
LONGEST_DURATION_MS: Final = 10_675_199 * _DAY_MS
_LONGEST: Final = "P10675199DT2H48M5.4775807S"

_PARTS: Final = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?"
    r"(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?",
    re.ASCII,
)
# Years and months have no fixed length; .NET counts 365 and 30 days, and so do its users.
_PART_MS: Final = (
    365 * _DAY_MS,
    30 * _DAY_MS,
    7 * _DAY_MS,
    _DAY_MS,
    3_600_000,
    60_000,
    1_000,
)


def parse_duration(text: str) -> int:
    """Read a duration such as PT1M30.5S; fractions below a millisecond are cut off."""
    match = _PARTS.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        raise ValueError(f"'{text}' is not an ISO-8601 duration such as PT1M")
    *wholes, fraction = match.groups(default="0")
    duration_ms = sum(int(whole) * part_ms for whole, part_ms in zip(wholes, _PART_MS, strict=True))
    return duration_ms + int(fraction[:3].ljust(3, "0"))


def format_duration(duration_ms: int) -> str:
    """Write a duration as the service does: days, hours, minutes and seconds, none that is zero."""
    if duration_ms >= LONGEST_DURATION_MS:
        return _LONGEST
    days, rest_ms = divmod(duration_ms, _DAY_MS)
    hours, rest_ms = divmod(rest_ms, 3_600_000)
    minutes, rest_ms = divmod(rest_ms, 60_000)
    seconds, fraction_ms = divmod(rest_ms, 1_000)
    date = f"{days}D" if days else ""
    time = f"{hours}H" if hours else ""
    time += f"{minutes}M" if minutes else ""
    if seconds or fraction_ms:
        fraction = f".{fraction_ms:03}".rstrip("0") if fraction_ms else ""
        time += f"{seconds}{fraction}S"
    if not date and not time:
        return "PT0S"
    return f"P{date}T{time}" if time else f"P{date}"
