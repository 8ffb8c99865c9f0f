"""The partitions of one queue or topic: who owns them, and one door to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, final

from peeklock.broker.carrier import Carrier
from peeklock.broker.spread import AVAILABLE, LIMITED, Spread
from peeklock.broker.worker import PartitionWorker
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import Tick


@final
class Partitions:
    """One partition or several; whoever asks does not notice which."""

    __slots__ = ("_carriers", "submit", "workers")

    def __init__(
        self,
        workers: Sequence[PartitionWorker],
        carriers: Sequence[Carrier],
        *,
        by_message_id: bool,
    ) -> None:
        self.workers = tuple(workers)
        self._carriers = dict(zip(workers, carriers, strict=True))
        if len(self.workers) == 1:
            self.workers[0].on_opened = self._opened
            self.submit: Callable[[Any], None] = self.workers[0].submit
        else:
            spread = Spread(list(workers), by_message_id)
            spread.on_opened = self._opened
            self.submit = spread.submit

    @property
    def availability(self) -> str:
        """Whether all partitions can be reached (R-P9)."""
        return AVAILABLE if all(worker.is_available for worker in self.workers) else LIMITED

    def configure(self, blueprint: Blueprint) -> None:
        """The description changed."""
        for worker, carrier in self._carriers.items():
            worker.configure(blueprint)
            carrier.configure(blueprint)

    def trim_soon(self) -> None:
        """Let each living partition look after its journal."""
        for worker in self.workers:
            if worker.is_open:
                worker.trim_soon()

    def awaken(self) -> None:
        """Open what is closed, because time goes on there: transfers, schedules, forwards."""
        for worker in self.workers:
            if not worker.is_open:
                worker.submit(Tick())

    async def close(self, *, is_removed: bool = False) -> None:
        """Carry out what was asked, store it, and stop."""
        for carrier in self._carriers.values():
            carrier.close(is_removed)
        await asyncio.gather(*(worker.close() for worker in self.workers))

    def _opened(self, worker: PartitionWorker) -> None:
        self._carriers[worker].opened()
