"""A broker in memory with every protocol, which remembers whether anything was changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from peeklock.auth.rights import DEVELOPMENT_KEY, ROOT_RULE_NAME, development_rule
from peeklock.auth.sas import generate_sas
from peeklock.broker.counting import count
from peeklock.broker.entities import Entity, Subscription, Topic
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.gateway.http.admin.node import AdminNode
from peeklock.gateway.http.answer import Answer
from peeklock.gateway.http.health import Health
from peeklock.gateway.http.hosts import make_namespaces
from peeklock.gateway.http.journal import JournalNode
from peeklock.gateway.http.messages.node import MessagesNode
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.router import ENTITIES, JOURNALS, MESSAGES, Node, Router
from peeklock.gateway.http.stores import NODE, StoresNode
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.store.memory import MemoryStore, MemoryStores
from peeklock.store.stores import Stores, store_names
from tests.broker.broker_harness import settle_down
from tests.gateway.amqp.amqp_harness import AmqpHarness
from tests.gateway.issuer import believing
from tests.gateway.matrix.credentials import (
    ENTITY,
    HOST,
    HOUR_MS,
    LOCAL,
    NAMESPACE,
    OTHER,
    OTHER_PATH,
    rules_at,
)


class WatchedBroker:
    """The broker, its protocols, and the entities that the matrix is about."""

    def __init__(self) -> None:
        self.commits = 0
        store = MemoryStore()
        store.before_commit = self._committed
        rules = [development_rule(), *rules_at(NAMESPACE, "")]
        namespaces, _ = make_namespaces(
            {"ns": rules}, lambda space, path: self.broker.find(space, path)
        )
        self.bus = AmqpHarness(store, namespaces=namespaces)
        self.broker = self.bus.bench.broker
        self.clock = self.bus.clock
        self.stores = Stores.of(MemoryStores(), store_names(2))
        namespace_context = self.bus.namespace_context
        namespace_context.keys.believe(believing(LOCAL))
        guard = TokenGuard(namespace_context.keys, self.clock, namespace_context.refusal_writer)
        self.messages = MessagesNode(
            self.broker,
            guard,
            namespace_context.refusal_writer,
            self.clock,
            namespace_context.random_source,
            "ns",
        )
        nodes: dict[str, Node] = {
            NODE: StoresNode(self.stores, guard),
            MESSAGES: self.messages,
            JOURNALS: JournalNode(self.broker, guard, "ns"),
            ENTITIES: AdminNode(
                self.broker,
                namespace_context.keys,
                namespace_context.refusal_writer,
                self.clock,
                namespace_context.random_source,
                "ns",
            ),
        }
        health = Health()
        health.is_serving = True
        self.router = Router(health, nodes)

    def _committed(self) -> None:
        self.commits += 1

    async def open(self) -> None:
        await self.broker.start()
        await self.queue(OTHER_PATH, place=OTHER)

    # --- entities, each with a rule for every combination of rights

    async def queue(self, path: str, *, place: str = ENTITY, **options: Any) -> None:
        definition = QueueDefinition(path, batched_store_access=False, **options)
        await self.broker.put_queue(definition, rules_at(place, path))

    async def topic(self, path: str) -> None:
        """A topic with the subscription `s`."""
        definition = TopicDefinition(path, batched_store_access=False)
        await self.broker.put_topic(definition, rules_at(ENTITY, path))
        await self.subscription(path)

    async def subscription(self, path: str, name: str = "s") -> None:
        definition = SubscriptionDefinition(path, name, batched_store_access=False)
        await self.broker.put_subscription(definition)

    def entities(self) -> list[Entity]:
        found: list[Entity] = []
        for home in self.broker.entities("ns"):
            found.append(home)
            if isinstance(home, Topic):
                found += home.subscriptions.values()
        return found

    # --- whether anything was changed

    async def state(self) -> dict[str, Any]:
        """All that a refusal must leave as it is."""
        await settle_down()
        state: dict[str, Any] = {
            "commits": self.commits,
            "catalog": await self.bus.bench.catalog.load(),
            "stores": [(each.name, each.is_online) for each in self.stores.states()],
        }
        for entity in self.entities():
            tally = await count(entity)
            state[entity.path] = [getattr(tally, name) for name in tally.__slots__]
            if isinstance(entity, Subscription):
                state[f"{entity.path} rules"] = [rule.name for rule in entity.rules]
        return state

    # --- HTTP

    def root(self) -> str:
        """A token that is good for everything."""
        until = self.clock.now() + HOUR_MS
        return generate_sas(f"https://{HOST}/", ROOT_RULE_NAME, DEVELOPMENT_KEY, until)

    async def ask(
        self,
        method: str,
        target: str,
        token: str | None,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Ask over HTTP, without a socket."""
        given = {"host": HOST, **(headers or {})}
        if token is not None:
            given["authorization"] = token
        named = [(name.encode(), value.encode()) for name, value in given.items()]
        request = HttpRequest(method, target, given, body, "peer:1", named=named)
        answer = self.router.route(request)
        return answer if isinstance(answer, Answer) else await answer


def inhabit(scenario: Callable[[WatchedBroker], Awaitable[None]]) -> None:
    """Run a test on a broker of its own."""

    async def whole() -> None:
        broker = WatchedBroker()
        await broker.open()
        try:
            await asyncio.wait_for(scenario(broker), 60)
        finally:
            await broker.broker.close()

    asyncio.run(whole())
