"""Several brokers in one process, with real sockets between them and a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.rights import development_rule
from peeklock.broker.broker import Broker
from peeklock.clock import ManualClock
from peeklock.cluster.channel import serve
from peeklock.cluster.coordinator import ClusterCoordinator
from peeklock.cluster.node import ClusterNode
from peeklock.node_description import NodeDescription
from peeklock.store.memory import MemoryCatalog, MemoryStores
from peeklock.store.stores import Stores
from tests.broker.broker_harness import NoWording
from tests.broker.manual_timers import ManualTimers
from tests.broker.seeded_random import SeededRandom


class NodeHarness:
    """One node with its broker."""

    def __init__(
        self, description: NodeDescription, clock: ManualClock, stores: MemoryStores
    ) -> None:
        self.description = description
        self.clock = clock
        self.timers = ManualTimers(clock)
        self.memory = stores
        self.node = ClusterNode(description)

    async def start(self) -> None:
        catalog = await self.node.join()
        own = Stores.of(self.memory, self.node.own_stores())
        self.broker = Broker(
            Namespaces([Namespace("ns", [development_rule()])]),
            self.node.stores(own),
            catalog,
            self.clock,
            self.timers,
            SeededRandom(self.description.index + 1).number,
            NoWording(),
            cluster=self.node,
        )
        await self.broker.start()
        await self.node.start(self.broker)

    async def close(self) -> None:
        """End politely."""
        await self.broker.close()
        await self.node.close()

    async def vanish(self) -> None:
        """Be gone for the others, as after a kill: nothing is finished."""
        await self.node.close()


class ClusterHarness:
    """A parent and its nodes."""

    def __init__(self, directory: Path, count: int, stores: int) -> None:
        self.clock = ManualClock()
        self.catalog = MemoryCatalog()
        self.coordinator = ClusterCoordinator(self.catalog)
        self.memory = [MemoryStores() for _ in range(count)]
        self._directory = directory
        self._count = count
        self._stores = stores
        self.nodes: list[NodeHarness] = [self.make(index) for index in range(count)]

    def make(self, index: int) -> NodeHarness:
        description = NodeDescription(
            index=index,
            count=self._count,
            directory=str(self._directory),
            stores=self._stores,
            listening={},
        )
        return NodeHarness(description, self.clock, self.memory[index])

    def broker(self, index: int) -> Broker:
        return self.nodes[index].broker


@asynccontextmanager
async def cluster(
    directory: Path, count: int = 2, stores: int = 4
) -> AsyncIterator[ClusterHarness]:
    """A cluster that serves, and ends with the block."""
    made = ClusterHarness(directory, count, stores)
    server = await serve(made.nodes[0].description.coordination_path, made.coordinator.side)
    starting = [node.start() for node in made.nodes]
    await asyncio.gather(*starting)
    try:
        yield made
    finally:
        for node in made.nodes:
            await node.close()
        server.close()
