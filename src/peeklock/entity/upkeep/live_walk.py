"""A walk over all that is alive in a partition, in parts, while the partition goes on.

Of each lane references are copied at once when the walk comes to it (a memory copy), and of each
message session when its turn comes. Whoever must not miss anything (a checkpoint) also looks at
what the state notes as `moved`: messages that change lanes or are claimed out of a session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from peeklock.entity.commands import MAIN
from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane
from peeklock.entity.sessions.lane_sessions import LaneSessions, MessageSession
from peeklock.entity.stages.partition_stages import StageLine
from peeklock.entity.state import State

# References handed over at once.
PART: Final = 512


@final
class LivePart:
    """Some messages of one lane or stage, and sessions of that lane that have a state."""

    __slots__ = ("entries", "lane", "sessions", "stage")

    def __init__(
        self,
        lane: Lane,
        stage: StageLine | None,
        entries: list[Entry],
        sessions: list[MessageSession],
    ) -> None:
        self.lane: Final[Lane] = lane
        self.stage: Final[StageLine | None] = stage  # None where they are in a line
        self.entries: Final[list[Entry]] = entries
        self.sessions: Final[list[MessageSession]] = sessions


def live_parts(state: State, sessions_max: int) -> Iterator[LivePart]:
    """Return everything that is alive now and stays so until its part comes; and some that is gone.
    So many sessions are looked at in one go."""
    for number, lane in list(state.lanes.items()):
        if state.lanes.get(number) is lane:
            yield from _lane_parts(lane, sessions_max)
    for line in list(state.stages.lines.values()):
        staged = line.entries[:]
        for at in range(0, len(staged), PART):
            yield LivePart(state.lane(MAIN), line, staged[at : at + PART], [])


def _lane_parts(lane: Lane, sessions_max: int) -> Iterator[LivePart]:
    # All of it now: a message must not slip from one that is not copied yet into one that is.
    plain = lane.ready[lane.head :]
    plain += lane.deferred.listed()
    plain += lane.scheduled.listed()
    if lane.claims is not None:
        plain += lane.claims.entries()
    returned = lane.returned[:]
    locks = lane.locked.listed()
    sessions = [] if lane.sessions is None else lane.sessions.by_id.listed()
    for at in range(0, len(plain), PART):
        yield LivePart(lane, None, plain[at : at + PART], [])
    for at in range(0, len(returned), PART):
        yield LivePart(lane, None, [pair[1] for pair in returned[at : at + PART]], [])
    for at in range(0, len(locks), PART):
        yield LivePart(lane, None, [lock.entry for lock in locks[at : at + PART]], [])
    if lane.sessions is not None:
        yield from _session_parts(lane, lane.sessions, sessions, sessions_max)


def _session_parts(
    lane: Lane, lane_sessions: LaneSessions, sessions: list[MessageSession], sessions_max: int
) -> Iterator[LivePart]:
    entries: list[Entry] = []
    stateful: list[MessageSession] = []
    looked = 0
    for session in sessions:
        looked += 1
        if lane_sessions.by_id.get(session.id) is session:
            line = session.line
            entries += line.ready[line.head :]
            entries += [pair[1] for pair in line.returned]
            entries += line.deferred.listed()
            entries += [lock.entry for lock in session.locks.listed()]
            if session.state is not None:
                stateful.append(session)
        if len(entries) >= PART or looked >= sessions_max:
            for begin in range(0, len(entries), PART):
                yield LivePart(lane, None, entries[begin : begin + PART], [])
            yield LivePart(lane, None, [], stateful)
            entries = []
            stateful = []
            looked = 0
    for begin in range(0, len(entries), PART):
        yield LivePart(lane, None, entries[begin : begin + PART], [])
    yield LivePart(lane, None, [], stateful)
