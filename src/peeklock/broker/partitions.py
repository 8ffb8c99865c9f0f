"""The partitions of one queue or topic: who owns them, and one door to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, final

from peeklock.broker.worker import PartitionWorker
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import Command, Tick
from peeklock.entity.rule_commands import RuleCommand

AVAILABLE: Final = "Available"
LIMITED: Final = "Limited"


@final
class Partitions:
    """One partition or several; whoever asks does not notice which."""

    __slots__ = ("submit", "workers")

    def __init__(self, workers: Sequence[PartitionWorker]) -> None:
        self.workers = tuple(workers)
        self.submit: Callable[[Command | RuleCommand], None] = self.workers[0].submit  # type: ignore[assignment]

    @property
    def availability(self) -> str:
        """Whether all partitions can be reached (R-P9)."""
        return AVAILABLE

    def configure(self, blueprint: Blueprint) -> None:
        """The description changed."""
        for worker in self.workers:
            worker.configure(blueprint)

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

    async def close(self) -> None:
        """Carry out what was asked, store it, and stop."""
        await asyncio.gather(*(worker.close() for worker in self.workers))
