"""How many messages of a partition are in which state, for those who look from outside."""

from __future__ import annotations

from typing import Final

from peeklock.entity.commands import TRANSFER
from peeklock.entity.lane import Lane

# In this order they are counted. A locked dead letter is a dead letter.
STATES: Final = (
    "ready",
    "locked",
    "scheduled",
    "deferred",
    "claimed",
    "dead_letter",
    "transfer",
)


def depths_of(lanes: dict[int, Lane]) -> list[int]:
    """Count by `STATES`, over all lanes: of a topic, each subscription's copies."""
    ready = locked = scheduled = deferred = claimed = dead_letter = transfer = 0
    for number, lane in lanes.items():
        if number == TRANSFER:
            transfer += _all_of(lane)
        elif number & 1:
            dead_letter += _all_of(lane)
        else:
            ready += lane.total_ready()
            locked += len(lane.locked)
            scheduled += len(lane.scheduled)
            deferred += lane.total_deferred()
            claimed += lane.total_claimed()
    return [ready, locked, scheduled, deferred, claimed, dead_letter, transfer]


def _all_of(lane: Lane) -> int:
    return lane.total_ready() + len(lane.locked) + lane.total_deferred() + lane.total_claimed()
