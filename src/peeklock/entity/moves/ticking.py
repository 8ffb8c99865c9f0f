"""What is due because time has passed, a stint of it: locks, sessions, claims, schedules, lives and
stages."""

from __future__ import annotations

import heapq
from typing import final

from peeklock.entity.claims.claiming import Claiming
from peeklock.entity.commands import MAIN
from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane
from peeklock.entity.moves.entering import Entering
from peeklock.entity.moves.settling import Settling
from peeklock.entity.records import READY
from peeklock.entity.sessions.accepting import Accepting
from peeklock.entity.stages.staging import Staging
from peeklock.entity.state import State
from peeklock.entity.topics.records import LaneDropped


@final
class Ticking:
    """Serves lanes whose deadlines have come."""

    __slots__ = (
        "_accepting",
        "_claiming",
        "_entering",
        "_is_more_due",
        "_settling",
        "_staging",
        "_state",
        "strays",
    )

    def __init__(
        self,
        state: State,
        settling: Settling,
        accepting: Accepting,
        claiming: Claiming,
        entering: Entering,
        staging: Staging,
    ) -> None:
        self._state: State = state
        self._settling: Settling = settling
        self._accepting: Accepting = accepting
        self._claiming: Claiming = claiming
        self._entering: Entering = entering
        self._staging: Staging = staging
        self._is_more_due: bool = False  # than the last tick had a stint for
        self.strays: list[int] = []  # lanes whose end was not written down yet

    def take_more_due(self) -> bool:
        """Return whether the last tick has left something; said once."""
        is_more_due = self._is_more_due
        self._is_more_due = False
        return is_more_due

    def tick(self, now: int) -> None:
        """Serve what is due, a stint of it, whatever the commands before it have used."""
        self._state.stint.begin()
        if self.strays:
            self._write_off(now)
        self._claiming.begin(now)
        self._tick_lanes(now)
        self._staging.tick(now)
        # What a topic published late may be at the end of its life in lanes that were not due.
        self._tick_lanes(now)
        self._is_more_due = self._state.is_any_lane_due(now) or self._staging.is_any_stale(now)

    def _tick_lanes(self, now: int) -> None:
        state = self._state
        stint = state.stint
        served: list[Lane] = []
        while not stint.is_over:
            lane = state.next_due_lane(now)
            if lane is None:
                break
            self._settling.expire(lane, now)
            self._accepting.tick(lane, now)
            self._claiming.tick(lane, now)
            if lane.number == MAIN:
                self._entering.activate(now)
            self._expire_lives(lane, now)
            served.append(lane)
            stint.spend(1)
        for lane in served:
            state.watch(lane)

    def _expire_lives(self, lane: Lane, now: int) -> None:
        stint = self._state.stint
        expired: list[Entry] = []
        while lane.expirations and lane.expirations[0][0] <= now and not stint.is_over:
            _, _, entry, line = heapq.heappop(lane.expirations)
            stint.spend(1)
            if entry.place == READY:
                expired.append(line.drop_ready(entry))
                if line.session is not None and lane.sessions is not None:
                    lane.sessions.forget_if_empty(line.session)
        if expired:
            self._state.expire(lane, expired, now)

    def _write_off(self, now: int) -> None:
        """Subscriptions were deleted while nobody was here: their messages were not brought back,
        and must not come back when another subscription gets the lane.

        Written before the messages of this decision, some of which may be for that one already.
        """
        state = self._state
        state.open_enqueued = None
        state.open_scheduled = None
        for number in self.strays:
            state.runs.append(LaneDropped(now, number))
            state.next_position += 1
        self.strays = []
