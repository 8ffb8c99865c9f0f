"""The whole living state of a partition as plain values, locks aside: what a replay must give."""

from collections.abc import Iterable, Sequence
from typing import Any

from peeklock.entity.blueprint import Blueprint
from peeklock.entity.claims.lane_claims import OWNER_KEPT_MS
from peeklock.entity.commands import MAIN
from peeklock.entity.deliveries import Details
from peeklock.entity.entries import LOCKED, Entry
from peeklock.entity.lane import Lane
from peeklock.entity.message import BodyBudget
from peeklock.entity.moves.duplicate_detection import ID_BYTES, SHARDS
from peeklock.entity.partition import Partition
from peeklock.entity.records import DEFERRED, READY, Record
from peeklock.entity.stages.partition_stages import StageLine, StageWriter
from peeklock.entity.upkeep.live_bodies import BLOCK_BITS


def living(partition: Partition, now: int) -> dict[str, Any]:
    """All that has to outlive the process."""
    state = partition._state
    seen: dict[str, int] = {}
    for number in range(SHARDS):
        ids, instants = state.seen.shard(number)
        assert instants == sorted(instants), "ids rest in the order in which they were seen"
        seen.update(zip(ids, instants, strict=True))
    assert len(seen) == len(state.seen), "all ids are counted"
    assert state.seen.size == sum(len(each) + ID_BYTES for each in seen), "and their bytes"
    window_ms = state.seen.window_ms
    made_later = {
        entry.sequence: _told(Lane(number), entry)
        for number, entry in partition._copying.outstanding()
    }
    return {
        "messages": _messages(state.lanes.values()) | made_later,
        "states": _states(state.lanes.values()),
        "owners": _owners(state.lanes.values(), now),
        "stages": sorted(_stage(state.lane(MAIN), line) for line in state.stages.lines.values()),
        "writers": [_writer(each) for each in state.stages.writers.values()],
        "seen": {id: at for id, at in seen.items() if at + window_ms > now},
        "ways": state.ways,
        "taken": {source: set(numbers) for source, numbers in state.taken.items()},
        "sequence": state.next_sequence,
        "position": state.next_position,
        **_bodies(partition),
    }


def _bodies(partition: Partition) -> dict[str, Any]:
    """Where bodies lie and how many; those aside that were dropped and are not yet forgotten."""
    state = partition._state
    dropped = state.dropped.entries()
    blocks = state.bodies.blocks()
    if dropped:
        kept = [entry for lane in state.lanes.values() for entry in lane.entries()]
        kept += state.stages.entries() + [each for _, each in partition._copying.outstanding()]
        blocks = sorted({entry.position >> BLOCK_BITS for entry in kept})
    count = state.bodies.count - len(dropped)
    return {
        "blocks": blocks,
        "size": (count, state.bodies.size - sum(entry.size for entry in dropped)),
    }


def retold(
    blueprint: Blueprint, index: int, records: Iterable[tuple[int, Sequence[Record]]]
) -> Partition:
    """A partition that knows only what was written down."""
    partition = Partition(blueprint, index, BodyBudget(0), lambda: 1)
    for position, part in records:
        partition.restore(position, part)
    partition.opened()
    partition.check()
    return partition


def _messages(lanes: Iterable[Lane]) -> dict[int, tuple[Any, ...]]:
    return {entry.sequence: _told(lane, entry) for lane in lanes for entry in lane.entries()}


def _told(lane: Lane, entry: Entry) -> tuple[Any, ...]:
    place = entry.place
    if place == LOCKED:
        place = DEFERRED if lane.locked[entry.sequence].deferred else READY
    details = Details() if entry.details is None else entry.details
    instants = (entry.enqueued_at, entry.expires_at, details.scheduled_at, details.time_to_live_ms)
    story = (details.reason, details.description, details.changes or {}, details.enqueue_sequence)
    way = (details.hops, details.destination, details.source)
    body = (entry.position, entry.size)
    where = (lane.number, place, entry.session_id, entry.delivery_count)
    return (*where, *body, *instants, *story, *way)


def _stage(main: Lane, line: StageLine) -> tuple[Any, ...]:
    entries = [(entry.sequence, *_told(main, entry), _seen(entry)) for entry in line.entries]
    return (line.touched_at, line.name, entries)


def _seen(entry: Entry) -> str:
    return "" if entry.details is None else entry.details.seen


def _writer(writer: StageWriter) -> tuple[Any, ...]:
    return (writer.name, writer.batch, writer.stages, writer.is_done, writer.published_at)


def _states(lanes: Iterable[Lane]) -> dict[tuple[int, str], tuple[bytes, int]]:
    return {
        (lane.number, session.id): (session.state, session.state_set_at)
        for lane in lanes
        if lane.sessions is not None
        for session in lane.sessions.by_id.values()
        if session.state is not None
    }


def _owners(lanes: Iterable[Lane], now: int) -> dict[tuple[int, str], tuple[Any, ...]]:
    """Whoever claims, as the journal knows it; those that are about to be forgotten aside."""
    return {
        (lane.number, owner.name): (
            (owner.epoch, owner.timeout_ms, owner.told_at),
            (sorted(owner.held), owner.sessions),
        )
        for lane in lanes
        if lane.claims is not None
        for owner in lane.claims.owners.values()
        if owner.told_at + owner.timeout_ms + OWNER_KEPT_MS > now
    }
