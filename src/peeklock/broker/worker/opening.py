"""What a store has of a partition becomes a living one again, while others on the loop go on."""

from __future__ import annotations

from typing import Final

from peeklock.entity.partition import Partition
from peeklock.step import STEP
from peeklock.store.store import Opening
from peeklock.turns import TURNS

# Records replayed before the others on the loop have a turn.
OPENED_AT_ONCE: Final = 1024


async def take_in(opening: Opening, partition: Partition) -> None:
    """Replay all records, and put what they tell of into its place, a part at a time."""
    turn_at = 0
    async for replay in opening.replays:
        STEP.work = "opening"
        partition.begin_restoring(replay.first_position, replay.records)
        while not partition.restore_some():
            await _others()
        partition.rests(replay.size)
        if partition.next_position >= turn_at:
            turn_at = partition.next_position + OPENED_AT_ONCE
            await TURNS.give_way()
    while not partition.place_some():
        await _others()


async def _others() -> None:
    """Others on this loop have their turn."""
    await TURNS.give_way()
    STEP.work = "opening"
