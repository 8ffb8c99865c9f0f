"""Checkpoints, so that opening costs what is alive and not what was ever written.

A checkpoint lies in the journal itself: CheckpointBegun, slices, CheckpointEnded, with other
records in between. Each slice tells the state at its own position, so replaying everything from
CheckpointBegun on, in order, gives the state at the end: what the records in between say of
messages not yet introduced is ignored, because a later slice introduces them as they then are.

All that it holds is told in slices of bounded bytes, one with each step. It is begun when at least
as much was written since the last one as it will write itself: checkpoints at most double what is
written, and the tail that an opening replays is bounded by what is alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from peeklock.entity.claims.records import OwnerHeard
from peeklock.entity.entries import GONE, LOCKED, Entry
from peeklock.entity.lane import Lane
from peeklock.entity.moves.duplicate_detection import SHARDS
from peeklock.entity.records import (
    CLAIMED,
    DEFERRED,
    READY,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    Kept,
    Remembered,
)
from peeklock.entity.sessions.lane_sessions import MessageSession
from peeklock.entity.sessions.records import SessionStateSet
from peeklock.entity.stages.partition_stages import StageLine
from peeklock.entity.stages.records import StageKept, StagesPublished
from peeklock.entity.state import State
from peeklock.entity.transfers.records import DestinationsNoted, TakenOver
from peeklock.entity.upkeep.live_walk import LivePart, live_parts

# A tail that is shorter in both is not worth a checkpoint: it is read in some tens of milliseconds.
TAIL_BYTES_MIN: Final = 16 << 20
TAIL_POSITIONS_MIN: Final = 20_000
# So many bytes, of a journal of tiny records at least, make it worth to count.
_LOOK_BYTES: Final = 1 << 20

# To tell of a message costs more time than its bytes say. Where messages are small, a checkpoint
# waits until two were written for each that lives; where they are large, for so many times its own
# bytes.
POSITIONS_PER_ENTRY: Final = 2
JOURNAL_PER_BYTE: Final = 32

# What one step tells of, at most, beside one item's own size: a fraction of a millisecond.
STEP_BYTES: Final = 256 << 10
STEP_ENTRIES: Final = 512
NUMBERS_PER_RECORD: Final = 4096

# What things take where they are written down, beside their texts.
KEPT_BYTES: Final = 48
RECORD_BYTES: Final = 40

NOT_BEGUN: Final = -1


@final
class Checkpoints:
    """Decides when a checkpoint is worth it, and writes it step by step."""

    __slots__ = (
        "_begun",
        "_extra",
        "_journal",
        "_look_at",
        "_now",
        "_own",
        "_state",
        "_steps",
        "_weight",
        "replay_from",
        "step_bytes",
        "step_entries",
    )

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._begun: int = NOT_BEGUN
        self._steps: Iterator[bool] | None = None
        self._now: int = 0
        self._weight: int = 0  # of what the step under way, or not stored yet, tells of
        self._own: int = 0  # of the whole checkpoint
        self._extra: int = 0  # by how much the last one was larger than its messages alone
        self._journal: int = 0  # bytes since the last one began, its own aside
        self._look_at: int = _LOOK_BYTES  # how many bytes make it worth to look closer
        self.replay_from: int = 0
        self.step_bytes: int = STEP_BYTES
        self.step_entries: int = STEP_ENTRIES

    def opened(self, replay_from: int) -> None:
        """The partition was opened by replaying from this position on."""
        self.replay_from = replay_from
        # A part of what was replayed was the checkpoint's own.
        self._journal = max(self._journal - self._cost(), 0)

    def rests(self, size: int) -> None:
        """So many bytes were stored, or read at opening."""
        self._journal += max(size - self._weight, 0)
        self._weight = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a checkpoint has begun and not ended."""
        return self._begun != NOT_BEGUN

    @property
    def wants_to_begin(self) -> bool:
        """Whether a checkpoint is due that has not begun."""
        return self._begun == NOT_BEGUN and self.is_due

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is under way or worth beginning."""
        if self._begun != NOT_BEGUN:
            return True
        return self._journal >= self._look_at and self._is_worth_it()

    def _is_worth_it(self) -> bool:
        cost = self._cost() + self._extra
        journal = self._journal
        written = self._state.next_position - self.replay_from
        is_long = journal >= TAIL_BYTES_MIN or written >= TAIL_POSITIONS_MIN
        if is_long and journal >= cost:
            if written >= POSITIONS_PER_ENTRY * self._state.bodies.count:
                return True
            if journal >= JOURNAL_PER_BYTE * cost:
                return True
        self._look_at = max(cost, journal + _LOOK_BYTES)
        return False

    def _cost(self) -> int:
        """Return what a checkpoint would write now, about."""
        bodies = self._state.bodies
        return bodies.count * KEPT_BYTES + self._state.seen.size + bodies.state_bytes

    def step(self, now: int) -> int:
        """Return one step of a checkpoint; return the new position to replay from when it is
        complete, else -1."""
        state = self._state
        self._now = now
        self._weight = 0
        if self._steps is None:
            self._begun = state.next_position
            self._journal = 0
            self._own = 0
            state.moved = []
            state.records.append(CheckpointBegun(now, state.next_sequence))
            self._steps = self._tell()
        for _ in self._steps:
            self._own += self._weight
            return -1
        self._own += self._weight
        state.records.append(CheckpointEnded(now, self._begun))
        self.replay_from = self._begun
        self._begun = NOT_BEGUN
        self._steps = None
        state.moved = None
        self._extra = max(self._own - self._cost(), 0)
        self._look_at = _LOOK_BYTES
        return self.replay_from

    # Telling: each `yield` ends a step.

    def _tell(self) -> Iterator[bool]:
        yield from self._tell_ids()
        yield from self._tell_writers()
        yield from self._tell_numbers()
        yield from self._tell_owners()
        yield True
        yield from self._tell_lanes()
        yield from self._tell_moved()

    @property
    def _is_full(self) -> bool:
        return self._weight >= self.step_bytes

    def _tell_ids(self) -> Iterator[bool]:
        seen = self._state.seen
        for number in range(SHARDS):
            ids, instants = seen.shard(number)
            begin = 0
            for end in _cuts(ids, self.step_bytes):
                self._weight += RECORD_BYTES + sum([len(each) + 12 for each in ids[begin:end]])
                record = Remembered(self._now, ids[begin:end], instants[begin:end])
                self._state.records.append(record)
                begin = end
                if self._is_full:
                    yield True

    def _tell_writers(self) -> Iterator[bool]:
        writers = self._state.stages.writers
        for writer in list(writers.values()):
            if writers.get(writer.name) is not writer:
                continue  # it has published since then, which tells more
            memory = (writer.published_at, writer.name, writer.batch, writer.stages, writer.is_done)
            self._state.records.append(StagesPublished(*memory, 0, [], [], []))
            self._weight += RECORD_BYTES + len(writer.name) + _length(writer.stages)
            if self._is_full:
                yield True

    def _tell_numbers(self) -> Iterator[bool]:
        """Return numbers from elsewhere, and where messages may be."""
        for lane, paths in self._state.ways.items():
            self._state.records.append(DestinationsNoted(self._now, lane, paths))
            self._weight += RECORD_BYTES + _length(paths)
        for source, numbers in list(self._state.taken.items()):
            all_numbers = list(numbers)
            for at in range(0, len(all_numbers), NUMBERS_PER_RECORD):
                taken = self._state.taken.get(source, {})
                part = [each for each in all_numbers[at : at + NUMBERS_PER_RECORD] if each in taken]
                if part:
                    self._state.records.append(TakenOver(self._now, source, part, []))
                    self._weight += RECORD_BYTES + len(source) + 8 * len(part)
                    if self._is_full:
                        yield True

    def _tell_owners(self) -> Iterator[bool]:
        for lane in list(self._state.lanes.values()):
            if lane.claims is None:
                continue
            owners = lane.claims.owners
            for owner in list(owners.values()):
                if owners.get(owner.name) is not owner or not self._is_there(lane):
                    continue
                at = owner.told_at = owner.heard_at
                self._state.records.append(
                    OwnerHeard(at, lane.number, owner.name, owner.epoch, owner.timeout_ms)
                )
                self._weight += RECORD_BYTES + len(owner.name)
                if self._is_full:
                    yield True

    def _tell_lanes(self) -> Iterator[bool]:
        """Return messages in lanes and stages, and the states of sessions."""
        looked = 0
        for part in live_parts(self._state, self.step_entries):
            begin = 0
            while begin < len(part.entries):
                count = self._keep(part, begin)
                begin += count
                looked += count
                if looked >= self.step_entries or self._is_full:
                    looked = 0
                    yield True
            for session in part.sessions:
                looked += self._keep_state(part.lane, session)
                if self._is_full:
                    looked = 0
                    yield True
        if looked:
            yield True

    def _keep(self, part: LivePart, begin: int) -> int:
        """Tell of some messages of a part, until the step is full; return how many of them."""
        kept: list[Kept] = []
        entries: list[Entry] = []
        looked = 0
        is_there = self._is_there(part.lane)
        stage = part.stage
        if stage is not None:
            is_there = self._state.stages.lines.get(stage.name) is stage
        for entry in part.entries[begin:]:
            looked += 1
            if is_there and entry.place != GONE:
                entries.append(entry)
                kept.append(keep(part.lane, entry))
                self._weight += weight(kept[-1])
                if self._is_full:
                    break
        if kept:
            self._weight += RECORD_BYTES
            if stage is not None:
                self._keep_stage(stage, entries, kept)
            else:
                self._state.records.append(CheckpointSlice(self._now, part.lane.number, kept))
        return looked

    def _keep_stage(self, stage: StageLine, entries: list[Entry], kept: list[Kept]) -> None:
        """A part of a stage that was neither published nor dropped since the walk began."""
        seen = ["" if entry.details is None else entry.details.seen for entry in entries]
        ids = seen if any(seen) else []
        self._weight += len(stage.name) + _length(ids)
        self._state.records.append(StageKept(self._now, stage.name, stage.touched_at, kept, ids))

    def _keep_state(self, lane: Lane, session: MessageSession) -> int:
        lane_sessions = lane.sessions
        if (
            not self._is_there(lane)
            or lane_sessions is None
            or lane_sessions.by_id.get(session.id) is not session
        ):
            return 0
        if session.state is None:
            return 0
        at = session.state_set_at
        self._state.records.append(SessionStateSet(at, lane.number, session.id, session.state))
        self._weight += RECORD_BYTES + len(session.id) + len(session.state)
        return 1

    def _tell_moved(self) -> Iterator[bool]:
        """Return what changed lanes since the walk began; there may be more of it after each
        step."""
        state = self._state
        while state.moved:
            by_lane: dict[int, list[Entry]] = {}
            for number, entry in state.moved:
                by_lane.setdefault(number, []).append(entry)
            state.moved = []
            for number, entries in by_lane.items():
                lane = state.lanes.get(number)
                begin = 0 if lane is not None else len(entries)
                while lane is not None and begin < len(entries):
                    begin += self._keep(LivePart(lane, None, entries, []), begin)
                    if self._is_full:
                        yield True

    def _is_there(self, lane: Lane) -> bool:
        """Return whether a lane was not dropped meanwhile."""
        return self._state.lanes.get(lane.number) is lane


def _cuts(ids: list[str], step_bytes: int) -> list[int]:
    """Return where to cut a list of ids, so that each part is a step's worth at most."""
    cuts: list[int] = []
    size = 0
    for at, message_id in enumerate(ids):
        if size >= step_bytes:
            cuts.append(at)
            size = 0
        size += len(message_id) + 12
    if ids:
        cuts.append(len(ids))
    return cuts


def _length(texts: list[str]) -> int:
    length = 0
    for text in texts:
        length += len(text) + 4
    return length


def keep(lane: Lane, entry: Entry) -> Kept:
    """Return an entry as a checkpoint writes it; a lock is not written, only what it was taken
    from."""
    kept = Kept()
    kept.sequence = entry.sequence
    kept.position = entry.position
    kept.place = entry.place
    if entry.place == LOCKED:
        kept.place = DEFERRED if lane.locked[entry.sequence].deferred else READY
    elif entry.place == CLAIMED and lane.claims is not None:
        kept.owner = lane.claims.owner_of(entry.sequence)
    kept.enqueued_at = entry.enqueued_at
    kept.expires_at = entry.expires_at
    kept.delivery_count = entry.delivery_count
    kept.size = entry.size
    kept.session_id = entry.session_id
    details = entry.details
    if details is not None:
        kept.enqueue_sequence = details.enqueue_sequence
        kept.scheduled_at = details.scheduled_at
        kept.time_to_live_ms = details.time_to_live_ms
        kept.reason = details.reason
        kept.description = details.description
        kept.changes = details.changes
        kept.hops = details.hops
        kept.destination = details.destination
        kept.source = details.source
    return kept


def weight(kept: Kept) -> int:
    """Return how many bytes an entry takes where it is written down, about."""
    size = KEPT_BYTES
    if kept.session_id is not None:
        size += len(kept.session_id) + 4
    if kept.reason is not None:
        size += len(kept.reason) + 4
    if kept.description is not None:
        size += len(kept.description) + 4
    if kept.changes is not None:
        for name, value in kept.changes.items():
            size += len(name) + len(value) + 8
    return size + len(kept.destination) + len(kept.source) + len(kept.owner)
