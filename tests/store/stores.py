"""The stores that keep the contract, each with a way to leave it and to come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from peeklock.entity.records import Record
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.memory import MemoryStore
from peeklock.store.postgres.preparing import prepare
from peeklock.store.postgres.store import PostgresStore
from peeklock.store.retention import Retention
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import PartitionId, Store
from tests.store.postgres.server import shared_server

KINDS = ("memory", "embedded", "embedded-inline", "segments", "segments-inline", "postgres")

# Small, so that tests use several.
SEGMENT_BYTES = 256 << 10

ORDERS = PartitionId("default", "orders")
BILLS = PartitionId("default", "bills")

T = TypeVar("T")


def postgres_store(url: str, retention: Retention | None = None, **options: Any) -> PostgresStore:
    """The store in a database, made if it is not there."""
    identity = prepare(url, "store", None, may_make=True).identity
    return PostgresStore(url, identity, retention=retention, **options)


class StoreUnderTest:
    """A place where a store lives on after it was closed."""

    def __init__(self, kind: str, directory: Path, retention: Retention | None = None) -> None:
        self.kind = kind
        self.directory = directory
        self.retention = retention
        self.url = shared_server().new_database() if kind == "postgres" else ""
        self.store: Store = self.make()

    def make(self, kept: MemoryStore | None = None) -> Store:
        if self.kind == "memory":
            return MemoryStore(self.retention, kept)
        if self.kind == "postgres":
            return postgres_store(self.url, self.retention)
        inline = self.kind.endswith("-inline")
        if self.kind.startswith("segments"):
            return SegmentStore(
                self.directory,
                retention=self.retention,
                commit="inline" if inline else "thread",
                segment_bytes=SEGMENT_BYTES,
            )
        return LmdbStore(
            self.directory, retention=self.retention, commit="inline" if inline else "thread"
        )

    async def reopen(self) -> Store:
        """Close the store and open it again."""
        await self.store.close()
        self.store = self.make(self.store if isinstance(self.store, MemoryStore) else None)
        return self.store

    def run(self, scenario: Callable[[StoreUnderTest], Awaitable[T]]) -> T:
        async def living() -> T:
            try:
                return await scenario(self)
            finally:
                await self.store.close()

        return asyncio.run(living())


async def replayed(
    store: Store, partition: PartitionId, epoch: int | None = None
) -> tuple[int, int, list[Record]]:
    """Open a partition: its epoch, the first position replayed (-1: none) and the records."""
    opening = await store.open(partition, epoch)
    first = -1
    records: list[Record] = []
    async for replay in opening.replays:
        if first < 0:
            first = replay.first_position
        records += replay.records
    return opening.epoch, first, records
