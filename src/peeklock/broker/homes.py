"""The queues and topics of a broker: found by their names, in order, and counted as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from peeklock.broker.entities import Queue, Topic


@final
class Homes:
    """All of them, of every namespace; names are compared without case.

    Nothing here looks at all entities to tell about one, because there may be very many.
    """

    __slots__ = ("_namespaces", "_used")

    def __init__(self) -> None:
        self._namespaces: Final[dict[str, _Street]] = {}
        # How many partitions each store has.
        self._used: Final[dict[str, int]] = {}

    def get(self, namespace: str, path: str) -> Queue | Topic | None:
        """The one with this name."""
        street = self._namespaces.get(namespace.lower())
        return None if street is None else street.homes.get(path.lower())

    def put(self, home: Queue | Topic) -> None:
        """Take in a new one."""
        street = self._namespaces.setdefault(home.namespace.lower(), _Street())
        street.homes[home.path.lower()] = home
        street.in_order = None
        stores = home.place.stores
        street.partitioned += len(stores) > 1
        for name in stores:
            self._used[name] = self._used.get(name, 0) + 1

    def remove(self, home: Queue | Topic) -> None:
        """Forget one."""
        street = self._namespaces[home.namespace.lower()]
        del street.homes[home.path.lower()]
        street.in_order = None
        stores = home.place.stores
        street.partitioned -= len(stores) > 1
        for name in stores:
            self._used[name] -= 1

    def all(self) -> list[Queue | Topic]:
        """List them in no order."""
        return [home for street in self._namespaces.values() for home in street.homes.values()]

    def by_name(self, namespace: str | None = None) -> Sequence[Queue | Topic]:
        """List them by name, of one namespace or of all."""
        if namespace is None:
            streets = [street for _, street in sorted(self._namespaces.items())]
            return [home for street in streets for home in street.by_name()]
        found = self._namespaces.get(namespace.lower())
        return () if found is None else found.by_name()

    def room(self, namespace: str) -> Room:
        """Count what there is, for those that plan more of it."""
        street = self._namespaces.get(namespace.lower())
        count, partitioned = (0, 0) if street is None else (len(street.homes), street.partitioned)
        return Room(namespace, count, partitioned, dict(self._used))


@final
class Room:
    """The entities of a namespace and the partitions of each store, with those that are planned."""

    __slots__ = ("count", "namespace", "partitioned", "used")

    def __init__(self, namespace: str, count: int, partitioned: int, used: dict[str, int]) -> None:
        self.namespace: Final = namespace
        self.count = count
        self.partitioned = partitioned
        self.used: Final = used

    def take(self, stores: Sequence[str]) -> None:
        """Plan one more, whose partitions rest in these stores."""
        self.count += 1
        self.partitioned += len(stores) > 1
        for name in stores:
            self.used[name] = self.used.get(name, 0) + 1


@final
class _Street:
    """Those of one namespace."""

    __slots__ = ("homes", "in_order", "partitioned")

    def __init__(self) -> None:
        self.homes: Final[dict[str, Queue | Topic]] = {}
        self.partitioned = 0
        # By name, until the next change: lists are asked for page by page.
        self.in_order: tuple[Queue | Topic, ...] | None = None

    def by_name(self) -> tuple[Queue | Topic, ...]:
        """List them."""
        if self.in_order is None:
            self.in_order = tuple(home for _, home in sorted(self.homes.items()))
        return self.in_order
