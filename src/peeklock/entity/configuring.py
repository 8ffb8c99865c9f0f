"""A change of the description of an entity, as a living partition takes it in."""

from __future__ import annotations

from typing import final

from peeklock.entity.accepting import Accepting
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import MAIN, TRANSFER, TRANSFER_DEAD, Configure
from peeklock.entity.settling import Settling
from peeklock.entity.staging import Staging
from peeklock.entity.state import State


@final
class Configuring:
    """Drops the lanes that are no more, and what another duration makes void."""

    __slots__ = ("_accepting", "_settling", "_staging", "_state")

    def __init__(
        self, state: State, settling: Settling, accepting: Accepting, staging: Staging
    ) -> None:
        self._state: State = state
        self._settling: Settling = settling
        self._accepting: Accepting = accepting
        self._staging: Staging = staging

    def configure(self, command: Configure, now: int) -> None:
        """Locks of another duration would break the order of deadlines: they are dropped, as a
        change of the entity may do (R-L4); no delivery is counted."""
        state = self._state
        before = state.blueprint
        after: Blueprint = command.blueprint
        state.blueprint = after
        state.seen.window_ms = after.duplicate_window_ms
        for number, policy in before.lanes.items():
            current = after.lanes.get(number)
            if current is None:
                state.drop_lane(number, now)
            elif current.lock_duration_ms != policy.lock_duration_ms:
                lanes = [number, number | 1]
                if number == MAIN:
                    lanes += [TRANSFER, TRANSFER_DEAD]
                for each in lanes:
                    lane = state.lanes.get(each)
                    if lane is None:
                        continue
                    if lane.book is None:
                        self._settling.release_every_lock(lane, now)
                    else:
                        self._accepting.take_all_back(lane, now)
        # Whoever waits may have something to wait for now.
        for lane in state.lanes.values():
            state.touch(lane)
            self._accepting.serve_waiting(lane, now)
        for receiver in state.receivers.values():
            state.touch(receiver.lane)
        self._staging.resume(now)
