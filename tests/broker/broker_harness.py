"""A broker on a memory store, with a clock that tests move and an origin that remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.rights import development_rule
from peeklock.broker.broker import Broker, NamespaceLimits
from peeklock.broker.worker.memory_mark import MemoryMark
from peeklock.clock import ManualClock
from peeklock.entity.deliveries import Delivery, LockToken
from peeklock.entity.message import Message, Traits
from peeklock.entity.replies import Delivered, Found, Reply, RulesFound
from peeklock.entity.rules.action import Changes
from peeklock.entity.rules.values import PropertyBag, PropertyReader
from peeklock.entity.topics.wording import Wording
from peeklock.store.memory import MemoryCatalog, MemoryStore
from peeklock.store.store import Catalog, PartitionId, Store
from tests.broker.manual_timers import ManualTimers
from tests.broker.seeded_random import SeededRandom


class Recorder:
    """An origin that keeps its replies and counts how often it was flushed."""

    def __init__(self) -> None:
        self.replies: list[Reply | RulesFound] = []
        self.flushes = 0

    def replied(self, reply: Reply | RulesFound) -> None:
        self.replies.append(reply)

    def flush(self) -> None:
        self.flushes += 1

    def has_replies(self) -> bool:
        return bool(self.replies)

    def take(self) -> list[Reply | RulesFound]:
        replies = self.replies
        self.replies = []
        return replies

    def deliveries(self) -> list[Delivery]:
        return [
            delivery
            for reply in self.replies
            if isinstance(reply, (Delivered, Found))
            for delivery in reply.deliveries
        ]


class GivenStores:
    """The stores of a test, by turns."""

    def __init__(self, stores: dict[str, Store]) -> None:
        self.stores = stores

    def get(self, name: str) -> Store:
        return self.stores[name]

    async def drop(self, name: str, partition: PartitionId) -> None:
        await self.stores[name].drop(partition)

    def place(self, count: int, used: dict[str, int]) -> list[str]:
        names = list(self.stores)
        return [names[index % len(names)] for index in range(count)]

    async def close(self) -> None:
        for store in self.stores.values():
            await store.close()


class NoWording:
    """For tests in which nobody looks into a message."""

    def reader(self, message: Message, now: int) -> PropertyReader:
        return PropertyBag({}, {}, random_source=int)

    def changed(self, message: Message, changes: Changes) -> Message:
        raise AssertionError("no rule has an action here")

    def lost(self) -> bytes:
        return b"lost"

    def keyed(self, message: Message) -> Message:
        return message

    def forwarded(self, delivery: Delivery, source: str) -> Message:
        raise AssertionError("nothing is forwarded here")


class BrokerHarness:
    """A broker whose time stands still until a test moves it."""

    def __init__(
        self,
        store: Store | None = None,
        catalog: Catalog | None = None,
        *,
        stores: dict[str, Store] | None = None,
        wording: Wording | None = None,
        limits: NamespaceLimits | None = None,
        namespaces: Namespaces | None = None,
        memory: MemoryMark | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.store = store or MemoryStore()
        self.catalog = catalog or MemoryCatalog()
        self.broker = Broker(
            namespaces or Namespaces([Namespace("ns", [development_rule()])]),
            GivenStores(stores or {"store": self.store}),
            self.catalog,
            self.clock,
            self.timers,
            SeededRandom(7).number,
            wording or NoWording(),
            limits,
            memory=memory,
        )

    async def advance(self, duration_ms: int) -> None:
        self.timers.advance(duration_ms)
        await settle_down()


async def settle_down() -> None:
    """Let every coroutine run until only time or a test can go on."""
    for _ in range(20):
        await _Turn()


async def until(condition: Callable[[], object]) -> None:
    """Let coroutines and the loop's timers run until something has come about."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 10
    while not condition():
        assert loop.time() < deadline, "it does not come about"
        await settle_down()


class _Turn:
    """One turn of the event loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def message(text: str, **facts: Any) -> Message:
    return Message(b"", text.encode(), Traits(**facts) if facts else None)


def token(delivery: Delivery) -> LockToken:
    return LockToken(delivery.sequence, delivery.number)


def contents(deliveries: list[Delivery]) -> list[str]:
    return [
        delivery.message.content.decode() for delivery in deliveries if delivery.message is not None
    ]
