"""Keeping the journal short: checkpoints, so that opening costs what is alive and not what was
ever written, and carrying, so that one old message does not pin the chunk it was written in.

Both walk over all live messages in small steps while the partition goes on. A walk starts from a
list of references taken at once (a memory copy), so that nothing that was alive at its beginning
is missed; a message that changes lanes meanwhile gets a new entry and is added to the walk.

A checkpoint lies in the journal itself: CheckpointBegun, slices, CheckpointEnded, with other
records in between. Each slice tells the state at its own position, so replaying everything from
CheckpointBegun on, in order, gives the state at the end: what the records in between say of
messages not yet introduced is ignored, because a later slice introduces them as they then are.
"""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.bodies import BLOCK_BITS
from peeklock.entity.claim_records import OwnerHeard
from peeklock.entity.commands import MAIN
from peeklock.entity.lane import GONE, LOCKED, Entry, Lane
from peeklock.entity.message import Message
from peeklock.entity.records import (
    CLAIMED,
    DEFERRED,
    READY,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    Kept,
    Remembered,
    SessionStateSet,
    TakenOver,
)
from peeklock.entity.stage_records import StageKept, StagesPublished
from peeklock.entity.state import State

# A checkpoint is due when this many positions were written since the last one, or twice as many
# as there are live messages: it then writes at most half of what was written anyway.
TAIL_MIN: Final = 20_000

# Live messages looked at in one step: a fraction of a millisecond.
SLICE: Final = 512
CARRY_SCAN: Final = 4096
IDS_PER_RECORD: Final = 4096

NOT_BEGUN: Final = -1


@final
class Walk:
    """A walk over the live messages of all lanes and stages, a few at a time."""

    __slots__ = ("_at", "_lists", "stage")

    def __init__(self, state: State) -> None:
        self._lists: list[tuple[int, str, list[Entry]]] = [
            (number, "", references(lane)) for number, lane in state.lanes.items()
        ]
        for line in state.stages.lines.values():
            self._lists.append((MAIN, line.name, list(line.entries)))
        self._at: int = 0
        self.stage: str = ""  # whose messages were taken last; nothing where they were in a lane

    def take(self, count: int) -> tuple[int, list[Entry]]:
        """The next references of one lane and its number; an empty list at the end."""
        while self._lists:
            number, self.stage, entries = self._lists[0]
            if self._at < len(entries):
                part = entries[self._at : self._at + count]
                self._at += len(part)
                return number, part
            self._lists.pop(0)
            self._at = 0
        self.stage = ""
        return 0, []


@final
class Housekeeping:
    """Decides when a checkpoint or a carry is worth it, and does both step by step."""

    __slots__ = (
        "_begun",
        "_carry_blocks",
        "_carry_walk",
        "_chosen",
        "_found",
        "_state",
        "_to_carry",
        "_walk",
        "replay_from",
    )

    def __init__(self, state: State) -> None:
        self._state: State = state
        self._begun: int = NOT_BEGUN
        self._walk: Walk | None = None
        self._carry_walk: Walk | None = None
        self._carry_blocks: set[int] = set()
        # Live entries by the position of the body that they share: while the walk finds them,
        # then in the order in which they wait, then while their bodies are being fetched.
        self._found: dict[int, list[Entry]] = {}
        self._to_carry: list[list[Entry]] = []
        self._chosen: dict[int, list[Entry]] = {}
        self.replay_from: int = 0

    def opened(self, replay_from: int) -> None:
        """The partition was opened by replaying from this position on."""
        self.replay_from = replay_from

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is under way or worth beginning."""
        if self._begun != NOT_BEGUN:
            return True
        tail = self._state.next_position - self.replay_from
        return tail >= TAIL_MIN and tail >= 2 * self._state.bodies.count

    def step(self, now: int) -> int:
        """One step of a checkpoint; answers the new position to replay from when it is
        complete, else -1."""
        state = self._state
        walk = self._walk
        if walk is None:
            self._begun = state.next_position
            self._walk = Walk(state)
            state.moved = []
            state.records.append(CheckpointBegun(now, state.next_sequence))
            self._keep_the_rest(now)
            return -1
        lane_number, entries = walk.take(SLICE)
        if not entries and state.moved:
            lane_number = state.moved[0][0]
            entries = [entry for number, entry in state.moved if number == lane_number]
            state.moved = [pair for pair in state.moved if pair[0] != lane_number]
        if entries:
            lane = state.lane(MAIN) if walk.stage else state.lanes.get(lane_number)
            alive = [] if lane is None else [e for e in entries if e.place != GONE]
            if alive and lane is not None:
                kept = [keep(lane, entry) for entry in alive]
                if walk.stage:
                    self._keep_stage(walk.stage, alive, kept, now)
                else:
                    state.records.append(CheckpointSlice(now, lane_number, kept))
            return -1
        state.records.append(CheckpointEnded(now, self._begun))
        self.replay_from = self._begun
        self._begun = NOT_BEGUN
        self._walk = None
        state.moved = None
        return self.replay_from

    def _keep_stage(self, name: str, entries: list[Entry], kept: list[Kept], now: int) -> None:
        """A part of a stage that has not been published since the walk began."""
        seen = ["" if entry.details is None else entry.details.seen for entry in entries]
        touched_at = self._state.stages.lines[name].touched_at
        ids = seen if any(seen) else []
        self._state.records.append(StageKept(now, name, touched_at, kept, ids))

    def _keep_the_rest(self, now: int) -> None:
        """What is not a message: remembered ids, owners of claims, states of sessions, numbers from
        elsewhere."""
        state = self._state
        ids, instants = state.seen.all()
        for at in range(0, len(ids), IDS_PER_RECORD):
            part = slice(at, at + IDS_PER_RECORD)
            state.records.append(Remembered(now, ids[part], instants[part]))
        for writer in state.stages.writers.values():
            told_at, name, batch = writer.published_at, writer.name, writer.batch
            memory = (told_at, name, batch, writer.stages, writer.is_done)
            state.records.append(StagesPublished(*memory, 0, [], [], []))
        for source, numbers in state.taken.items():
            state.records.append(TakenOver(now, source, list(numbers), []))
        for lane in state.lanes.values():
            if lane.claims is not None:
                for owner in lane.claims.owners.values():
                    owner.told_at = owner.heard_at
                    state.records.append(
                        OwnerHeard(
                            owner.heard_at, lane.number, owner.name, owner.epoch, owner.timeout_ms
                        )
                    )
            if lane.book is not None:
                for session in lane.book.sessions.values():
                    if session.state is not None:
                        at = session.state_set_at
                        record = SessionStateSet(at, lane.number, session.id, session.state)
                        state.records.append(record)

    def next_to_carry(self, below: int, count_max: int) -> list[Entry]:
        """Live messages in sparse blocks below a position, one for each body.

        Starts a walk when enough would be freed by it; while that looks for the copies that share
        a body there is nothing to carry yet.
        """
        if not self.is_carrying:
            blocks = self._state.bodies.sparse_blocks(below)
            if not blocks:
                return []
            self._carry_blocks = set(blocks)
            self._carry_walk = Walk(self._state)
        if self._carry_walk is not None and not self._walk_on(self._carry_walk):
            return []
        chosen: list[Entry] = []
        self._chosen = {}
        while self._to_carry and len(chosen) < count_max:
            alive = [entry for entry in self._to_carry.pop() if entry.place != GONE]
            if alive:
                chosen.append(alive[0])
                self._chosen[alive[0].position] = alive
        return chosen

    def _walk_on(self, walk: Walk) -> bool:
        """One step of the walk; tells whether it has found all there is."""
        scanned = 0
        while scanned < CARRY_SCAN:
            _, entries = walk.take(SLICE)
            if not entries:
                self._carry_walk = None
                self._to_carry = [
                    self._found[position] for position in sorted(self._found, reverse=True)
                ]
                self._found = {}
                return True
            scanned += len(entries)
            for entry in entries:
                position = entry.position
                if entry.place != GONE and position >> BLOCK_BITS in self._carry_blocks:
                    self._found.setdefault(position, []).append(entry)
        return False

    @property
    def is_carrying(self) -> bool:
        """Whether a walk for carrying is under way, or what it found waits to be carried."""
        return self._carry_walk is not None or len(self._to_carry) > 0

    def carry(self, entries: list[Entry], messages: list[Message], now: int) -> None:
        """Write the bodies of those that are still alive again at the tail, each once for all that
        share it."""
        bodies: list[list[Entry]] = []
        carried: list[Message] = []
        for entry, message in zip(entries, messages, strict=True):
            sharing = self._chosen.pop(entry.position, None)
            if sharing is None:
                sharing = [entry]
            alive = [each for each in sharing if each.place != GONE]
            if alive:
                bodies.append(alive)
                carried.append(message)
        if bodies:
            self._state.carry(bodies, carried, now)


def references(lane: Lane) -> list[Entry]:
    """Every live entry of a lane, and some that are gone."""
    entries = lane.ready[lane.head :]
    entries += [pair[1] for pair in lane.returned]
    entries += [lock.entry for lock in lane.locked.values()]
    entries += lane.deferred.values()
    entries += lane.scheduled.values()
    if lane.claims is not None:
        entries += lane.claims.entries()
    if lane.book is not None:
        for session in lane.book.sessions.values():
            entries += references(session.line)
    return entries


def keep(lane: Lane, entry: Entry) -> Kept:
    """An entry as a checkpoint writes it; a lock is not written, only what it was taken from."""
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
