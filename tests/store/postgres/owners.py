"""Owners of partitions that never give up: each writes on, opens anew after whatever happens, and
remembers what was acknowledged."""

from __future__ import annotations

import asyncio
from itertools import count

from peeklock.store.codec.records import decode_chunk
from peeklock.store.figures import StoreFigures
from peeklock.store.postgres.databases import PostgresStores
from peeklock.store.retention import Retention
from peeklock.store.store import PartitionId, StoreError
from peeklock.store.stores import Stores, SwitchedStore
from tests.store.builders import enqueued
from tests.store.postgres.server import PATIENCE_S


def broker_store(*urls: str) -> SwitchedStore:
    """The first store of a broker on these databases; it is tried again without a pause."""
    names = [f"store-{number}" for number in range(len(urls))]
    figures = {name: StoreFigures() for name in names}
    factory = PostgresStores(dict(zip(names, urls, strict=True)), Retention(), figures)
    ticks = count(step=10)
    return Stores.of(factory, names, clock=lambda: float(next(ticks))).get(names[0])


class Owner:
    """Writes message n at position n, over and over."""

    def __init__(self, store: SwitchedStore, name: str) -> None:
        self.store = store
        self.partition = PartitionId("default", name)
        self.acknowledged: set[int] = set()
        self.errors: list[StoreError] = []
        self.is_ending = False

    async def run(self) -> None:
        while not self.is_ending:
            try:
                await self._own()
            except StoreError as error:
                self.errors.append(error)
                await asyncio.sleep(0)

    async def _own(self) -> None:
        opening = await self.store.open(self.partition)
        end = 1
        async for replay in opening.replays:
            end = replay.first_position + len(replay.records)
        while not self.is_ending:
            await self.store.append(self.partition, opening.epoch, end, [enqueued(5, end, 1)])
            self.acknowledged.add(end)
            end += 1

    async def told(self, kind: type[StoreError]) -> None:
        """Wait for such an error."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if any(isinstance(error, kind) for error in self.errors):
                    return
                await asyncio.sleep(0)

    async def lost(self) -> set[int]:
        """What was acknowledged and is not there."""
        position = 0
        found: set[int] = set()
        while (page := await self.store.journal(self.partition, position, 1 << 20)).chunks:
            for chunk in page.chunks:
                first, records = decode_chunk(chunk, bodies=True)
                found.update(range(first, first + len(records)))
            position = page.next
        return self.acknowledged - found


class Owners:
    """Several on one store."""

    def __init__(self, store: SwitchedStore, number: int = 4) -> None:
        self.store = store
        self.all = [Owner(store, f"queue-{index}") for index in range(number)]
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        self._tasks = [asyncio.get_running_loop().create_task(each.run()) for each in self.all]

    async def more(self, number: int) -> None:
        """Wait until each has so many more acknowledgements."""
        wanted = [len(each.acknowledged) + number for each in self.all]
        async with asyncio.timeout(PATIENCE_S):
            while any(len(o.acknowledged) < w for o, w in zip(self.all, wanted, strict=True)):
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0)

    async def end(self) -> None:
        for each in self.all:
            each.is_ending = True
        await asyncio.gather(*self._tasks)

    async def lost(self) -> list[set[int]]:
        return [await each.lost() for each in self.all]
