"""How many messages of a partition are in which state, for those who look from outside."""

from __future__ import annotations

from collections.abc import Iterator
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


# Lanes that are counted before others have a turn; an owner of claims weighs as much as a lane.
PART: Final = 512


def depths_of(lanes: dict[int, Lane]) -> Iterator[tuple[int, list[int]]]:
    """Count by `STATES`, over all lanes, of a topic each subscription's copies: in parts, each
    with its weight, to be added up. Lanes may come and go between two of them."""
    part: list[tuple[int, Lane]] = []
    weight = 0
    for number, lane in list(lanes.items()):
        part.append((number, lane))
        weight += 1 if lane.claims is None else 1 + len(lane.claims.owners)
        if weight >= PART:
            yield weight, _counted(part)
            part = []
            weight = 0
    if part:
        yield weight, _counted(part)


def _counted(lanes: list[tuple[int, Lane]]) -> list[int]:
    ready = locked = scheduled = deferred = claimed = dead_letter = transfer = 0
    for number, lane in lanes:
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
