"""Entities of a broker: made, found, changed, removed, and kept over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peeklock.broker.broker import Broker, NamespaceLimits
from peeklock.broker.changes import EntityError
from peeklock.broker.entities import Queue, Subscription, Topic
from peeklock.entity.commands import PEEK_LOCK, Command, Grant, OpenReceiver, SendMany
from peeklock.entity.definition import (
    DISABLED,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.message import Message
from peeklock.entity.refusals import (
    DETACHED,
    ENTITY_EXISTS,
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    Refusal,
)
from peeklock.entity.replies import Numbered, Refused, RulesFound, SendsAccepted
from peeklock.entity.rules.action import Changes
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Rule
from peeklock.entity.rules.values import PropertyBag, PropertyReader
from peeklock.entity.topics.commands import AddRule, ListRules, RemoveRule
from peeklock.store.memory import MemoryCatalog, MemoryStore
from peeklock.store.store import StoreError, Unavailable
from tests.broker.broker_harness import (
    BrokerHarness,
    NoWording,
    Recorder,
    contents,
    message,
    settle_down,
)
from tests.store.failing import FailingStore


class LabelWording:
    """A message's text is its label, and nothing else can be read."""

    def __init__(self) -> None:
        self._none = NoWording()
        self.keyed = self._none.keyed
        self.forwarded = self._none.forwarded
        self.lost = self._none.lost

    def reader(self, message: Message, now: int) -> PropertyReader:
        return PropertyBag({}, {"Label": message.content.decode()}, random_source=int)

    def changed(self, message: Message, changes: Changes) -> Message:
        return Message(message.envelope, str(changes.system["Label"]).encode())


class Link:
    """A link that remembers why it had to go."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def dismiss(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)


class FullCatalog:
    """Keeps texts, and fails where some are to be replaced by others."""

    def __init__(self) -> None:
        catalog = MemoryCatalog()
        self.load = catalog.load
        self.save = catalog.save
        self.save_all = catalog.save_all
        self.remove = catalog.remove
        self.close = catalog.close

    async def replace(self, removed: Any, entries: Any) -> None:
        raise Unavailable("the disk is full")


def run(
    test: Callable[[BrokerHarness], Awaitable[None]], bench: BrokerHarness | None = None
) -> None:
    async def whole() -> None:
        here = bench or BrokerHarness(wording=LabelWording())
        await here.broker.start()
        await test(here)
        # A store in memory ends with its broker, unless only the partitions are closed.
        for entity in here.broker.entities():
            await entity.partitions.close()

    asyncio.run(whole())


async def send(entity: Queue | Topic, *texts: str) -> None:
    origin = Recorder()
    entity.submit(SendMany(origin, list(range(len(texts))), [message(text) for text in texts]))
    await settle_down()
    assert [type(reply) for reply in origin.replies] == [SendsAccepted]


async def received(entity: Queue | Subscription, lane: int | None = None) -> list[str]:
    """Lock and show all that an entity has ready."""
    origin = Recorder()
    open_receiver: Command = OpenReceiver(origin, entity.lane if lane is None else lane, PEEK_LOCK)
    entity.submit(open_receiver)
    entity.submit(Grant(origin, 1_000, True))
    await settle_down()
    return contents(origin.deliveries())


async def subscribe(broker: Broker, name: str, *rules: Rule) -> Subscription:
    return await broker.put_subscription(SubscriptionDefinition("news", name), rules or None)


def test_a_topic_gives_each_subscription_what_its_rules_take() -> None:
    """Protocol 11.7: one copy for all rules without action, one for each with."""

    async def test(bench: BrokerHarness) -> None:
        topic = await bench.broker.put_topic(TopicDefinition("news"))
        everything = await subscribe(bench.broker, "all")
        some = await subscribe(
            bench.broker,
            "some",
            Rule("a", SqlFilter("sys.Label LIKE 's%'")),
            Rule("b", SqlFilter("sys.Label = 'sport'")),
        )
        nothing = await subscribe(bench.broker, "none", Rule("no", FalseFilter()))
        await send(topic, "sport", "weather", "stocks")
        assert await received(everything) == ["sport", "weather", "stocks"]
        assert await received(some) == ["sport", "stocks"]
        assert await received(nothing) == []

    run(test)


def test_a_rule_that_cannot_be_evaluated_dead_letters_where_it_is_wished() -> None:
    async def test(bench: BrokerHarness) -> None:
        topic = await bench.broker.put_topic(TopicDefinition("news"))
        failing = Rule("bad", SqlFilter("1 / 0 = 1 OR sys.Label = 'x'"))
        wishes = await subscribe(bench.broker, "wishes", failing)
        does_not = await bench.broker.put_subscription(
            SubscriptionDefinition("news", "not", dead_letter_on_filter_error=False), [failing]
        )
        await send(topic, "sport")
        assert await received(wishes, wishes.lane | 1) == ["sport"]
        assert await received(wishes) == []
        assert await received(does_not, does_not.lane | 1) == []
        assert await received(does_not) == []

    run(test)


def test_a_subscription_is_found_by_its_path_in_any_case() -> None:
    async def test(bench: BrokerHarness) -> None:
        await bench.broker.put_topic(TopicDefinition("News/Daily"))
        made = await bench.broker.put_subscription(SubscriptionDefinition("news/daily", "Mine"))
        assert bench.broker.find("NS", "NEWS/daily/subscriptions/mine") is made
        assert bench.broker.find("ns", "news/daily/Subscriptions/other") is None
        assert bench.broker.find("ns", "news/Subscriptions/mine") is None
        assert isinstance(bench.broker.find("ns", "news/Daily"), Topic)

    run(test)


def test_rules_are_added_listed_and_removed_by_links() -> None:
    async def test(bench: BrokerHarness) -> None:
        topic = await bench.broker.put_topic(TopicDefinition("news"))
        mine = await subscribe(bench.broker, "mine")
        origin = Recorder()
        mine.submit(AddRule(origin, 1, Rule("sport", SqlFilter("sys.Label = 'sport'"))))
        await settle_down()
        mine.submit(RemoveRule(origin, 2, "$default"))
        await settle_down()
        mine.submit(ListRules(origin, 3, 0, 10))
        mine.submit(ListRules(origin, 4, 1, 10))
        first, second, third, fourth = origin.take()
        assert isinstance(first, Numbered)
        assert isinstance(second, Numbered)
        assert isinstance(third, RulesFound)
        assert [rule.name for rule in third.rules] == ["sport"]
        assert third.rules[0].created_at == bench.clock.now()
        assert isinstance(fourth, RulesFound)
        assert fourth.rules == []
        await send(topic, "weather", "sport")
        assert await received(mine) == ["sport"]

    run(test)


def test_rules_that_cannot_be_are_refused_and_change_nothing() -> None:
    async def test(bench: BrokerHarness) -> None:
        await bench.broker.put_topic(TopicDefinition("news"))
        mine = await subscribe(bench.broker, "mine")
        origin = Recorder()
        mine.submit(AddRule(origin, 1, Rule("$DEFAULT", TrueFilter())))
        mine.submit(RemoveRule(origin, 2, "unknown"))
        await settle_down()
        refusals = [reply.refusal.kind for reply in origin.replies if isinstance(reply, Refused)]
        assert refusals == [ENTITY_EXISTS, ENTITY_NOT_FOUND]
        assert [rule.name for rule in mine.rules] == ["$Default"]
        with pytest.raises(EntityError) as declined:
            await subscribe(bench.broker, "two", Rule("r", TrueFilter()), Rule("R", TrueFilter()))
        assert declined.value.refusal.kind == INVALID_ARGUMENT
        assert bench.broker.find("ns", "news/subscriptions/two") is None

    run(test)


def test_what_is_changed_while_in_use_tells_its_links_and_keeps_its_messages() -> None:
    """R-L4, and what the service does: links are detached when a description changes."""

    async def test(bench: BrokerHarness) -> None:
        queue = await bench.broker.put_queue(QueueDefinition("orders"))
        link = Link()
        queue.link_attached(link)
        await send(queue, "one")
        assert await bench.broker.put_queue(QueueDefinition("orders")) is queue
        assert link.refusals == []
        changed = QueueDefinition("orders", delivery_count_max=3)
        assert await bench.broker.put_queue(changed) is queue
        assert [refusal.kind for refusal in link.refusals] == [DETACHED]
        assert await received(queue) == ["one"]

    run(test)


@pytest.mark.parametrize(
    "after",
    [
        QueueDefinition("orders", requires_session=True),
        QueueDefinition("orders", partitions=4),
        QueueDefinition("orders", duplicate_window_ms=20_000),
    ],
)
def test_what_was_chosen_for_good_cannot_be_changed(after: QueueDefinition) -> None:
    """R-P2."""

    async def test(bench: BrokerHarness) -> None:
        queue = await bench.broker.put_queue(QueueDefinition("orders"))
        with pytest.raises(EntityError) as declined:
            await bench.broker.put_queue(after)
        assert declined.value.refusal.kind == NOT_ALLOWED
        assert queue.definition == QueueDefinition("orders")

    run(test)


def test_a_name_belongs_to_one_entity() -> None:
    async def test(bench: BrokerHarness) -> None:
        await bench.broker.put_queue(QueueDefinition("orders"))
        await bench.broker.put_topic(TopicDefinition("news"))
        with pytest.raises(EntityError) as first:
            await bench.broker.put_topic(TopicDefinition("Orders"))
        with pytest.raises(EntityError) as second:
            await bench.broker.put_queue(QueueDefinition("NEWS"))
        with pytest.raises(EntityError) as third:
            await bench.broker.put_subscription(SubscriptionDefinition("orders", "mine"))
        kinds = [error.value.refusal.kind for error in (first, second, third)]
        assert kinds == [ENTITY_EXISTS, ENTITY_EXISTS, ENTITY_NOT_FOUND]

    run(test)


def test_a_namespace_holds_so_many_entities_and_no_more() -> None:
    """R-P10."""

    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        await broker.put_queue(QueueDefinition("one", partitions=2))
        with pytest.raises(EntityError) as second:
            await broker.put_topic(TopicDefinition("two", partitions=2))
        await broker.put_topic(TopicDefinition("news"))
        with pytest.raises(EntityError) as third:
            await broker.put_queue(QueueDefinition("three"))
        await subscribe(broker, "mine")
        with pytest.raises(EntityError) as fourth:
            await subscribe(broker, "yours")
        for error in (second, third, fourth):
            assert error.value.refusal.kind == QUOTA_EXCEEDED

    limits = NamespaceLimits(entities_max=2, partitioned_max=1, subscriptions_max=1)
    run(test, BrokerHarness(limits=limits))


def test_a_removed_queue_dismisses_its_links_and_its_name_starts_empty() -> None:
    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        queue = await broker.put_queue(QueueDefinition("orders"))
        link = Link()
        queue.link_attached(link)
        await send(queue, "old")
        assert await broker.remove("Orders")
        assert not await broker.remove("orders")
        assert [refusal.kind for refusal in link.refusals] == [ENTITY_NOT_FOUND]
        assert broker.find("ns", "orders") is None
        again = await broker.put_queue(QueueDefinition("orders"))
        await send(again, "new")
        assert await received(again) == ["new"]

    run(test)


def test_a_removed_subscription_takes_its_messages_along() -> None:
    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        topic = await broker.put_topic(TopicDefinition("news"))
        mine = await subscribe(broker, "mine")
        yours = await subscribe(broker, "yours")
        link = Link()
        mine.link_attached(link)
        await send(topic, "one")
        assert await broker.remove("news/subscriptions/mine")
        assert [refusal.kind for refusal in link.refusals] == [ENTITY_NOT_FOUND]
        again = await subscribe(broker, "mine")
        assert again.lane not in (mine.lane, yours.lane)
        await send(topic, "two")
        assert await received(again) == ["two"]
        assert await received(yours) == ["one", "two"]

    run(test)


@pytest.mark.parametrize("path", ["news", "news/subscriptions/mine"])
def test_a_subscription_that_is_deleted_meanwhile_gets_no_rules_and_stays_away(path: str) -> None:
    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        await broker.put_topic(TopicDefinition("news"))
        mine = await subscribe(broker, "mine")
        removing = asyncio.ensure_future(broker.remove(path))
        await asyncio.sleep(0)
        origin = Recorder()
        mine.submit(AddRule(origin, 1, Rule("late", TrueFilter())))
        assert await removing
        await settle_down()
        refused = [reply for reply in origin.replies if isinstance(reply, Refused)]
        assert [reply.refusal.kind for reply in refused] == [ENTITY_NOT_FOUND]
        assert not [path for _, kind, path, _ in await bench.catalog.load() if "mine" in path]

    run(test)


def test_an_entity_that_could_not_be_removed_keeps_its_messages() -> None:
    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        queue = await broker.put_queue(QueueDefinition("orders"))
        await send(queue, "old")
        with pytest.raises(Unavailable):
            await broker.remove("orders")
        assert broker.find("ns", "orders") is queue
        assert [kind for _, kind, _, _ in await bench.catalog.load()] == ["queue"]
        assert await received(queue) == ["old"]

    run(test, BrokerHarness(catalog=FullCatalog()))


def away() -> StoreError:
    return Unavailable("the disk is not there")


def test_a_store_that_is_away_at_the_start_goes_on_when_it_returns() -> None:
    """Nobody asks for what is scheduled there, and what was to be dropped is dropped late."""

    async def before(bench: BrokerHarness) -> None:
        queue = await bench.broker.put_queue(QueueDefinition("orders"))
        await bench.broker.put_queue(QueueDefinition("bills"))
        await send(queue, "now")
        later = message("later")
        later.known().scheduled_at = bench.clock.now() + 60_000
        queue.submit(SendMany(Recorder(), [1], [later]))
        await settle_down()

    async def after(bench: BrokerHarness) -> None:
        broker = bench.broker
        queue = broker.find("ns", "orders")
        assert isinstance(queue, Queue)
        broker.awaken()
        await settle_down()
        assert await broker.remove("bills")
        assert [worker.is_open for worker in queue.partitions.workers] == [False]
        store.failure = None
        broker.store_switched("store", True)
        await asyncio.gather(*broker._tasks)
        assert [worker.is_open for worker in queue.partitions.workers] == [True]
        assert not [path for _, kind, path, _ in await bench.catalog.load() if kind == "dropped"]
        await bench.advance(60_000)
        assert await received(queue) == ["now", "later"]

    store = FailingStore(MemoryStore())
    first = BrokerHarness(store)
    run(before, first)
    store.failure = away
    run(after, BrokerHarness(store, first.catalog))


def test_all_of_it_is_there_after_a_restart() -> None:
    bench = BrokerHarness(wording=LabelWording())

    async def before(bench: BrokerHarness) -> None:
        broker = bench.broker
        topic = await broker.put_topic(TopicDefinition("news"))
        await subscribe(broker, "gone")
        mine = await subscribe(broker, "mine", Rule("sport", SqlFilter("sys.Label = 'sport'")))
        await broker.put_queue(QueueDefinition("orders", status=DISABLED))
        await broker.put_queue(QueueDefinition("left"))
        await send(topic, "sport", "weather")
        await broker.remove("left")
        await broker.remove("news/Subscriptions/gone")
        assert mine.lane == 6

    async def after(bench: BrokerHarness) -> None:
        broker = bench.broker
        mine = broker.find("ns", "news/subscriptions/mine")
        topic = broker.find("ns", "news")
        queue = broker.find("ns", "orders")
        assert isinstance(mine, Subscription)
        assert isinstance(topic, Topic)
        assert isinstance(queue, Queue)
        assert queue.status == DISABLED
        assert mine.lane == 6
        assert [rule.name for rule in mine.rules] == ["sport"]
        assert broker.find("ns", "left") is None
        assert broker.find("ns", "news/subscriptions/gone") is None
        await send(topic, "sport", "weather")
        assert await received(mine) == ["sport", "sport"]

    run(before, bench)
    run(after, BrokerHarness(bench.store, bench.catalog, wording=LabelWording()))
