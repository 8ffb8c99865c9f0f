"""Stores that a fault can stall: what is written waits until the fault is over."""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from typing import Final, final

from peeklock.broker.partition_factory import StoresByName
from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.store import JournalPage, Opening, PartitionId, Store
from peeklock.testbed.faults import Faults


@final
class StallingStores:
    """The stores of a broker, each behind a gate."""

    def __init__(self, stores: StoresByName, faults: Faults) -> None:
        self._stores: Final = stores
        self._faults: Final = faults

    def get(self, name: str) -> Store:
        """Give a store that can be stalled."""
        return StallingStore(self._stores.get(name), self._faults)

    async def drop(self, name: str, partition: PartitionId) -> None:
        """Remove all of a partition from a store."""
        await self._stores.drop(name, partition)

    def place(self, count: int, used: dict[str, int]) -> list[str]:
        """Choose a store for each partition of a new entity."""
        return self._stores.place(count, used)

    async def close(self) -> None:
        """Flush and let go."""
        await self._stores.close()


@final
class StallingStore:
    """Does what the store behind it does, later if its partition is stalled."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store: Final = store
        self._faults: Final = faults

    @property
    def full(self) -> bool:
        """Whether sends are to be refused for want of room."""
        return self._store.full

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Open a partition."""
        return await self._store.open(partition, epoch)

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Awaitable[int]:
        """Write, or wait for that."""
        # A name that was used before has its incarnation behind it.
        gate = self._faults.gate(partition.namespace, partition.path.partition("#")[0])
        if gate is None:
            return self._store.append(partition, epoch, first_position, records, replay_from)
        return self._append_later(gate, partition, epoch, first_position, records, replay_from)

    async def _append_later(
        self,
        gate: asyncio.Event,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None,
    ) -> int:
        await gate.wait()
        return await self._store.append(partition, epoch, first_position, records, replay_from)

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Read bodies."""
        return await self._store.payloads(partition, positions)

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Read the journal."""
        return await self._store.journal(partition, after, limit_bytes)

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Drop what is not needed any more."""
        return await self._store.trim(partition, upto, keep_blocks, now)

    async def drop(self, partition: PartitionId) -> None:
        """Remove a partition."""
        await self._store.drop(partition)

    async def close(self) -> None:
        """Flush and let go."""
        await self._store.close()
