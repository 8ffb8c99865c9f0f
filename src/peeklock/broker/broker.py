"""The broker: which entities there are, and who owns their partitions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias, final

from peeklock.auth.keyring import KeyRing
from peeklock.auth.rights import AuthorizationRule
from peeklock.broker.alarm import Alarm, Alarms
from peeklock.broker.changes import (
    EntityError,
    check_problems,
    check_queue_change,
    check_subscription_change,
    check_topic_change,
)
from peeklock.broker.descriptions import (
    Placement,
    read_queue,
    read_subscription,
    read_topic,
    write_queue,
    write_subscription,
    write_topic,
)
from peeklock.broker.entities import Queue, Subscription, Topic
from peeklock.broker.housing import Housing, Stores
from peeklock.broker.rules import default_rules, made, with_change
from peeklock.clock import Clock
from peeklock.entity.blueprint import queue_blueprint
from peeklock.entity.definition import (
    FOREVER_MS,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.message import BodyBudget
from peeklock.entity.refusals import (
    DETACHED,
    ENTITY_EXISTS,
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    QUOTA_EXCEEDED,
    UNAVAILABLE,
    Refusal,
)
from peeklock.entity.replies import Numbered, Refused
from peeklock.entity.rule_commands import ListRules, RuleCommand, RulesFound
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.entity.wording import Wording
from peeklock.store.store import Catalog, Corrupt, StoreError

Entity: TypeAlias = Queue | Topic | Subscription
Forwarding: TypeAlias = QueueDefinition | SubscriptionDefinition

# How often each open partition looks after its journal: small beside the retention of an hour,
# large beside the cost of a look.
TRIM_INTERVAL_MS: Final = 1_000

# Bodies of ready messages that rest in memory, over all partitions: what a fast receiver takes in
# a fraction of a second. Older bodies are read from the store when they are delivered.
BODY_BUDGET: Final = 32 << 20

# What was deleted and may still lie in a store.
_DROPPED: Final = "dropped"

_log: Final = logging.getLogger("peeklock.broker")


@final
class Limits:
    """How much a namespace may hold; settable (R-P10, R-F7)."""

    __slots__ = ("entities_max", "partitioned_max", "subscriptions_max")

    def __init__(
        self,
        *,
        entities_max: int = 10_000,
        partitioned_max: int = 100,
        subscriptions_max: int = 2_000,
    ) -> None:
        self.entities_max = entities_max
        self.partitioned_max = partitioned_max
        self.subscriptions_max = subscriptions_max


@final
class Broker:
    """Finds entities, creates, changes and removes them, and looks after their partitions."""

    __slots__ = (
        "_alarm",
        "_alarms",
        "_catalog",
        "_changing",
        "_clock",
        "_closing",
        "_homes",
        "_housing",
        "_limits",
        "_tasks",
        "_wording",
        "keyring",
        "namespace",
    )

    def __init__(
        self,
        namespace: str,
        keyring: KeyRing,
        stores: Stores,
        catalog: Catalog,
        clock: Clock,
        alarms: Alarms,
        chance: Callable[[], int],
        wording: Wording,
        limits: Limits | None = None,
        body_budget: int = BODY_BUDGET,
    ) -> None:
        self.namespace = namespace
        self.keyring = keyring
        self._catalog = catalog
        self._clock = clock
        self._alarms = alarms
        self._wording = wording
        self._limits = limits or Limits()
        budget = BodyBudget(body_budget)
        self._housing = Housing(stores, clock, alarms, budget, chance, wording, self.find)
        self._homes: dict[tuple[str, str], Queue | Topic] = {}
        # Descriptions change one after the other: each change looks at what the last one left.
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: Alarm | None = None
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
                definition, rules, lane, created_at = read_subscription(text)
            except (ValueError, KeyError, TypeError, RuleError) as error:
                raise Corrupt(f"a subscription cannot be read: {error!r}") from error
            topic = self.find(namespace, definition.topic)
            if isinstance(topic, Topic):
                self._know_subscription(topic, definition, rules, lane, created_at)
        for home in self._homes.values():
            if isinstance(home, Topic):
                home.partitions.configure(home.blueprint())
        self._trim_later()

    async def awaken(self) -> None:
        """Open all partitions, one after the other: messages that are on their way elsewhere wait
        for nobody."""
        for home in list(self._homes.values()):
            home.partitions.awaken()
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Let every partition finish what it was asked, then close the stores."""
        self._closing = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks)
        await asyncio.gather(*(home.partitions.close() for home in self._homes.values()))
        await self._housing.close()
        await self._catalog.close()

    # Finding.

    def find(self, namespace: str, path: str) -> Entity | None:
        """The entity with this name, compared without case; topic/Subscriptions/name is one too."""
        key = path.lower()
        home = self._homes.get((namespace.lower(), key))
        if home is not None:
            return home
        topic_path, found, name = key.rpartition("/subscriptions/")
        topic = self._homes.get((namespace.lower(), topic_path)) if found else None
        return topic.subscriptions.get(name) if isinstance(topic, Topic) else None

    def homes(self) -> list[Queue | Topic]:
        """All queues and topics, by name."""
        return [home for _, home in sorted(self._homes.items())]

    def missing_destination(self, definition: Forwarding, namespace: str | None = None) -> str:
        """A destination of this description that is not there; the empty text where all are.

        An entity may forward to itself: the hop limit ends that.
        """
        owner = self.namespace if namespace is None else namespace
        for path in (definition.forward_to, definition.forward_dead_letters_to):
            if path and path.lower() != definition.path.lower():
                target = self.find(owner, path)
                if target is None or isinstance(target, Subscription):
                    return path
        return ""

    def store_switched(self, name: str, is_online: bool) -> None:
        """A store went away or came back while running: its partitions are told."""
        for home in self._homes.values():
            for worker, store in zip(home.partitions.workers, home.place.stores, strict=True):
                if store == name:
                    if is_online:
                        worker.store_back()
                    else:
                        worker.store_lost()

    # Creating and changing.

    async def put_queue(
        self,
        definition: QueueDefinition,
        keys: Sequence[AuthorizationRule] = (),
        namespace: str | None = None,
    ) -> Queue:
        """Create a queue, or change the one that has this name; durable when it returns."""
        check_problems(definition.problems())
        owner = self.namespace if namespace is None else namespace
        async with self._changing:
            known = self.find(owner, definition.path)
            if known is not None and not isinstance(known, Queue):
                raise _taken(known)
            if known is None:
                place = self._place(owner, definition.partitions)
            else:
                check_queue_change(known.definition, definition)
                place = known.place
                if known.definition == definition and known.keys == tuple(keys):
                    return known
            text = write_queue(definition, keys, place)
            await self._catalog.save(owner, QUEUE, definition.path.lower(), text)
            _log.info("entity-saved kind=queue namespace=%s path=%s", owner, definition.path)
            return self._know_queue(owner, definition, keys, place)

    async def put_topic(
        self,
        definition: TopicDefinition,
        keys: Sequence[AuthorizationRule] = (),
        namespace: str | None = None,
    ) -> Topic:
        """Create a topic, or change the one that has this name; durable when it returns."""
        check_problems(definition.problems())
        owner = self.namespace if namespace is None else namespace
        async with self._changing:
            known = self.find(owner, definition.path)
            if known is not None and not isinstance(known, Topic):
                raise _taken(known)
            if known is None:
                place = self._place(owner, definition.partitions)
            else:
                check_topic_change(known.definition, definition)
                place = known.place
                if known.definition == definition and known.keys == tuple(keys):
                    return known
            text = write_topic(definition, keys, place)
            await self._catalog.save(owner, TOPIC, definition.path.lower(), text)
            _log.info("entity-saved kind=topic namespace=%s path=%s", owner, definition.path)
            return self._know_topic(owner, definition, keys, place)

    async def put_subscription(
        self,
        definition: SubscriptionDefinition,
        rules: Sequence[Rule] | None = None,
        namespace: str | None = None,
    ) -> Subscription:
        """Create a subscription, or change the one that has this name.

        Without rules a new one takes everything and a known one keeps what it has.
        """
        check_problems(definition.problems())
        owner = self.namespace if namespace is None else namespace
        async with self._changing:
            topic = self.find(owner, definition.topic)
            if not isinstance(topic, Topic):
                text = f"There is no topic '{definition.topic}' in the namespace '{owner}'."
                raise EntityError(Refusal(ENTITY_NOT_FOUND, text))
            known = topic.subscriptions.get(definition.name.lower())
            now = self._clock.now()
            if known is None:
                if len(topic.subscriptions) >= self._limits.subscriptions_max:
                    text = f"The topic has {len(topic.subscriptions)} subscriptions, the limit."
                    raise EntityError(Refusal(QUOTA_EXCEEDED, text))
                kept = made(default_rules() if rules is None else rules, now)
                lane, created_at = topic.free_lane(), now
            else:
                check_subscription_change(known.definition, definition)
                kept = known.rules if rules is None else made(rules, now, known.rules)
                lane, created_at = known.lane, known.created_at
                if known.definition == definition and known.rules == kept:
                    return known
            await self._save_subscription(topic, definition, kept, lane, created_at)
            subscription = self._know_subscription(topic, definition, kept, lane, created_at)
            topic.partitions.configure(topic.blueprint())
            return subscription

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
                await self._remove_home(owner, known)
            _log.info("entity-removed kind=%s path=%s", known.kind, known.path)
            return True

    # Rules.

    def _ask_rules(self, subscription: Subscription, command: RuleCommand) -> None:
        """Answer what a link asks about the rules of a subscription."""
        if isinstance(command, ListRules):
            rules = list(subscription.rules[command.skip : command.skip + command.top])
            command.origin.replied(RulesFound(command.origin, command.tag, rules))
            command.origin.flush()
            return
        self._begin(self._change_rules(subscription, command))

    async def _change_rules(self, subscription: Subscription, command: RuleCommand) -> None:
        origin = command.origin
        try:
            async with self._changing:
                rules = with_change(subscription.rules, command, self._clock.now())
                await self._save_subscription(
                    subscription.topic,
                    subscription.definition,
                    rules,
                    subscription.lane,
                    subscription.created_at,
                )
                subscription.rules = rules
        except EntityError as error:
            origin.replied(Refused(origin, [command.tag], error.refusal))
        except StoreError as error:
            _log.error("catalog-failed path=%s error=%r", subscription.path, str(error))
            refusal = Refusal(UNAVAILABLE, "The catalog is out of reach. Try again later.")
            origin.replied(Refused(origin, [command.tag], refusal))
        else:
            origin.replied(Numbered(origin, command.tag, []))
        origin.flush()

    async def _save_subscription(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: tuple[Rule, ...],
        lane: int,
        created_at: int,
    ) -> None:
        """Let the rules hold and write them down, or neither."""
        known = topic.subscriptions.get(definition.name.lower())
        try:
            topic.rules.put(lane, RuleSet(rules))
        except RuleError as error:
            raise EntityError(Refusal(INVALID_ARGUMENT, str(error))) from error
        text = write_subscription(definition, rules, lane, created_at)
        path = definition.path.lower()
        try:
            await self._catalog.save(topic.namespace, SUBSCRIPTION, path, text)
        except StoreError:
            if known is None:
                topic.rules.remove(lane)
            else:
                topic.rules.put(lane, RuleSet(known.rules))
            raise
        _log.info("entity-saved kind=subscription path=%s", definition.path)

    # What is known.

    def _know_queue(
        self,
        namespace: str,
        definition: QueueDefinition,
        keys: Sequence[AuthorizationRule],
        place: Placement,
    ) -> Queue:
        self.keyring.set_entity_rules(definition.path, keys)
        known = self.find(namespace, definition.path)
        if isinstance(known, Queue):
            known.keys = tuple(keys)
            if known.definition != definition:
                known.redefine(definition)
                known.partitions.configure(queue_blueprint(definition))
                known.guests.dismiss(_changed(known))
            return known
        partitions = self._housing.house(
            namespace, definition.path, place, queue_blueprint(definition)
        )
        queue = Queue(namespace, definition, keys, place, partitions, self._clock)
        self._homes[(namespace.lower(), definition.path.lower())] = queue
        return queue

    def _know_topic(
        self,
        namespace: str,
        definition: TopicDefinition,
        keys: Sequence[AuthorizationRule],
        place: Placement,
    ) -> Topic:
        self.keyring.set_entity_rules(definition.path, keys)
        known = self.find(namespace, definition.path)
        if isinstance(known, Topic):
            known.keys = tuple(keys)
            if known.definition != definition:
                known.redefine(definition)
                known.partitions.configure(known.blueprint())
                known.guests.dismiss(_changed(known))
            return known
        topic = Topic(namespace, definition, keys, place, self._wording, self._clock)
        topic.housed(self._housing.house(namespace, definition.path, place, topic.blueprint()))
        self._homes[(namespace.lower(), definition.path.lower())] = topic
        return topic

    def _know_subscription(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: Sequence[Rule],
        lane: int,
        created_at: int,
    ) -> Subscription:
        known = topic.subscriptions.get(definition.name.lower())
        if known is not None:
            known.rules = tuple(rules)
            if known.definition != definition:
                known.definition = definition
                known.guests.dismiss(_changed(known))
            return known
        topic.rules.put(lane, RuleSet(rules))
        topic.knows_lane(lane)
        subscription = Subscription(
            topic, definition, rules, lane, created_at, self._ask_rules, self._clock
        )
        topic.subscriptions[definition.name.lower()] = subscription
        return subscription

    def _place(self, namespace: str, partitions: int) -> Placement:
        """Find room for one more entity."""
        homes = [home for home in self._homes.values() if home.namespace == namespace]
        if len(homes) >= self._limits.entities_max:
            text = f"The namespace '{namespace}' has {len(homes)} entities, as many as it may have."
            raise EntityError(Refusal(QUOTA_EXCEEDED, text))
        partitioned = sum(home.definition.partitions > 1 for home in homes)
        if partitions > 1 and partitioned >= self._limits.partitioned_max:
            text = f"The namespace '{namespace}' has {partitioned} partitioned entities, the limit."
            raise EntityError(Refusal(QUOTA_EXCEEDED, text))
        used: dict[str, int] = {}
        for home in self._homes.values():
            for name in home.place.stores:
                used[name] = used.get(name, 0) + 1
        return self._housing.place(partitions, used)

    # Removing.

    async def _remove_subscription(self, subscription: Subscription) -> None:
        topic = subscription.topic
        path = subscription.definition.path.lower()
        await self._catalog.remove(topic.namespace, SUBSCRIPTION, path)
        del topic.subscriptions[subscription.definition.name.lower()]
        topic.rules.remove(subscription.lane)
        topic.partitions.configure(topic.blueprint())
        subscription.guests.dismiss(_gone(subscription))

    async def _remove_home(self, namespace: str, home: Queue | Topic) -> None:
        path = home.path.lower()
        # Written first: whatever happens then, the messages will not come back under a new entity.
        storage_path = home.place.storage_path(home.path)
        stores = home.place.stores
        await self._catalog.save(namespace, _DROPPED, storage_path, " ".join(stores))
        await self._catalog.remove(namespace, home.kind, path)
        if isinstance(home, Topic):
            for subscription in list(home.subscriptions.values()):
                below = subscription.definition.path.lower()
                await self._catalog.remove(namespace, SUBSCRIPTION, below)
                subscription.guests.dismiss(_gone(subscription))
        del self._homes[(namespace.lower(), path)]
        self.keyring.set_entity_rules(home.path, ())
        home.guests.dismiss(_gone(home))
        await home.partitions.close(is_removed=True)
        await self._drop(namespace, storage_path, stores)

    async def _drop(self, namespace: str, storage_path: str, stores: Sequence[str]) -> None:
        """Remove what a deleted entity left; a store that is out of reach is asked again later."""
        if await self._housing.drop(namespace, storage_path, stores):
            await self._catalog.remove(namespace, _DROPPED, storage_path)

    # Chores.

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _trim_later(self) -> None:
        self._alarm = self._alarms.set(self._clock.now() + TRIM_INTERVAL_MS, self._trim)

    def _trim(self) -> None:
        if self._closing:
            return
        for home in list(self._homes.values()):
            home.partitions.trim_soon()
            self._remove_idle(home)
        self._trim_later()

    def _remove_idle(self, home: Queue | Topic) -> None:
        """Delete what nobody has used for as long as its owner said (AutoDeleteOnIdle)."""
        if home.definition.auto_delete_ms != FOREVER_MS and home.is_idle():
            self._begin(self._remove_unless_used(home))
        elif isinstance(home, Topic):
            for subscription in list(home.subscriptions.values()):
                if subscription.definition.auto_delete_ms != FOREVER_MS and subscription.is_idle():
                    self._begin(self._remove_unless_used(subscription))

    async def _remove_unless_used(self, entity: Entity) -> None:
        if entity.is_idle() and self.find(entity.namespace, entity.path) is entity:
            _log.info("entity-idle kind=%s path=%s", entity.kind, entity.path)
            try:
                await self.remove(entity.path, entity.namespace)
            except StoreError as error:
                _log.error("catalog-failed path=%s error=%r", entity.path, str(error))


def _taken(known: Entity) -> EntityError:
    text = f"The name '{known.path}' is taken by a {known.kind}."
    return EntityError(Refusal(ENTITY_EXISTS, text))


def _changed(entity: Entity) -> Refusal:
    return Refusal(DETACHED, f"The description of '{entity.path}' was changed. Attach again.")


def _gone(entity: Entity) -> Refusal:
    return Refusal(ENTITY_NOT_FOUND, f"The messaging entity '{entity.path}' was deleted.")
