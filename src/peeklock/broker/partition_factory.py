"""Where partitions live: their stores, and the workers that own them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias, final

from peeklock.broker.descriptions import Placement
from peeklock.broker.forwarding.forget_notices import Destination
from peeklock.broker.forwarding.forwarder import Forwarder
from peeklock.broker.partitions import Partitions
from peeklock.broker.timers import Timers
from peeklock.broker.worker.memory_mark import MemoryMark
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.clock import Clock
from peeklock.entity.blueprint import Blueprint
from peeklock.entity.message import BodyBudget
from peeklock.entity.topics.wording import Wording
from peeklock.store.store import PartitionId, Store, StoreError

_log: Final = logging.getLogger("peeklock.broker")


@final
@dataclass(frozen=True, slots=True)
class RemotePlace:
    """A partition, as nodes name it to each other: the incarnation tells it from those of an
    entity that had this name before."""

    id: PartitionId
    path: str
    incarnation: int


FindDoor: TypeAlias = Callable[[str, RemotePlace], PartitionDoor | None]
"""By the name of a store: the way to a partition that lives on another node; None where it is
here."""


class StoresByName(Protocol):
    """The stores that this broker has, by their names."""

    def get(self, name: str) -> Store:
        """Give a store; one that is not there is always out of reach."""
        ...

    async def drop(self, name: str, partition: PartitionId) -> None:
        """Remove all of a partition from a store durably."""
        ...

    def place(self, count: int, used: dict[str, int]) -> list[str]:
        """Choose a store for each partition of a new entity."""
        ...

    async def close(self) -> None:
        """Flush and let go."""
        ...


@final
class PartitionFactory:
    """Builds the partitions of entities on the stores that there are."""

    def __init__(
        self,
        stores: StoresByName,
        clock: Clock,
        timers: Timers,
        budget: BodyBudget,
        random_source: Callable[[], int],
        wording: Wording,
        find: Callable[[str, str], Destination | None],
        memory: MemoryMark,
        find_door: FindDoor | None = None,
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._timers = timers
        self._budget = budget
        self._random_source = random_source
        self._wording = wording
        # By namespace and path: where messages are forwarded to.
        self._find = find
        self._memory = memory
        # The way to a partition whose store another node has; None while this one has all stores.
        self._find_door = find_door
        self._last_incarnation = 0

    def place(self, partitions: int, used: dict[str, int]) -> Placement:
        """Choose where a new entity rests; `used` says how many partitions each store has."""
        now = self._clock.now()
        self._last_incarnation = max(now, self._last_incarnation + 1)
        stores = tuple(self._stores.place(partitions, used))
        return Placement(stores, self._last_incarnation, now)

    def build(
        self, namespace: str, path: str, place: Placement, blueprint: Blueprint
    ) -> Partitions:
        """Build the partitions of an entity; they open when they are used."""
        self._last_incarnation = max(self._last_incarnation, place.incarnation)
        storage_path = place.storage_path(path)
        find = partial(self._find, namespace)
        doors: list[PartitionDoor] = []
        forwarders: dict[PartitionDoor, Forwarder] = {}
        for index, name in enumerate(place.stores):
            partition_id = PartitionId(namespace, storage_path, index)
            door = None
            if self._find_door is not None:
                door = self._find_door(name, RemotePlace(partition_id, path, place.incarnation))
            if door is None:
                worker = self._worker(partition_id, name, blueprint)
                forwarders[worker] = Forwarder(
                    worker, blueprint, find, self._wording, self._clock, self._timers
                )
                door = worker
            doors.append(door)
        return Partitions(doors, forwarders, blueprint)

    def _worker(
        self, partition_id: PartitionId, store_name: str, blueprint: Blueprint
    ) -> PartitionWorker:
        return PartitionWorker(
            partition_id,
            blueprint,
            self._stores.get(store_name),
            self._clock,
            self._timers,
            self._budget,
            self._random_source,
            lost_content=self._wording.lost(),
            memory=self._memory,
        )

    async def drop(self, namespace: str, storage_path: str, stores: Sequence[str]) -> bool:
        """Remove what a deleted entity left; answers False where a store is out of reach."""
        try:
            for index, name in enumerate(stores):
                await self._stores.drop(name, PartitionId(namespace, storage_path, index))
        except StoreError as error:
            _log.warning("drop-postponed path=%s error=%r", storage_path, str(error))
            return False
        return True

    async def close(self) -> None:
        """Close the stores."""
        await self._stores.close()
