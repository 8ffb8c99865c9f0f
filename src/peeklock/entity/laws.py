"""The laws of a partition, as tests and a careful owner look at them: each says what must hold."""

from __future__ import annotations

from peeklock.entity.bodies import BLOCK_BITS
from peeklock.entity.commands import MAIN
from peeklock.entity.copying import Copying
from peeklock.entity.records import STAGED
from peeklock.entity.state import State


def check_laws(state: State, copying: Copying) -> None:
    """Break where a law does not hold."""
    live = 0
    size = 0
    blocks: set[int] = set()
    numbers: set[int] = set()
    entries = state.stages.entries()
    assert all(line.entries for line in state.stages.lines.values()), "a stage has messages"
    for entry in entries:
        assert entry.place == STAGED, "what is staged is marked so"
    for lane in state.lanes.values():
        lane.check()
        entries += lane.entries()
    outstanding = [entry for _, entry in copying.outstanding()]
    assert len(outstanding) == copying.left, "every copy that is to be made is counted"
    entries += outstanding
    for entry in entries:
        live += 1
        size += entry.size
        numbers.add(entry.sequence)
        blocks.add(entry.position >> BLOCK_BITS)
        assert entry.sequence < state.next_sequence, "numbers come from the counter"
        assert entry.position < state.next_position, "positions come from the counter"
    assert len(numbers) == live, "a message is in one lane, never in two"
    assert live == state.bodies.count, "every live body is counted"
    assert size == state.bodies.size, "every live byte is counted"
    assert sorted(blocks) == state.bodies.blocks(), "every live block is kept"
    scheduled = state.lane(MAIN).scheduled.values()
    brought = sum(entry.size for entry in scheduled if entry.message is not None)
    assert state.budget.left + brought >= 0, "the budget for bodies is kept"
