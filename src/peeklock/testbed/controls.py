"""The controls of a broker under test: all that a test may do to it, in process or over HTTP."""

import asyncio
from typing import Final, final
from uuid import UUID

from peeklock.amqp.limits import ConnectionLimits
from peeklock.broker.broker import Broker
from peeklock.broker.partition_factory import StoresByName
from peeklock.broker.timers import LoopTimers
from peeklock.budgets import Budgets
from peeklock.clock import Instant, MovedClock, SystemClock
from peeklock.gateway.amqp.management.lock_tokens import token_of
from peeklock.gateway.amqp.namespace_context import Entities
from peeklock.gateway.http.figures import Overview
from peeklock.gateway.listening.connections import AmqpConnections
from peeklock.gateway.quotas.connection_quota import budget_name
from peeklock.settings import Settings
from peeklock.testbed.faults import NOW, Fault, FaultError, Faults
from peeklock.testbed.faulty_entities import FaultyEntities
from peeklock.testbed.made_namespaces import MadeNamespaces
from peeklock.testbed.stalling_stores import StallingStores

# How long a connection may be silent; the announced time is half of it.
_SILENT_MS_MAX: Final = 2 * ConnectionLimits().idle_timeout_ms
# A long way is gone in so many steps at most: each of them lets all partitions decide.
_STEPS_MAX: Final = 500
# So many turns of the loop are enough for a decision in memory, its replies and what these lead to.
_TURNS: Final = 10
# At the end what was forwarded on the way arrives, too.
_STEPS_LAST: Final = 10


@final
class Controls:
    """Made before the parts of the broker, which take the clock from here; they join later."""

    def __init__(self, settings: Settings) -> None:
        self.clock: Final = MovedClock(SystemClock())
        self.timers: Final = LoopTimers(self.clock, asyncio.get_running_loop(), is_moved=True)
        self.faults: Final = Faults()
        self._entities: FaultyEntities | None = None
        self._settings: Final = settings
        self._amqp: AmqpConnections | None = None
        self._namespaces: MadeNamespaces | None = None
        # Where clients find it, once it listens.
        self.place = ""

    def stores(self, stores: StoresByName) -> StoresByName:
        """Let the stores of the broker be stalled."""
        return StallingStores(stores, self.faults)

    def entities(self, entities: Entities) -> Entities:
        """Let what clients ask of entities go wrong."""
        self._entities = FaultyEntities(entities, self.faults)
        return self._entities

    def join(
        self, broker: Broker, amqp: AmqpConnections, budgets: Budgets, overview: Overview
    ) -> None:
        """Take the parts that are to be controlled."""

        def forget(namespace: str) -> None:
            self.faults.clear(namespace)
            self._faulty.forget(namespace)
            budgets.forget(budget_name(namespace))
            for place in [each for each in overview.refusals if each[0] == namespace]:
                del overview.refusals[place]

        self._amqp = amqp
        amqp.on_stopping = self.faults.end
        self._namespaces = MadeNamespaces(self._settings, broker, amqp, forget)

    @property
    def namespaces(self) -> MadeNamespaces:
        """Those that are made and dropped while it serves."""
        assert self._namespaces is not None, "the parts have joined"
        return self._namespaces

    @property
    def _faulty(self) -> FaultyEntities:
        assert self._entities is not None, "the parts have joined"
        return self._entities

    async def drop(self, namespace: str) -> None:
        """Drop a namespace that was made; nothing goes wrong there any more, so that it ends."""
        self.faults.clear(self.namespaces.get(namespace).name)
        await self.namespaces.drop(namespace)

    async def add_fault(self, namespace: str, fault: Fault) -> Fault:
        """Let something go wrong: when its turn comes, or at once."""
        if fault.operation != NOW:
            return self.faults.add(namespace, fault)
        fault.namespace = namespace
        for entity in self._faulty.of(namespace):
            if fault.is_at(namespace, entity.path):
                fault.struck += entity.end_links(fault)
        return fault

    async def remove_fault(self, number: int) -> bool:
        """Let one happen no more; answers whether it was there."""
        return self.faults.remove(number)

    async def lose_lock(self, namespace: str, path: str, lock_token: UUID) -> None:
        """End one lock; one that is lost already stays so."""
        entity = self._faulty.find(namespace, path)
        if entity is None:
            raise FaultError(f"There is no entity '{path}' in the namespace '{namespace}'.")
        entity.lose_lock(token_of(lock_token))
        await _settled()

    async def advance(
        self, duration_ms: int, *, tokens: bool = False, connections: bool = False
    ) -> Instant:
        """Let time pass at once, from deadline to deadline, so that what follows from one is there
        when the next one comes; answers the instant that it is then.

        Tokens end by the clock on the wall, and silent connections by the loop's: they go along
        only when that is asked for. Nobody speaks while time passes at once, so that all
        connections end whose silence would have been too long.
        """
        if duration_ms < 0:
            raise ValueError("A clock does not run backwards.")
        left_ms = duration_ms
        step_ms = max(1, duration_ms // _STEPS_MAX)
        while left_ms > 0:
            next_at = self.timers.next_at
            until_next_ms = left_ms if next_at is None else next_at - self.clock.now()
            moved_ms = min(left_ms, max(step_ms, until_next_ms))
            self.clock.advance(moved_ms)
            if tokens:
                self.clock.advance_wall(moved_ms)
            left_ms -= moved_ms
            self.timers.look()
            await _settled()
        assert self._amqp is not None, "the parts have joined"
        self._amqp.look(duration_ms if connections and duration_ms >= _SILENT_MS_MAX else 0)
        await _settled(_TURNS * _STEPS_LAST)
        return self.clock.now()


async def _settled(turns: int = _TURNS) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
