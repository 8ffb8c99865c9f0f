"""A change of the description of an entity, as a living partition takes it in."""

from __future__ import annotations

from typing import final

from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import MAIN, TRANSFER, TRANSFER_DEAD, Configure
from peeklock.entity.lane import Lane
from peeklock.entity.moves.settling import Settling
from peeklock.entity.sessions.accepting import Accepting
from peeklock.entity.stages.staging import Staging
from peeklock.entity.state import State


@final
class Configuring:
    """Drops the lanes that are no more, and what another duration makes void."""

    __slots__ = ("_accepting", "_outdated", "_settling", "_staging", "_state", "_under_way")

    def __init__(
        self, state: State, settling: Settling, accepting: Accepting, staging: Staging
    ) -> None:
        self._state: State = state
        self._settling: Settling = settling
        self._accepting: Accepting = accepting
        self._staging: Staging = staging
        self._under_way: Configure | None = None
        self._outdated: list[Lane] = []  # whose locks are void

    @property
    def is_under_way(self) -> bool:
        """Whether the last command has to be given again, before all else: there were more locks to
        take away than a stint has steps."""
        return self._under_way is not None

    def configure(self, command: Configure, now: int) -> None:
        """Take the description in, and take away a stint of the locks that are void by it."""
        if self._under_way is not command:
            self._begin(command, now)
        stint = self._state.stint
        while self._outdated:
            lane = self._outdated[-1]
            if lane.sessions is None:
                is_done = self._settling.release_some(lane, now)
            else:
                is_done = self._accepting.take_some_back(lane, now)
            if is_done:
                self._outdated.pop()
            if stint.is_over:
                break
        self._under_way = command if self._outdated else None
        if self._under_way is None:
            self._finish(now)

    def _begin(self, command: Configure, now: int) -> None:
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
                numbers = [number, number | 1]
                if number == MAIN:
                    numbers += [TRANSFER, TRANSFER_DEAD]
                for each in numbers:
                    lane = state.lanes.get(each)
                    if lane is not None:
                        self._outdated.append(lane)
        self._outdated.reverse()  # the first one is served first

    def _finish(self, now: int) -> None:
        """Whoever waits may have something to wait for now."""
        state = self._state
        for lane in state.lanes.values():
            state.touch(lane)
            self._accepting.serve_waiting(lane, now)
        for receiver in state.receivers.values():
            state.touch(receiver.lane)
        self._staging.resume(now)
