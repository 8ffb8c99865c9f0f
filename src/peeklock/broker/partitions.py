"""The partitions of one queue or topic: who owns them, and one way to reach all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from peeklock.broker.forwarding.forwarder import Forwarder
from peeklock.broker.partitioned.commit_partition import why_not_together
from peeklock.broker.partitioned.partitioned_entity import PartitionedEntity
from peeklock.broker.partitioned.reach import availability
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import Command, Tick, TransactionWork
from peeklock.entity.refusals import Refusal
from peeklock.entity.routing import Routing
from peeklock.entity.topics.commands import RuleCommand
from peeklock.store.store import Corrupt, StoreError

# Between two partitions that are opened without being asked for.
_AWAKENING_S: Final = 0.002


@final
class Partitions:
    """One partition or several; whoever asks does not notice which."""

    def __init__(
        self,
        workers: Sequence[PartitionDoor],
        forwarders: Mapping[PartitionDoor, Forwarder],
        blueprint: Blueprint,
    ) -> None:
        """`forwarders` are those of the partitions that live here."""
        self.workers = tuple(workers)
        by_message_id = blueprint.duplicate_window_ms > 0
        self._routing = Routing(by_message_id, blueprint.has_sessions)
        self._forwarders = dict(forwarders)
        # Told each time that one of the partitions has opened.
        self.on_opened: dict[object, Callable[[PartitionDoor], None]] = {}
        if len(self.workers) == 1:
            self.workers[0].on_opened = self._opened
            self._ask: Callable[[Any], None] = self.workers[0].submit
        else:
            spread = PartitionedEntity(list(workers), self._routing)
            spread.on_opened = self._opened
            self._ask = spread.submit

    def submit(self, command: Command | RuleCommand) -> None:
        """Ask the owner of the partition, or of those that it concerns; none knows rules."""
        self._ask(command)

    def why_not_together(self, work: list[TransactionWork]) -> Refusal | None:
        """Why these operations cannot be one transaction, as far as their keys tell."""
        if len(self.workers) == 1:
            return None
        return why_not_together(work, len(self.workers), self._routing)

    @property
    def availability(self) -> str:
        """Whether all partitions can be reached (R-P9)."""
        return availability(self.workers)

    def configure(self, blueprint: Blueprint) -> None:
        """The description changed."""
        self._routing.by_session = blueprint.has_sessions
        for worker in self.workers:
            worker.configure(blueprint)
        for forwarder in self._forwarders.values():
            forwarder.configure(blueprint)

    def trim_soon(self, *, is_turn: bool) -> None:
        """Let each living partition look after its journal: those that wrote, and all in turn."""
        for worker in self.workers:
            if worker.is_open and (is_turn or worker.has_written):
                worker.trim_soon()

    async def awaken(self) -> None:
        """Open what is closed and holds something, because time goes on there."""
        for worker in self._forwarders:
            if not worker.is_open and await _holds_something(worker):
                worker.submit(Tick())
                # One after the other: whoever is in use meanwhile goes first.
                await asyncio.sleep(_AWAKENING_S)

    def stop_forwarding(self, *, is_removed: bool = False) -> None:
        """Stop forwarding."""
        for forwarder in self._forwarders.values():
            forwarder.close(is_removed)

    async def close(self) -> None:
        """Carry out what was asked, store it, and stop."""
        await asyncio.gather(*(worker.close() for worker in self.workers))

    def _opened(self, worker: PartitionDoor) -> None:
        forwarder = self._forwarders.get(worker)
        if forwarder is not None:
            forwarder.opened()
        for tell in list(self.on_opened.values()):
            tell(worker)


async def _holds_something(worker: PartitionDoor) -> bool:
    """Whether there is something to open; what is damaged is opened as well, so that it is said.
    A store that is out of reach tells when it is back."""
    try:
        return await worker.has_journal()
    except Corrupt:
        return True
    except StoreError:
        return False
