"""What was in lanes and stages that are gone, until all of it is forgotten.

A subscription that is deleted or a stage that is given up may have had a million messages. They are
out of reach at once, and one record says so; their memory and the places of their bodies are given
back in stints. A crash in between needs nothing, because a replay does not bring them back.
"""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.claims.lane_claims import LaneClaims
from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane
from peeklock.entity.records import READY
from peeklock.entity.sessions.lane_sessions import LaneSessions
from peeklock.entity.stages.partition_stages import StageLine

# What only points to a message costs less to let go than the message: so many in one step.
POINTERS: Final = 8


@final
class Dropped:
    """Lanes and stages that nobody reaches any more, and how often there were new ones."""

    __slots__ = ("_lanes", "_left", "_stages", "times")

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        self._stages: list[StageLine] = []
        self._left: int = 0  # steps of the stint under way
        self.times: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether everything is forgotten."""
        return not self._lanes and not self._stages

    def add_lane(self, lane: Lane) -> None:
        """A lane is gone, with all that is in it."""
        self.times += 1
        self._lanes.append(lane)

    def add_stage(self, line: StageLine) -> None:
        """A stage is gone, with all that is in it."""
        self.times += 1
        self._stages.append(line)

    def entries(self) -> list[Entry]:
        """Return all that is still to be forgotten."""
        found = [entry for line in self._stages for entry in line.entries]
        for lane in self._lanes:
            found += lane.entries()
        return found

    def take(self, steps: int) -> list[Entry]:
        """Take so many messages out, or what costs as much."""
        self._left = steps
        taken: list[Entry] = []
        while self._left > 0 and self._stages:
            self._take_staged(self._stages[-1], taken)
        while self._left > 0 and self._lanes:
            self._take_of_lane(self._lanes[-1], taken)
        return taken

    def _take_staged(self, line: StageLine, taken: list[Entry]) -> None:
        while line.entries and self._left > 0:
            taken.append(line.entries.pop())
            self._left -= 1
        if not line.entries:
            self._stages.pop()
            self._left -= 1

    def _take_of_lane(self, lane: Lane, taken: list[Entry]) -> None:
        """Some of a lane; it goes itself when the steps were enough for all of it."""
        self._take_of_line(lane, taken)
        while lane.locked and self._left > 0:
            taken.append(lane.locked.popitem()[1].entry)
            self._left -= 1
        while lane.scheduled and self._left > 0:
            taken.append(lane.scheduled.popitem()[1])
            self._left -= 1
        if lane.claims is not None:
            self._take_claimed(lane.claims, taken)
        if lane.sessions is not None:
            self._take_of_sessions(lane.sessions, taken)
        while lane.expirations and self._left > 0:
            del lane.expirations[-POINTERS:]
            self._left -= 1
        while lane.schedules and self._left > 0:
            del lane.schedules[-POINTERS:]
            self._left -= 1
        while lane.session_schedules and self._left > 0:
            lane.session_schedules.popitem()
            self._left -= 1
        if self._left > 0:
            self._lanes.pop()
            self._left -= 1

    def _take_of_line(self, line: Lane, taken: list[Entry]) -> None:
        while line.ready and self._left > 0:
            entry = line.ready.pop()
            # Others have left the line, and it has not yet cut them off.
            if entry.place == READY and len(line.ready) >= line.head:
                taken.append(entry)
            self._left -= 1
        while line.returned and self._left > 0:
            entry = line.returned.pop()[1]
            if entry.place == READY:
                taken.append(entry)
            self._left -= 1
        while line.deferred and self._left > 0:
            taken.append(line.deferred.popitem()[1])
            self._left -= 1

    def _take_claimed(self, claims: LaneClaims, taken: list[Entry]) -> None:
        while claims.owners and self._left > 0:
            name, owner = claims.owners.popitem()
            while owner.held and self._left > 0:
                taken.append(owner.held.popitem()[1])
                self._left -= 1
            if owner.held:
                claims.owners[name] = owner
            self._left -= 1

    def _take_of_sessions(self, lane_sessions: LaneSessions, taken: list[Entry]) -> None:
        while lane_sessions.by_id and self._left > 0:
            id, session = lane_sessions.by_id.popitem()
            line = session.line
            self._take_of_line(line, taken)
            if line.ready or line.returned or line.deferred:
                lane_sessions.by_id[id] = session
            else:
                lane_sessions.forgot_one()
            self._left -= 1
