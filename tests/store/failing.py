"""A store that fails on command: every error comes from its own switch, the rest is real."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.store import JournalPage, Opening, PartitionId, Store, StoreError


class FailingStore:
    """Hands everything on, except while `failure` makes an error: then that is raised instead."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failure: Callable[[], StoreError] | None = None

    @property
    def full(self) -> bool:
        return self.store.full

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        return await self._working().open(partition, epoch)

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Awaitable[int]:
        return self._working().append(partition, epoch, first_position, records, replay_from)

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        return await self._working().payloads(partition, positions)

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        return await self._working().journal(partition, after, limit_bytes)

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        return await self._working().trim(partition, upto, keep_blocks, now)

    async def drop(self, partition: PartitionId) -> None:
        await self._working().drop(partition)

    async def close(self) -> None:
        await self.store.close()

    def _working(self) -> Store:
        if self.failure is not None:
            raise self.failure()
        return self.store
