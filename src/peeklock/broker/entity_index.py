"""The queues and topics of a broker: found by their names, in order, and counted as they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from peeklock.broker.entities import Queue, Topic


@final
class EntityIndex:
    """All of them, of every namespace; names are compared without case.

    Nothing here looks at all entities to tell about one, because there may be very many.
    """

    def __init__(self) -> None:
        self._namespaces: Final[dict[str, _NamespaceEntities]] = {}
        # How many partitions each store has.
        self._used: Final[dict[str, int]] = {}

    def get(self, namespace: str, path: str) -> Queue | Topic | None:
        """The one with this name."""
        namespace_entities = self._namespaces.get(namespace.lower())
        return None if namespace_entities is None else namespace_entities.entities.get(path.lower())

    def put(self, entity: Queue | Topic) -> None:
        """Take in a new one."""
        namespace_entities = self._namespaces.setdefault(
            entity.namespace.lower(), _NamespaceEntities()
        )
        namespace_entities.entities[entity.path.lower()] = entity
        namespace_entities.in_order = None
        stores = entity.place.stores
        namespace_entities.partitioned += len(stores) > 1
        for name in stores:
            self._used[name] = self._used.get(name, 0) + 1

    def remove(self, entity: Queue | Topic) -> None:
        """Forget one."""
        namespace_entities = self._namespaces[entity.namespace.lower()]
        del namespace_entities.entities[entity.path.lower()]
        namespace_entities.in_order = None
        stores = entity.place.stores
        namespace_entities.partitioned -= len(stores) > 1
        for name in stores:
            self._used[name] -= 1
        if not namespace_entities.entities:
            del self._namespaces[entity.namespace.lower()]

    def all(self) -> list[Queue | Topic]:
        """List them in no order."""
        return [
            entity
            for namespace_entities in self._namespaces.values()
            for entity in namespace_entities.entities.values()
        ]

    def by_name(self, namespace: str | None = None) -> Sequence[Queue | Topic]:
        """List them by name, of one namespace or of all."""
        if namespace is None:
            namespace_entities = [
                namespace_entities for _, namespace_entities in sorted(self._namespaces.items())
            ]
            return [
                entity
                for namespace_entities in namespace_entities
                for entity in namespace_entities.by_name()
            ]
        found = self._namespaces.get(namespace.lower())
        return () if found is None else found.by_name()

    def usage(self, namespace: str) -> Usage:
        """Count what there is, for those that plan more of it."""
        namespace_entities = self._namespaces.get(namespace.lower())
        count, partitioned = (
            (0, 0)
            if namespace_entities is None
            else (len(namespace_entities.entities), namespace_entities.partitioned)
        )
        return Usage(namespace, count, partitioned, dict(self._used))


@final
@dataclass(slots=True)
class Usage:
    """The entities of a namespace and the partitions of each store, with those that are planned."""

    namespace: Final[str]
    count: int
    partitioned: int
    used: Final[dict[str, int]]

    def take(self, stores: Sequence[str]) -> None:
        """Plan one more, whose partitions rest in these stores."""
        self.count += 1
        self.partitioned += len(stores) > 1
        for name in stores:
            self.used[name] = self.used.get(name, 0) + 1


@final
@dataclass(slots=True)
class _NamespaceEntities:
    """Those of one namespace."""

    entities: Final[dict[str, Queue | Topic]] = field(default_factory=dict)
    partitioned: int = 0
    # By name, until the next change: lists are asked for page by page.
    in_order: tuple[Queue | Topic, ...] | None = None

    def by_name(self) -> tuple[Queue | Topic, ...]:
        """List them."""
        if self.in_order is None:
            self.in_order = tuple(entity for _, entity in sorted(self.entities.items()))
        return self.in_order
