"""What is done for all entities from time to time: journals are trimmed, and what was idle for as
long as its owner said is deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeAlias, final

from peeklock.broker.cluster_view import ClusterView
from peeklock.broker.entities import Entity, Queue, Topic
from peeklock.broker.timers import Timer, Timers
from peeklock.clock import Clock
from peeklock.entity.definition import FOREVER_MS
from peeklock.store.store import StoreError

# How often each open partition looks after its journal: small beside the retention of an hour,
# large beside the cost of a look.
TRIM_INTERVAL_MS: Final = 1_000
# A partition that wrote nothing has only its age to look after: once in so many looks will do.
QUIET_TURNS: Final = 60

Begin: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]
"""Starts something that nobody waits for."""

_log: Final = logging.getLogger("peeklock.broker")


class KnownEntities(Protocol):
    """What is needed of the broker."""

    def entities(self, namespace: str | None = None) -> Sequence[Queue | Topic]:
        """All queues and topics."""
        ...

    def find(self, namespace: str, path: str) -> Entity | None:
        """The entity with this name."""
        ...

    async def remove(self, path: str, namespace: str | None = None) -> bool:
        """Delete an entity with all its messages."""
        ...


@final
class EntityUpkeep:
    """Looks after the entities of a broker, once a second."""

    def __init__(
        self,
        broker: KnownEntities,
        clock: Clock,
        timers: Timers,
        cluster: ClusterView | None,
        begin: Begin,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._timers = timers
        self._cluster = cluster
        self._begin = begin
        self._timer: Timer | None = None
        self._turn = 0

    def begin(self) -> None:
        """Look after them from now on."""
        self._timer = self._timers.set(self._clock.now() + TRIM_INTERVAL_MS, self._look)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._turn = (self._turn + 1) % QUIET_TURNS
        for number, entity in enumerate(self._broker.entities()):
            entity.partitions.trim_soon(is_turn=number % QUIET_TURNS == self._turn)
            self._remove_idle(entity)
        self.begin()

    def _remove_idle(self, entity: Queue | Topic) -> None:
        """Delete what nobody has used for as long as its owner said (AutoDeleteOnIdle)."""
        if self._cluster is not None and not self._cluster.has_store(entity.place.stores[0]):
            return  # its first partition's node asks everybody
        if entity.definition.auto_delete_ms != FOREVER_MS and entity.is_idle():
            self._begin(self._remove_unless_used(entity))
        elif isinstance(entity, Topic):
            for subscription in list(entity.subscriptions.values()):
                if subscription.definition.auto_delete_ms != FOREVER_MS and subscription.is_idle():
                    self._begin(self._remove_unless_used(subscription))

    async def _remove_unless_used(self, entity: Entity) -> None:
        if self._cluster is not None and not await self._cluster.is_idle_elsewhere(
            entity.namespace, entity.path
        ):
            entity.links.used()  # somebody is there: nobody is asked again for as long
            return
        if entity.is_idle() and self._broker.find(entity.namespace, entity.path) is entity:
            _log.info(
                "entity-idle kind=%s namespace=%s path=%s",
                entity.kind,
                entity.namespace,
                entity.path,
            )
            try:
                await self._broker.remove(entity.path, entity.namespace)
            except StoreError as error:
                _log.error("catalog-failed path=%s error=%r", entity.path, str(error))
