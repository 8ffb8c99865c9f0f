"""The broker: which entities there are, and who owns their partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

from peeklock.auth.namespaces import Namespaces
from peeklock.auth.rights import AuthorizationRule
from peeklock.broker.changes import (
    EITHER,
    KNOWN,
    EntityError,
    check_expected,
    check_problems,
    check_queue_change,
    check_topic_change,
    taken,
)
from peeklock.broker.cluster_view import ClusterView
from peeklock.broker.descriptions import (
    Placement,
    read_queue,
    read_subscription,
    read_topic,
    write_entity,
)
from peeklock.broker.entities import Entity, Queue, Subscription, Topic, changed, gone
from peeklock.broker.entity_index import EntityIndex, Usage
from peeklock.broker.entity_journal import EntityJournal
from peeklock.broker.forwarding.destinations import (
    Forwarding,
    check_destinations,
    missing_destination,
)
from peeklock.broker.partition_factory import PartitionFactory, StoresByName
from peeklock.broker.subscriptions import Subscriptions
from peeklock.broker.timers import Timers
from peeklock.broker.upkeep import EntityUpkeep
from peeklock.broker.worker.memory_mark import MemoryMark
from peeklock.clock import Clock
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.definition import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.message import BodyBudget
from peeklock.entity.refusals import (
    QUOTA_EXCEEDED,
    Refusal,
)
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.entity.topics.wording import Wording
from peeklock.store.store import Catalog, Corrupt, StoreError

# Bodies of ready messages that rest in memory, over all partitions: what a fast receiver takes in
# a fraction of a second. Older bodies are read from the store when they are delivered.
BODY_BUDGET: Final = 32 << 20

# What was deleted and may still lie in a store.
_DROPPED: Final = "dropped"

_log: Final = logging.getLogger("peeklock.broker")


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceLimits:
    """How much a namespace may hold; settable (R-P10, R-F7)."""

    entities_max: int = 10_000
    partitioned_max: int = 100
    subscriptions_max: int = 2_000


@final
class Broker:
    """Finds entities, creates, changes and removes them, and looks after their partitions."""

    def __init__(
        self,
        namespaces: Namespaces,
        stores: StoresByName,
        catalog: Catalog,
        clock: Clock,
        timers: Timers,
        random_source: Callable[[], int],
        wording: Wording,
        limits: NamespaceLimits | None = None,
        body_budget: int = BODY_BUDGET,
        memory: MemoryMark | None = None,
        cluster: ClusterView | None = None,
    ) -> None:
        self.namespaces = namespaces
        # The one that is meant where none is named.
        self.namespace = namespaces.first.name
        self._catalog = catalog
        self._clock = clock
        self._wording = wording
        self._limits = limits or NamespaceLimits()
        budget = BodyBudget(body_budget)
        mark = memory or MemoryMark()
        self._partition_factory = PartitionFactory(
            stores,
            clock,
            timers,
            budget,
            random_source,
            wording,
            self.find,
            mark,
            None if cluster is None else cluster.find_door,
        )
        self._cluster = cluster
        self._entity_index = EntityIndex()
        # Descriptions change one after the other: each change looks at what the last one left.
        self._changing: AbstractAsyncContextManager[Any] = (
            asyncio.Lock() if cluster is None else cluster.changing
        )
        self._subscribing = Subscriptions(
            catalog, clock, self._changing, self._limits.subscriptions_max
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._upkeep = EntityUpkeep(self, clock, timers, cluster, self._begin)
        self._closing = False

    # Starting and ending.

    async def start(self) -> None:
        """Learn from the catalog which entities there are; partitions open when they are used."""
        subscriptions: list[tuple[str, str]] = []
        for namespace, kind, path, text in await self._catalog.load():
            try:
                if kind == QUEUE:
                    self._know_queue(namespace, *read_queue(text))
                elif kind == TOPIC:
                    self._know_topic(namespace, *read_topic(text))
                elif kind == SUBSCRIPTION:
                    subscriptions.append((namespace, text))  # their topics may come later
                elif kind == _DROPPED:
                    await self._drop(namespace, path, text.split())
            except (ValueError, KeyError, TypeError) as error:
                raise Corrupt(f"the description of {path} cannot be read: {error!r}") from error
        for namespace, text in subscriptions:
            try:
                definition, rules, lane, created_at, updated_at = read_subscription(text)
            except (ValueError, KeyError, TypeError, RuleError) as error:
                raise Corrupt(f"a subscription cannot be read: {error!r}") from error
            topic = self.find(namespace, definition.topic)
            if isinstance(topic, Topic):
                self._subscribing.know(topic, definition, rules, lane, created_at, updated_at)
        for entity in self._entity_index.all():
            if isinstance(entity, Topic):
                entity.partitions.configure(entity.blueprint())
        self._upkeep.begin()

    def awaken(self) -> None:
        """Open the partitions that hold something, one after the other: messages that are on their
        way elsewhere, and lives that end, wait for nobody."""
        self._begin(self._awaken(self._entity_index.all()))

    async def _awaken(self, entities: Sequence[Queue | Topic]) -> None:
        for entity in entities:
            if self._closing:
                return
            await entity.partitions.awaken()

    async def close(self) -> None:
        """Let every partition finish what it was asked, then close the stores."""
        self._closing = True
        self._upkeep.end()
        await self._subscribing.close()
        if self._tasks:
            await asyncio.gather(*self._tasks)
        # Forwarders tell other entities what to forget, so all of these must still live.
        for entity in self._entity_index.all():
            entity.partitions.stop_forwarding()
        await asyncio.gather(*(entity.partitions.close() for entity in self._entity_index.all()))
        await self._partition_factory.close()
        await self._catalog.close()

    # Finding.

    def find(self, namespace: str, path: str) -> Entity | None:
        """The entity with this name, compared without case; topic/Subscriptions/name is one too."""
        key = path.lower()
        entity = self._entity_index.get(namespace, key)
        if entity is not None:
            return entity
        topic_path, found, name = key.rpartition("/subscriptions/")
        topic = self._entity_index.get(namespace, topic_path) if found else None
        return topic.subscriptions.get(name) if isinstance(topic, Topic) else None

    def owner(self, namespace: str, path: str) -> Queue | Topic | None:
        """The queue or topic with this name, which has partitions."""
        return self._entity_index.get(namespace, path)

    def journal(self, namespace: str, path: str) -> EntityJournal | None:
        """The journal of the queue or topic with this name."""
        entity = self._entity_index.get(namespace, path.lower())
        return None if entity is None else EntityJournal(entity)

    def entities(self, namespace: str | None = None) -> list[Queue | Topic]:
        """All queues and topics, of one namespace or of all, by name."""
        return list(self._entity_index.by_name(namespace))

    def missing_destination(self, definition: Forwarding, namespace: str | None = None) -> str:
        """A destination of this description that is not there; the empty text where all are.

        An entity may forward to itself: the hop limit ends that.
        """
        owner = self.namespace if namespace is None else namespace
        return missing_destination(definition, partial(self.find, owner))

    def store_switched(self, name: str, is_online: bool) -> None:
        """A store went away or came back while running: its partitions are told."""
        for entity in self._entity_index.all():
            for worker, store in zip(entity.partitions.workers, entity.place.stores, strict=True):
                if store == name:
                    if is_online:
                        worker.store_back()
                    else:
                        worker.store_lost()
        if is_online and not self._closing:
            self._begin(self._returned(name))

    async def _returned(self, name: str) -> None:
        """Do what waits in a store for nobody, and what could not be done while it was away."""
        await self._awaken(
            [entity for entity in self._entity_index.all() if name in entity.place.stores]
        )
        try:
            for namespace, kind, path, text in await self._catalog.load():
                if kind == _DROPPED and name in text.split():
                    await self._drop(namespace, path, text.split())
        except StoreError as error:
            _log.error("catalog-failed store=%s error=%r", name, str(error))

    # Creating and changing.

    async def put_queue(
        self,
        definition: QueueDefinition,
        keys: Sequence[AuthorizationRule] = (),
        namespace: str | None = None,
        expect: str = EITHER,
    ) -> Queue:
        """Create a queue, or change the one that has this name; durable when it returns."""
        made = await self.put_queues([(definition, keys)], namespace, expect)
        return made[0]

    async def put_queues(
        self,
        wishes: Sequence[tuple[QueueDefinition, Sequence[AuthorizationRule]]],
        namespace: str | None = None,
        expect: str = EITHER,
    ) -> list[Queue]:
        """Create or change many of different names, all or none; durable when it returns."""
        owner = self.namespace if namespace is None else namespace
        async with self._changing:
            usage = self._entity_index.usage(owner)
            places = [self._queue_place(owner, usage, *wish, expect) for wish in wishes]
            now = self._clock.now()
            entries = [
                (owner, QUEUE, definition.path.lower(), write_entity(definition, keys, place, now))
                for (definition, keys), place in zip(wishes, places, strict=True)
                if place is not None
            ]
            if entries:
                await self._catalog.save_all(entries)
            made: list[Queue] = []
            for (definition, keys), place in zip(wishes, places, strict=True):
                if place is None:
                    known = self.find(owner, definition.path)
                    assert isinstance(known, Queue)
                    made.append(known)
                    continue
                _log.info("entity-saved kind=queue namespace=%s path=%s", owner, definition.path)
                made.append(self._know_queue(owner, definition, keys, place, now))
            return made

    def _queue_place(
        self,
        owner: str,
        usage: Usage,
        definition: QueueDefinition,
        keys: Sequence[AuthorizationRule],
        expect: str,
    ) -> Placement | None:
        """Tell where a queue is or may be put; None where nothing is to be written."""
        check_problems(definition.problems())
        known = self.find(owner, definition.path)
        if known is not None and not isinstance(known, Queue):
            raise taken(known.path, known.kind)
        check_expected(expect, definition.path, is_known=known is not None)
        if expect != EITHER:
            check_destinations(definition, partial(self.find, owner))
        if known is None:
            return self._place(usage, definition.partitions)
        check_queue_change(known.definition, definition)
        return None if _is_as_wanted(known, definition, keys, expect) else known.place

    async def put_topic(
        self,
        definition: TopicDefinition,
        keys: Sequence[AuthorizationRule] = (),
        namespace: str | None = None,
        expect: str = EITHER,
    ) -> Topic:
        """Create a topic, or change the one that has this name; durable when it returns."""
        check_problems(definition.problems())
        owner = self.namespace if namespace is None else namespace
        async with self._changing:
            known = self.find(owner, definition.path)
            if known is not None and not isinstance(known, Topic):
                raise taken(known.path, known.kind)
            check_expected(expect, definition.path, is_known=known is not None)
            if known is None:
                place = self._place(self._entity_index.usage(owner), definition.partitions)
            else:
                check_topic_change(known.definition, definition)
                place = known.place
                if _is_as_wanted(known, definition, keys, expect):
                    return known
            now = self._clock.now()
            text = write_entity(definition, keys, place, now)
            await self._catalog.save(owner, TOPIC, definition.path.lower(), text)
            _log.info("entity-saved kind=topic namespace=%s path=%s", owner, definition.path)
            return self._know_topic(owner, definition, keys, place, now)

    async def put_subscription(
        self,
        definition: SubscriptionDefinition,
        rules: Sequence[Rule] | None = None,
        namespace: str | None = None,
        expect: str = EITHER,
    ) -> Subscription:
        """Create a subscription, or change the one that has this name.

        Without rules a new one takes everything and a known one keeps what it has.
        """
        made = await self.put_subscriptions([(definition, rules)], namespace, expect)
        return made[0]

    async def put_subscriptions(
        self,
        wishes: Sequence[tuple[SubscriptionDefinition, Sequence[Rule] | None]],
        namespace: str | None = None,
        expect: str = EITHER,
    ) -> list[Subscription]:
        """Create or change many at once; durable when it returns."""
        owner = self.namespace if namespace is None else namespace
        find = partial(self.find, owner)
        async with self._changing:
            if expect != EITHER:
                for definition, _ in wishes:
                    check_destinations(definition, find)
            return await self._subscribing.put(wishes, find, expect)

    async def put_rule(
        self, path: str, rule: Rule, namespace: str | None = None, expect: str = EITHER
    ) -> Rule:
        """Add a rule to the subscription at a path, or change it; durable when it returns."""
        async with self._changing:
            return await self._subscribing.put_rule(
                self._subscription(path, namespace), rule, expect
            )

    async def remove_rule(self, path: str, name: str, namespace: str | None = None) -> None:
        """Remove a rule from the subscription at a path; durable when it returns."""
        async with self._changing:
            await self._subscribing.remove_rule(self._subscription(path, namespace), name)

    def _subscription(self, path: str, namespace: str | None) -> Subscription:
        known = self.find(self.namespace if namespace is None else namespace, path)
        is_one = isinstance(known, Subscription)
        check_expected(KNOWN, path, is_known=is_one)
        assert isinstance(known, Subscription)
        return known

    async def remove(self, path: str, namespace: str | None = None) -> bool:
        """Delete an entity with all its messages; answers whether there was one."""
        owner = self.namespace if namespace is None else namespace
        async with self._changing:
            known = self.find(owner, path)
            if known is None:
                return False
            if isinstance(known, Subscription):
                await self._remove_subscription(known)
            else:
                await self._remove_entity(owner, known)
            _log.info("entity-removed kind=%s namespace=%s path=%s", known.kind, owner, known.path)
            return True

    # What is known.

    def _know_queue(
        self,
        namespace: str,
        definition: QueueDefinition,
        keys: Sequence[AuthorizationRule],
        place: Placement,
        updated_at: int,
    ) -> Queue:
        self.namespaces.get(namespace).keys.set_entity_rules(definition.path, keys)
        known = self.find(namespace, definition.path)
        if isinstance(known, Queue):
            known.keys = tuple(keys)
            known.updated_at = updated_at
            if known.definition != definition:
                known.redefine(definition)
                known.partitions.configure(queue_blueprint(definition))
                known.links.dismiss(changed(known))
            return known
        partitions = self._partition_factory.build(
            namespace, definition.path, place, queue_blueprint(definition)
        )
        queue = Queue(namespace, definition, keys, place, partitions, self._clock)
        queue.updated_at = updated_at
        self._put(queue)
        return queue

    def _know_topic(
        self,
        namespace: str,
        definition: TopicDefinition,
        keys: Sequence[AuthorizationRule],
        place: Placement,
        updated_at: int,
    ) -> Topic:
        self.namespaces.get(namespace).keys.set_entity_rules(definition.path, keys)
        known = self.find(namespace, definition.path)
        if isinstance(known, Topic):
            known.keys = tuple(keys)
            known.updated_at = updated_at
            if known.definition != definition:
                known.redefine(definition)
                known.partitions.configure(known.blueprint())
                known.links.dismiss(changed(known))
            return known
        topic = Topic(namespace, definition, keys, place, self._wording, self._clock)
        topic.updated_at = updated_at
        topic.set_partitions(
            self._partition_factory.build(namespace, definition.path, place, topic.blueprint())
        )
        self._put(topic)
        return topic

    def _put(self, entity: Queue | Topic) -> None:
        self._entity_index.put(entity)
        if self._cluster is not None:
            self._cluster.known(entity)

    def _place(self, usage: Usage, partitions: int) -> Placement:
        """Find room for one more entity, and take it."""
        whose = f"The namespace '{usage.namespace}' has"
        if usage.count >= self._limits.entities_max:
            text = f"{whose} {usage.count} entities, as many as it may have."
            raise EntityError(Refusal(QUOTA_EXCEEDED, text))
        if partitions > 1 and usage.partitioned >= self._limits.partitioned_max:
            text = f"{whose} {usage.partitioned} partitioned entities, the limit."
            raise EntityError(Refusal(QUOTA_EXCEEDED, text))
        place = self._partition_factory.place(partitions, usage.used)
        usage.take(place.stores)
        return place

    # Removing.

    async def _remove_subscription(self, subscription: Subscription) -> None:
        topic = subscription.topic
        path = subscription.definition.path.lower()
        await self._catalog.remove(topic.namespace, SUBSCRIPTION, path)
        self._forget_subscription(subscription)

    def _forget_subscription(self, subscription: Subscription) -> None:
        topic = subscription.topic
        del topic.subscriptions[subscription.definition.name.lower()]
        topic.rules.remove(subscription.lane)
        topic.partitions.configure(topic.blueprint())
        subscription.links.dismiss(gone(subscription))

    # What other nodes have changed.

    async def apply(
        self,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        """Another node has changed the catalog in this way; done when it holds here, too."""
        for namespace, kind, path in removed:
            known = self.find(namespace, path)
            if kind == SUBSCRIPTION and isinstance(known, Subscription):
                self._forget_subscription(known)
            elif kind in (QUEUE, TOPIC) and isinstance(known, (Queue, Topic)):
                await self._forget_entity(known)
        topics: dict[str, Topic] = {}
        for namespace, kind, _, text in entries:
            if kind == QUEUE:
                self._know_queue(namespace, *read_queue(text))
            elif kind == TOPIC:
                self._know_topic(namespace, *read_topic(text))
            elif kind == SUBSCRIPTION:
                definition, rules, lane, created_at, updated_at = read_subscription(text)
                topic = self.find(namespace, definition.topic)
                assert isinstance(topic, Topic), "a topic is told before its subscriptions"
                self._subscribing.know(topic, definition, rules, lane, created_at, updated_at)
                topic.rules.put(lane, RuleSet(rules))
                topics[topic.path] = topic
        for topic in topics.values():
            topic.partitions.configure(topic.blueprint())

    def is_idle(self, namespace: str, path: str) -> bool:
        """Whether an entity was not used here for as long as its owner said; a node asks this on
        behalf of all."""
        entity = self.find(namespace, path)
        return entity is None or entity.is_idle()

    async def _remove_entity(self, namespace: str, entity: Queue | Topic) -> None:
        path = entity.path.lower()
        storage_path = entity.place.storage_path(entity.path)
        stores = entity.place.stores
        subscriptions = list(entity.subscriptions.values()) if isinstance(entity, Topic) else []
        removed = [(namespace, entity.kind, path)]
        removed += [(namespace, SUBSCRIPTION, each.path.lower()) for each in subscriptions]
        # In one go: an entity that lives on must not lose its messages at the next start, and a
        # subscription must not come back with another topic of this name.
        dropped = (namespace, _DROPPED, storage_path, " ".join(stores))
        await self._catalog.replace(removed, [dropped])
        await self._forget_entity(entity)
        await self._drop(namespace, storage_path, stores)

    async def _forget_entity(self, entity: Queue | Topic) -> None:
        """An entity is gone from the catalog: its links go, and its partitions stop."""
        if isinstance(entity, Topic):
            for subscription in list(entity.subscriptions.values()):
                del entity.subscriptions[subscription.definition.name.lower()]
                subscription.links.dismiss(gone(subscription))
        self._entity_index.remove(entity)
        self.namespaces.get(entity.namespace).keys.set_entity_rules(entity.path, ())
        entity.links.dismiss(gone(entity))
        entity.partitions.stop_forwarding(is_removed=True)
        await entity.partitions.close()

    async def _drop(self, namespace: str, storage_path: str, stores: Sequence[str]) -> None:
        """Remove what a deleted entity left; a store that is out of reach is asked again later."""
        if await self._partition_factory.drop(namespace, storage_path, stores):
            await self._catalog.remove(namespace, _DROPPED, storage_path)

    # Chores.

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_as_wanted(
    known: Queue | Topic,
    definition: QueueDefinition | TopicDefinition,
    keys: Sequence[AuthorizationRule],
    expect: str,
) -> bool:
    """Whether nothing is to be written: what a file says again at each start changes nothing."""
    return expect == EITHER and known.definition == definition and known.keys == tuple(keys)
