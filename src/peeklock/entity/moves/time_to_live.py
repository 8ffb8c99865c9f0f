"""How long messages live."""

from __future__ import annotations

from typing import Final

from peeklock.entity.definition import FOREVER_MS
from peeklock.entity.message import NEVER, NO_DURATION

# The service's longest duration. A sender may name an end of life so late that the instant would
# not fit into a record's 64 bits.
ENDLESS_MS: Final = 922_337_203_685_477


def end_of_life(born_at: int, life_ms: int) -> int:
    """Return when a life is over; a life without end, or beyond all durations, never is."""
    return born_at + life_ms if 0 <= life_ms < ENDLESS_MS else NEVER


def shorter(first_ms: int, second_ms: int) -> int:
    """Return the shorter of two lives, either of which may be without end; -1 when both are."""
    if first_ms in (NO_DURATION, FOREVER_MS):
        return second_ms
    if second_ms == FOREVER_MS:
        return first_ms
    return min(first_ms, second_ms)
