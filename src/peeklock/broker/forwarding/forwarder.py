"""The forwarder of one partition: moves messages on to other entities of this broker.

Three kinds of lanes are emptied by it: transfers that a transaction left, lanes that forward all
their messages, and dead-letter lanes that forward theirs. Each has a `LaneForwarder`, which has a
`Route` per destination, and `ForgetNotices` tells destinations which numbers will not
come again.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, Protocol, final

from peeklock.broker.forwarding.forget_notices import Find, ForgetNotices
from peeklock.broker.forwarding.former_destinations import NOTHING, UNDER_WAY, UNKNOWN
from peeklock.broker.forwarding.lane_forwarder import LaneForwarder
from peeklock.broker.forwarding.route import BACKOFF_MS_MAX, BACKOFF_MS_MIN
from peeklock.broker.timers import Timer, Timers
from peeklock.clock import Clock
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import TRANSFER, Command
from peeklock.entity.topics.wording import Wording
from peeklock.store.store import PartitionId

_log: Final = logging.getLogger("peeklock.broker")


class ForwardingWorker(Protocol):
    """The owner of the partition, as its forwarder needs it."""

    @property
    def id(self) -> PartitionId:
        """Which partition it is."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the partition lives in memory."""
        ...

    def submit(self, command: Command) -> None:
        """Put a command into the mailbox; the first one opens the partition."""
        ...


@final
class Forwarder:
    """Forwards what a partition's lanes hold for other entities."""

    __slots__ = (
        "_backoffs",
        "_blueprint",
        "_clock",
        "_find",
        "_lane_forwarders",
        "_notices",
        "_retired",
        "_starting",
        "_timers",
        "_wording",
        "_worker",
    )

    def __init__(
        self,
        worker: ForwardingWorker,
        blueprint: Blueprint,
        find: Find,
        wording: Wording,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._worker: ForwardingWorker = worker
        self._blueprint: Blueprint = blueprint
        self._find: Find = find
        self._wording: Wording = wording
        self._clock: Clock = clock
        self._timers: Timers = timers
        self._lane_forwarders: dict[int, LaneForwarder] = {}  # by lane
        self._retired: list[
            LaneForwarder
        ] = []  # forwarding was switched off while something was under way
        self._notices: dict[int, ForgetNotices] = {}  # by lane; outlives the lane forwarders
        # How long a lane is left in peace that was lost before anything of it was settled: a store
        # that opens but does not write would be asked without end.
        self._backoffs: dict[int, int] = {}
        self._starting: dict[int, Timer] = {}

    def opened(self) -> None:
        """The partition has opened, or is to be: start what is not under way."""
        for lane, path in _destinations(self._blueprint).items():
            backoff_ms = self._backoffs.get(lane, 0)
            if backoff_ms == 0:
                self._start(lane, path, UNKNOWN)
            elif lane not in self._lane_forwarders and lane not in self._starting:
                at = self._clock.now() + backoff_ms
                self._starting[lane] = self._timers.set(at, partial(self._start_late, lane))

    def configure(self, blueprint: Blueprint) -> None:
        """The description changed; the worker has been told before."""
        self._blueprint = blueprint
        wanted = _destinations(blueprint)
        self._retired = [
            lane_forwarder for lane_forwarder in self._retired if not lane_forwarder.is_done
        ]
        # By lane: what those who forwarded there until now know of it.
        known = {lane_forwarder.lane: UNDER_WAY for lane_forwarder in self._retired}
        for lane, lane_forwarder in list(self._lane_forwarders.items()):
            if wanted.get(lane) != lane_forwarder.destination:
                del self._lane_forwarders[lane]
                is_away = lane_forwarder.has_some_away
                lane_forwarder.retire()
                self._retired.append(lane_forwarder)
                if is_away or lane in known:
                    known[lane] = UNDER_WAY
                else:
                    known[lane] = NOTHING if lane_forwarder.has_begun else UNKNOWN
            else:
                lane_forwarder.nudge()
        for lane, path in wanted.items():
            # Transfers can wait until there is another reason to open the partition: if it rests
            # now, `opened` was called for those it had.
            if lane != TRANSFER or self._worker.is_open:
                self._start(lane, path, known.get(lane, UNKNOWN))

    def close(self, is_removed: bool = False) -> None:
        """Stop forwarding; with `is_removed`, the entity will never come back."""
        for timer in self._starting.values():
            timer.cancel()
        self._starting = {}
        lane_forwarders = [*self._lane_forwarders.values(), *self._retired]
        self._lane_forwarders = {}
        self._retired = []
        for lane_forwarder in lane_forwarders:
            lane_forwarder.close(is_removed)
        for notices in self._notices.values():
            notices.close()

    def _start_late(self, lane: int) -> None:
        del self._starting[lane]
        path = _destinations(self._blueprint).get(lane)
        if path is not None and self._worker.is_open:
            self._start(lane, path, UNKNOWN)

    def _start(self, lane: int, path: str, before: int) -> None:
        if lane in self._lane_forwarders or lane in self._starting:
            return
        notices = self._notices.get(lane)
        if notices is None:
            source = f"{self._worker.id.key}|{lane}"
            notices = ForgetNotices(source, self._find, self._clock, self._timers)
            self._notices[lane] = notices
        lane_forwarder = LaneForwarder(
            lane,
            self._blueprint.policy(lane).path if lane != TRANSFER else self._blueprint.path,
            path,
            self._worker,
            notices,
            self._find,
            self._wording,
            self._clock,
            self._timers,
            self._lost,
            before,
        )
        self._lane_forwarders[lane] = lane_forwarder
        if path:
            _log.info("forwarding-started source=%s destination=%s", notices.source, path)
        lane_forwarder.start()

    def _lost(self, lane_forwarder: LaneForwarder) -> None:
        """The partition let a lane forwarder go: `opened` starts another one."""
        lane = lane_forwarder.lane
        if self._lane_forwarders.get(lane) is lane_forwarder:
            del self._lane_forwarders[lane]
        if lane_forwarder.has_settled:
            self._backoffs.pop(lane, None)
        else:
            longer_ms = 2 * self._backoffs.get(lane, 0)
            self._backoffs[lane] = min(max(longer_ms, BACKOFF_MS_MIN), BACKOFF_MS_MAX)


def _destinations(blueprint: Blueprint) -> dict[int, str]:
    """The lanes to be emptied and where they go; transfers name their destinations themselves."""
    wanted: dict[int, str] = {TRANSFER: ""}
    for lane, policy in blueprint.lanes.items():
        if policy.forward_to:
            wanted[lane] = policy.forward_to
        if policy.forward_dead_letters_to:
            wanted[lane | 1] = policy.forward_dead_letters_to
    return wanted
