"""The carrier of one partition: moves messages on to other entities of this broker.

Three kinds of lanes are emptied by it: transfers that a transaction left, lanes that forward all
their messages, and dead-letter lanes that forward theirs. Each has a `Haul`; a haul has a `Route`
per destination, and `Forgetting` tells destinations which numbers will not come again.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, Protocol, final

from peeklock.broker.alarm import Alarm, Alarms
from peeklock.broker.forgetting import Destination, Find, Forgetting
from peeklock.broker.former import NOTHING, UNDER_WAY, UNKNOWN
from peeklock.broker.haul import Haul
from peeklock.broker.route import BACKOFF_MS_MAX, BACKOFF_MS_MIN
from peeklock.clock import Clock
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import TRANSFER, Command
from peeklock.entity.wording import Wording
from peeklock.store.store import PartitionId

__all__ = ["Carrier", "Destination", "Find", "Worker"]

_log: Final = logging.getLogger("peeklock.broker")


class Worker(Protocol):
    """The owner of the partition, as its carrier needs it."""

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
class Carrier:
    """Carries what a partition's lanes hold for other entities."""

    __slots__ = (
        "_alarms",
        "_backoffs",
        "_blueprint",
        "_clock",
        "_find",
        "_forgetting",
        "_hauls",
        "_retired",
        "_starting",
        "_wording",
        "_worker",
    )

    def __init__(
        self,
        worker: Worker,
        blueprint: Blueprint,
        find: Find,
        wording: Wording,
        clock: Clock,
        alarms: Alarms,
    ) -> None:
        self._worker: Worker = worker
        self._blueprint: Blueprint = blueprint
        self._find: Find = find
        self._wording: Wording = wording
        self._clock: Clock = clock
        self._alarms: Alarms = alarms
        self._hauls: dict[int, Haul] = {}  # by lane
        self._retired: list[Haul] = []  # forwarding was switched off while something was under way
        self._forgetting: dict[int, Forgetting] = {}  # by lane; outlives the hauls
        # How long a lane is left in peace that was lost before anything of it was settled: a store
        # that opens but does not write would be asked without end.
        self._backoffs: dict[int, int] = {}
        self._starting: dict[int, Alarm] = {}

    def opened(self) -> None:
        """The partition has opened, or is to be: start what is not under way."""
        for lane, path in _destinations(self._blueprint).items():
            backoff_ms = self._backoffs.get(lane, 0)
            if backoff_ms == 0:
                self._start(lane, path, UNKNOWN)
            elif lane not in self._hauls and lane not in self._starting:
                at = self._clock.now() + backoff_ms
                self._starting[lane] = self._alarms.set(at, partial(self._start_late, lane))

    def configure(self, blueprint: Blueprint) -> None:
        """The description changed; the worker has been told before."""
        self._blueprint = blueprint
        wanted = _destinations(blueprint)
        self._retired = [haul for haul in self._retired if not haul.is_done]
        # By lane: what those who carried there until now know of it.
        known = {haul.lane: UNDER_WAY for haul in self._retired}
        for lane, haul in list(self._hauls.items()):
            if wanted.get(lane) != haul.destination:
                del self._hauls[lane]
                is_away = haul.has_some_away
                haul.retire()
                self._retired.append(haul)
                if is_away or lane in known:
                    known[lane] = UNDER_WAY
                else:
                    known[lane] = NOTHING if haul.has_begun else UNKNOWN
            else:
                haul.nudge()
        for lane, path in wanted.items():
            # Transfers can wait until there is another reason to open the partition: if it rests
            # now, `opened` was called for those it had.
            if lane != TRANSFER or self._worker.is_open:
                self._start(lane, path, known.get(lane, UNKNOWN))

    def close(self, is_removed: bool = False) -> None:
        """Carry nothing any more; with `is_removed`, the entity will never come back."""
        for alarm in self._starting.values():
            alarm.cancel()
        self._starting = {}
        hauls = [*self._hauls.values(), *self._retired]
        self._hauls = {}
        self._retired = []
        for haul in hauls:
            haul.close(is_removed)
        for forgetting in self._forgetting.values():
            forgetting.close()

    def _start_late(self, lane: int) -> None:
        del self._starting[lane]
        path = _destinations(self._blueprint).get(lane)
        if path is not None and self._worker.is_open:
            self._start(lane, path, UNKNOWN)

    def _start(self, lane: int, path: str, before: int) -> None:
        if lane in self._hauls or lane in self._starting:
            return
        forgetting = self._forgetting.get(lane)
        if forgetting is None:
            source = f"{self._worker.id.key}|{lane}"
            forgetting = Forgetting(source, self._find, self._clock, self._alarms)
            self._forgetting[lane] = forgetting
        haul = Haul(
            lane,
            self._blueprint.policy(lane).path if lane != TRANSFER else self._blueprint.path,
            path,
            self._worker,
            forgetting,
            self._find,
            self._wording,
            self._clock,
            self._alarms,
            self._lost,
            before,
        )
        self._hauls[lane] = haul
        if path:
            _log.info("forwarding-started source=%s destination=%s", forgetting.source, path)
        haul.start()

    def _lost(self, haul: Haul) -> None:
        """The partition let a haul go: `opened` starts another one."""
        lane = haul.lane
        if self._hauls.get(lane) is haul:
            del self._hauls[lane]
        if haul.has_settled:
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
