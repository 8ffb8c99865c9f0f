"""Several namespaces in one broker: each has its own entities, keys and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from peeklock.auth.keyring import TokenGrant
from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.refusal import AuthRefusal
from peeklock.auth.rights import AuthorizationRule
from peeklock.broker.broker import NamespaceLimits
from peeklock.broker.changes import NEW, EntityError
from peeklock.broker.forwarding.destinations import DestinationMissing
from peeklock.entity.commands import Peek, SendMany
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.refusals import QUOTA_EXCEEDED
from peeklock.entity.replies import Found
from peeklock.store.memory import MemoryCatalog
from tests.broker.broker_harness import BrokerHarness, Recorder, contents, message, settle_down
from tests.broker.forwarding.harness import PlainWording


def both() -> Namespaces:
    return Namespaces([Namespace("one", [AuthorizationRule("root", "1")]), Namespace("two")])


def run(
    test: Callable[[BrokerHarness], Awaitable[None]], bench: BrokerHarness | None = None
) -> None:
    async def whole() -> None:
        here = bench or BrokerHarness(namespaces=both(), wording=PlainWording())
        await here.broker.start()
        await asyncio.wait_for(test(here), 10)
        await here.broker.close()

    asyncio.run(whole())


def queue(path: str = "q", forward_to: str = "") -> QueueDefinition:
    return QueueDefinition(path, batched_store_access=False, forward_to=forward_to)


async def send(bench: BrokerHarness, namespace: str, path: str, text: str) -> None:
    entity = bench.broker.find(namespace, path)
    assert entity is not None
    entity.submit(SendMany(Recorder(), [0], [message(text)]))
    await settle_down()


async def found(bench: BrokerHarness, namespace: str, path: str) -> list[str]:
    entity = bench.broker.find(namespace, path)
    assert entity is not None
    origin = Recorder()
    entity.submit(Peek(origin, 0, entity.lane, 0, 10, 10))
    await settle_down()
    (reply,) = origin.take()
    assert isinstance(reply, Found)
    return contents(reply.deliveries)


def test_entities_of_the_same_name_are_two() -> None:
    """R-F7."""

    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        for namespace in ("one", "two"):
            await broker.put_queue(queue(), namespace=namespace)
            await send(bench, namespace, "q", f"for {namespace}")
        await broker.put_topic(TopicDefinition("only"), namespace="two")
        assert await found(bench, "one", "q") == ["for one"]
        assert await found(bench, "TWO", "Q") == ["for two"]
        assert broker.find("one", "only") is None
        assert [entity.path for entity in broker.entities("one")] == ["q"]
        assert [entity.path for entity in broker.entities("Two")] == ["only", "q"]
        assert await broker.remove("q", "two")
        assert await found(bench, "one", "q") == ["for one"]

    run(test)


def test_the_keys_of_an_entity_hold_in_its_namespace_alone() -> None:
    """R-F7."""

    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        mine = AuthorizationRule("mine", "key")
        await broker.put_queue(queue(), namespace="one")
        await broker.put_queue(queue(), [mine], namespace="two")
        one, two = (broker.namespaces.get(name).keys for name in ("one", "two"))
        assert isinstance(one.verify_plain("mine", "key"), AuthRefusal)
        assert not isinstance(two.verify_plain("mine", "key"), AuthRefusal)
        # The same name elsewhere takes nothing away.
        await broker.remove("q", "one")
        assert not isinstance(two.verify_plain("mine", "key"), AuthRefusal)
        await broker.remove("q", "two")
        assert isinstance(two.verify_plain("mine", "key"), AuthRefusal)

    run(test)


def test_messages_are_forwarded_within_a_namespace() -> None:
    """R-F7."""

    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        await broker.put_queue(queue("target"), namespace="one")
        await broker.put_queue(queue("target"), namespace="two")
        await broker.put_queue(queue("source", forward_to="target"), namespace="two", expect=NEW)
        await send(bench, "two", "source", "on its way")
        await bench.advance(1)
        assert await found(bench, "two", "target") == ["on its way"]
        assert await found(bench, "one", "target") == []

    run(test)


def test_a_destination_in_another_namespace_is_none() -> None:
    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        await broker.put_queue(queue("target"), namespace="one")
        source = queue("source", forward_to="target")
        assert broker.missing_destination(source, "two") == "target"
        assert broker.missing_destination(source, "one") == ""
        with pytest.raises(DestinationMissing):
            await broker.put_queue(source, namespace="two", expect=NEW)

    run(test)


def test_each_namespace_has_the_whole_limit() -> None:
    """R-F7, R-P10."""

    async def test(bench: BrokerHarness) -> None:
        broker = bench.broker
        for namespace in ("one", "two"):
            await broker.put_queue(queue("a"), namespace=namespace)
        for namespace in ("one", "TWO"):
            with pytest.raises(EntityError) as error:
                await broker.put_queue(queue("b"), namespace=namespace)
            assert error.value.refusal.kind == QUOTA_EXCEEDED

    run(test, BrokerHarness(namespaces=both(), limits=NamespaceLimits(entities_max=1)))


def test_a_namespace_that_is_configured_no_more_is_kept_with_its_entities() -> None:
    """R-F7: the keys of its entities open it still, and no others do."""
    catalog = MemoryCatalog()
    mine = AuthorizationRule("mine", "key")

    async def before(bench: BrokerHarness) -> None:
        await bench.broker.put_queue(queue(), [mine], namespace="two")
        await bench.broker.put_topic(TopicDefinition("t"), namespace="two")
        await bench.broker.put_subscription(SubscriptionDefinition("t", "s"), namespace="two")

    async def after(bench: BrokerHarness) -> None:
        broker = bench.broker
        assert [each.name for each in broker.namespaces.all()] == ["one", "two"]
        kept = broker.namespaces.get("two")
        assert not kept.is_configured
        assert broker.find("two", "t/Subscriptions/s") is not None
        grants = kept.keys.verify_plain("mine", "key")
        assert isinstance(grants, list)
        assert [(type(grant), grant.path) for grant in grants] == [(TokenGrant, "q")]
        assert isinstance(kept.keys.verify_plain("root", "1"), AuthRefusal)

    run(before, BrokerHarness(catalog=catalog, namespaces=both()))
    only = Namespaces([Namespace("one", [AuthorizationRule("root", "1")])])
    run(after, BrokerHarness(catalog=catalog, namespaces=only))
