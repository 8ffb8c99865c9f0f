"""The invariants of a partition, as tests look at them: each says what must hold."""

from __future__ import annotations

from peeklock.entity.commands import MAIN
from peeklock.entity.entries import LOCKED, WITH_SESSION
from peeklock.entity.lane import Lane
from peeklock.entity.records import CLAIMED, DEFERRED, READY, SCHEDULED, STAGED
from peeklock.entity.state import State
from peeklock.entity.tables.places import LANE_PLACES
from peeklock.entity.topics.copying import Copying
from peeklock.entity.upkeep.live_bodies import BLOCK_BITS


def check_invariants(state: State, copying: Copying) -> None:
    """Break where an invariant does not hold."""
    live = 0
    size = 0
    blocks: set[int] = set()
    numbers: set[int] = set()
    kept = 0
    entries = state.stages.entries()
    assert all(line.entries for line in state.stages.lines.values()), "a stage has messages"
    assert len(entries) == state.stages.count, "every staged message is counted"
    for entry in entries:
        assert entry.place == STAGED, "what is staged is marked so"
    for lane in state.lanes.values():
        check_lane(lane)
        entries += lane.entries()
    entries += state.dropped.entries()
    details = [entry.details for entry in entries if entry.details is not None]
    said = sum(each.size for each in details)
    assert said == sum(each.weigh() for each in details), "what was said is weighed"
    assert said == state.bodies.detail_bytes, "what receivers have said is counted"
    if state.dropped.is_empty:
        with_sessions = [
            lane.sessions for lane in state.lanes.values() if lane.sessions is not None
        ]
        sessions = sum(len(lane_sessions.by_id) for lane_sessions in with_sessions)
        assert sessions == state.bodies.session_count, "every session is counted"
    outstanding = [entry for _, entry in copying.outstanding()]
    assert len(outstanding) == copying.left, "every copy that is to be made is counted"
    entries += outstanding
    for entry in entries:
        live += 1
        size += entry.size
        kept += 0 if entry.message is None else entry.size
        numbers.add(entry.sequence)
        blocks.add(entry.position >> BLOCK_BITS)
        assert entry.sequence < state.next_sequence, "numbers come from the counter"
        assert entry.position < state.next_position, "positions come from the counter"
    assert len(numbers) == live, "a message is in one lane, never in two"
    assert live == state.bodies.count, "every live body is counted"
    assert size == state.bodies.size, "every live byte is counted"
    assert kept == state.kept_bytes, "every byte of a body in memory is counted"
    assert sorted(blocks) == state.bodies.blocks(), "every live block is kept"
    scheduled = state.lane(MAIN).scheduled.values()
    brought = sum(entry.size for entry in scheduled if entry.message is not None)
    assert state.budget.left + brought >= 0, "the budget for bodies is kept"


def check_lane(lane: Lane) -> None:
    """The invariants of one lane."""
    live = lane.entries()
    numbers = {entry.sequence for entry in live}
    assert len(numbers) == len(live), "a message is in one place, never in two"
    places = [entry.place for entry in live]
    assert LANE_PLACES.issuperset(places), "a message is where the table of places has one"
    assert places.count(READY) == lane.total_ready(), "the ready are counted rightly"
    assert places.count(LOCKED) == len(lane.locked), "what is locked is marked so"
    assert places.count(DEFERRED) == lane.total_deferred(), "what is deferred is marked so"
    assert places.count(SCHEDULED) == len(lane.scheduled), "what is scheduled is marked so"
    assert places.count(CLAIMED) == lane.total_claimed(), "what is claimed is marked so"
    scheduled = lane.scheduled_numbers.first(0, len(lane.scheduled) + 1)
    assert scheduled == sorted(lane.scheduled), "what is scheduled is found by its number"
    if lane.claims is not None:
        for owner in lane.claims.owners.values():
            held = owner.numbers.first(0, len(owner.held) + 1)
            assert held == sorted(owner.held), "what is claimed is found by its number"
    _check_line(lane)
    if lane.sessions is None:
        deadlines = [lock.until for lock in lane.locked.values() if lock.until != WITH_SESSION]
        assert deadlines == sorted(deadlines), "locks are in the order of their deadlines"
        assert not deadlines or 0 < lane.lock_deadline <= deadlines[0], "no lock is forgotten"
        return
    of_sessions = sum(lock.line is lane for lock in lane.locked.values())  # forwarded
    for session in lane.sessions.by_id.values():
        _check_line(session.line)
        of_sessions += len(session.locks)
        assert session.holder is not None or not session.locks, "a lock has a holder"
        assert not session.is_empty, "a session that nobody would miss is forgotten"
    assert of_sessions == len(lane.locked), "every lock belongs to a session, or to who forwards"


def _check_line(line: Lane) -> None:
    ready = [entry.sequence for entry in line.ready[line.head :]]
    assert ready == sorted(ready), "the ready line is in order"
