"""An entity over partitions that each have a store of their own, which a test can take away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from peeklock.broker.partitioned.partitioned_entity import PartitionedEntity
from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.clock import ManualClock
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.commands import Command
from peeklock.entity.definition import QueueDefinition
from peeklock.entity.message import BodyBudget, Message
from peeklock.entity.records import Record
from peeklock.entity.replies import Reply, RulesFound
from peeklock.entity.routing import Routing, partition_of_key
from peeklock.store.memory import MemoryStore
from peeklock.store.store import Away, Opening, PartitionId, Store, Unavailable
from tests.broker.broker_harness import Recorder, settle_down
from tests.broker.manual_timers import ManualTimers
from tests.broker.seeded_random import SeededRandom

PARTITIONS = 4


class FaultyStore:
    """A memory store that is out of reach while a test says so."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self.is_down = False
        # Whether it says so by itself: nothing is in doubt then.
        self.is_away = False
        # How many appends fail, although it can be opened.
        self.failing_appends = 0
        self.full = False
        # Whether bodies cannot be read, although all else goes on.
        self.is_unreadable = False
        self.appends = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _check(self) -> None:
        if self.is_away:
            raise Away("the store was taken offline")
        if self.is_down:
            raise Unavailable("the store is out of reach")

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        self._check()
        return await self._store.open(partition, epoch)

    async def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> int:
        self._check()
        if self.failing_appends:
            self.failing_appends -= 1
            raise Unavailable("the store cannot be written to")
        self.appends += 1
        return await self._store.append(partition, epoch, first_position, records, replay_from)

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        self._check()
        if self.is_unreadable:
            raise Unavailable("the store cannot be read")
        return await self._store.payloads(partition, positions)


class PartitionedHarness:
    """Partitions whose time stands still until a test moves it."""

    def __init__(self, *, seed: int = 7, partitions: int = PARTITIONS, **facts: Any) -> None:
        definition = QueueDefinition(
            "q", partitions=partitions, batched_store_access=False, **facts
        )
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.stores = [FaultyStore() for _ in range(partitions)]
        random_source = SeededRandom(seed).number
        budget = BodyBudget(1 << 20)
        self.workers = [
            PartitionWorker(
                PartitionId("ns", "q", index),
                queue_blueprint(definition),
                cast(Store, store),
                self.clock,
                self.timers,
                budget,
                random_source,
            )
            for index, store in enumerate(self.stores)
        ]
        self.spread = PartitionedEntity(
            list(self.workers),
            Routing(definition.duplicate_window_ms > 0, definition.requires_session),
        )

    async def do(self, *commands: Command) -> None:
        for command in commands:
            self.spread.submit(command)
        await calm()

    async def ask(self, command: Any) -> Reply:
        """Submit a command of a recorder of its own and give the one reply."""
        assert isinstance(command.origin, Recorder)
        command.origin.take()
        await self.do(command)
        [reply] = command.origin.take()
        assert not isinstance(reply, RulesFound)
        assert reply.origin is command.origin
        assert command.origin.flushes > 0
        return reply

    async def advance(self, duration_ms: int) -> None:
        self.timers.advance(duration_ms)
        await calm()

    async def take_away(self, index: int) -> None:
        self.stores[index].is_down = True
        self.workers[index].store_lost()
        await calm()

    async def give_back(self, index: int) -> None:
        self.stores[index].is_down = False
        self.workers[index].store_back()
        await calm()


def run(test: Callable[[PartitionedHarness], Awaitable[None]], **facts: Any) -> None:
    async def whole() -> None:
        bench = PartitionedHarness(**facts)
        await test(bench)
        for worker in bench.workers:
            await worker.close()

    asyncio.run(whole())


async def calm() -> None:
    """Let partitions, and those who go from one to the other, come to rest."""
    for _ in range(5):
        await settle_down()


def key_for(index: int, partitions: int = PARTITIONS, number: int = 0) -> str:
    """A key that belongs to a partition; different numbers give different keys."""
    found = 0
    at = 0
    while True:
        key = f"k{at}"
        if partition_of_key(key, partitions) == index:
            if found == number:
                return key
            found += 1
        at += 1
