"""What administration asks of a broker: new or known, rules, destinations, times and counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from peeklock.broker.changes import EITHER, KNOWN, NEW, EntityError
from peeklock.broker.counting import count, count_all
from peeklock.broker.entities import Subscription
from peeklock.broker.forwarding.destinations import DestinationMissing
from peeklock.entity.commands import SendMany
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.refusals import ENTITY_EXISTS, ENTITY_NOT_FOUND, NOT_ALLOWED
from peeklock.entity.rules.filter import FalseFilter, SqlFilter
from peeklock.entity.rules.rule import Rule
from tests.broker.broker_harness import BrokerHarness, Recorder, message, settle_down

PATH = "news/Subscriptions/all"


def run(
    test: Callable[[BrokerHarness], Awaitable[None]], bench: BrokerHarness | None = None
) -> None:
    async def whole() -> None:
        here = bench or BrokerHarness()
        await here.broker.start()
        await asyncio.wait_for(test(here), 10)
        for entity in here.broker.entities():
            await entity.partitions.close()

    asyncio.run(whole())


async def refused(wish: Awaitable[object]) -> str:
    with pytest.raises(EntityError) as error:
        await wish
    return error.value.refusal.kind


async def subscribed(bench: BrokerHarness) -> Subscription:
    await bench.broker.put_topic(TopicDefinition("news"))
    return await bench.broker.put_subscription(SubscriptionDefinition("news", "all"))


def test_what_must_be_new_is_not_there_yet_and_what_must_be_known_is() -> None:
    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        queue, topic = QueueDefinition("orders"), TopicDefinition("news")
        subscription = SubscriptionDefinition("news", "all")
        assert await refused(broker.put_queue(queue, expect=KNOWN)) == ENTITY_NOT_FOUND
        assert await refused(broker.put_topic(topic, expect=KNOWN)) == ENTITY_NOT_FOUND
        await broker.put_queue(queue, expect=NEW)
        await broker.put_topic(topic, expect=NEW)
        wish = broker.put_subscription(subscription, expect=KNOWN)
        assert await refused(wish) == ENTITY_NOT_FOUND
        await broker.put_subscription(subscription, expect=NEW)
        assert await refused(broker.put_queue(queue, expect=NEW)) == ENTITY_EXISTS
        assert await refused(broker.put_topic(topic, expect=NEW)) == ENTITY_EXISTS
        assert await refused(broker.put_subscription(subscription, expect=NEW)) == ENTITY_EXISTS
        for expect in (KNOWN, EITHER):
            await broker.put_queue(queue, expect=expect)
            await broker.put_topic(topic, expect=expect)
            await broker.put_subscription(subscription, expect=expect)

    run(test)


def test_of_two_who_make_the_same_one_is_first() -> None:
    async def test(bench: BrokerHarness) -> None:
        wishes = [
            bench.broker.put_queue(QueueDefinition("orders", delivery_count_max=n), expect=NEW)
            for n in (3, 4)
        ]
        made, late = await asyncio.gather(*wishes, return_exceptions=True)
        assert isinstance(late, EntityError)
        assert not isinstance(made, BaseException)
        assert made.definition.delivery_count_max == 3

    run(test)


def test_an_update_is_an_update_even_if_nothing_is_different() -> None:
    before = BrokerHarness()

    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        queue = await broker.put_queue(QueueDefinition("orders"))
        subscription = await subscribed(bench)
        made = bench.clock.now()
        bench.clock.advance(5_000)
        # What a file says again at each start is none.
        await broker.put_queue(QueueDefinition("orders"))
        assert queue.updated_at == queue.place.created_at == made
        await broker.put_queue(QueueDefinition("orders"), expect=KNOWN)
        await broker.put_topic(TopicDefinition("news"), expect=KNOWN)
        await broker.put_subscription(SubscriptionDefinition("news", "all"), expect=KNOWN)
        for entity in (queue, subscription.topic, subscription):
            assert entity.updated_at == made + 5_000
        assert subscription.created_at == made

    async def after(bench: BrokerHarness) -> None:
        for path in ("orders", "news", PATH):
            entity = bench.broker.find("ns", path)
            assert entity is not None
            assert entity.updated_at == before.clock.now()

    run(test, before)
    run(after, BrokerHarness(before.store, before.catalog))


def test_rules_are_put_and_removed_and_kept() -> None:
    before = BrokerHarness()

    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        subscription = await subscribed(bench)
        rule = Rule("mine", SqlFilter("x=1"))
        assert await refused(broker.put_rule(PATH, rule, expect=KNOWN)) == ENTITY_NOT_FOUND
        made = await broker.put_rule(PATH, rule, expect=NEW)
        assert made.created_at == bench.clock.now()
        assert await refused(broker.put_rule(PATH, rule, expect=NEW)) == ENTITY_EXISTS
        bench.clock.advance(1_000)
        changed = await broker.put_rule(PATH, Rule("MINE", FalseFilter()), expect=KNOWN)
        assert (changed.name, changed.created_at) == ("mine", made.created_at)
        assert subscription.topic.rules.sql_filters == 0
        await broker.remove_rule(PATH, "$default")
        assert await refused(broker.remove_rule(PATH, "$default")) == ENTITY_NOT_FOUND
        assert await refused(broker.put_rule("news", rule)) == ENTITY_NOT_FOUND
        assert await refused(broker.remove_rule("none", "mine")) == ENTITY_NOT_FOUND

    async def after(bench: BrokerHarness) -> None:
        found = bench.broker.find("ns", PATH)
        assert isinstance(found, Subscription)
        assert [(rule.name, rule.filter) for rule in found.rules] == [("mine", FalseFilter())]

    run(test, before)
    run(after, BrokerHarness(before.store, before.catalog))


def test_destinations_are_there_and_take_what_comes() -> None:
    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        await broker.put_queue(QueueDefinition("a"), expect=NEW)
        await broker.put_queue(QueueDefinition("b", forward_to="a"), expect=NEW)
        await broker.put_queue(QueueDefinition("c", forward_to="B"), expect=NEW)
        await broker.put_queue(QueueDefinition("s", requires_session=True), expect=NEW)
        await subscribed(bench)
        for wrong in ("none", PATH.replace("/", ".")):
            definition = QueueDefinition("d", forward_dead_letters_to=wrong)
            with pytest.raises(DestinationMissing):
                await broker.put_queue(definition, expect=NEW)
        lost = SubscriptionDefinition("news", "some", forward_to="none")
        with pytest.raises(DestinationMissing):
            await broker.put_subscription(lost, expect=NEW)
        to_sessions = QueueDefinition("d", forward_to="s", forward_dead_letters_to="S")
        assert (await broker.put_queue(to_sessions, expect=NEW)).definition == to_sessions
        circle = QueueDefinition("a", forward_to="c")
        assert await refused(broker.put_queue(circle, expect=KNOWN)) == NOT_ALLOWED
        await broker.put_queue(QueueDefinition("a", forward_to="A"), expect=KNOWN)
        await broker.put_queue(QueueDefinition("e", forward_to="news"), expect=NEW)

    run(test)


def test_counting_opens_only_what_was_written_to() -> None:
    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        queues = [await broker.put_queue(QueueDefinition(name)) for name in ("idle", "used")]
        queues[1].submit(SendMany(Recorder(), [1, 2], [message("a"), message("bc")]))
        idle, used = await count_all(queues)
        assert (idle.total, idle.is_whole) == (0, True)
        assert (used.total, used.active, used.bytes, used.is_whole) == (2, 2, 3, True)
        assert [queue.partitions.workers[0].is_open for queue in queues] == [False, True]
        await settle_down()

    run(test)


def test_a_subscription_is_counted_by_itself() -> None:
    async def test(bench: BrokerHarness) -> None:
        subscription = await subscribed(bench)
        subscription.topic.submit(SendMany(Recorder(), [1], [message("a")]))
        assert (await count(subscription)).total == 1
        assert (await count(subscription.topic)).active == 0

    run(test)


def test_who_came_last_is_remembered() -> None:
    class Link:
        def dismiss(self, refusal: object) -> None:
            pass

    async def test(bench: BrokerHarness) -> None:
        queue = await bench.broker.put_queue(QueueDefinition("orders"))
        assert queue.links.accessed_at == 0
        link = Link()
        for step in (queue.link_attached, queue.link_detached):
            bench.clock.advance(1_000)
            step(link)
            assert queue.links.accessed_at == bench.clock.now()

    run(test)
