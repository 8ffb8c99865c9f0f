"""The register of queues and topics: names, order, and counts that follow every change."""

from __future__ import annotations

import asyncio

import pytest

from peeklock.broker.broker import NamespaceLimits
from peeklock.broker.changes import EntityError
from peeklock.broker.entity_index import EntityIndex, Usage
from peeklock.entity.definition import QueueDefinition, TopicDefinition
from peeklock.store.memory import MemoryStore
from peeklock.store.store import Store
from tests.broker.broker_harness import BrokerHarness


async def filled() -> tuple[BrokerHarness, EntityIndex]:
    bench = BrokerHarness(stores={"one": MemoryStore(), "two": MemoryStore()})
    await bench.broker.start()
    entities = EntityIndex()
    for path, partitions in (("b", 1), ("A", 4)):
        entities.put(await bench.broker.put_queue(QueueDefinition(path, partitions=partitions)))
    entities.put(await bench.broker.put_topic(TopicDefinition("c"), namespace="Other"))
    return bench, entities


def counts(entities: EntityIndex, namespace: str) -> tuple[int, int]:
    usage = entities.usage(namespace)
    return usage.count, usage.partitioned


def test_entities_are_found_and_listed_by_name_without_case() -> None:
    async def test() -> None:
        bench, entities = await filled()
        namespace = bench.broker.namespace
        found = entities.get(namespace.upper(), "a")
        assert found is not None
        assert found.path == "A"
        assert entities.get(namespace, "c") is None
        assert [entity.path for entity in entities.by_name(namespace)] == ["A", "b"]
        assert [entity.path for entity in entities.by_name("OTHER")] == ["c"]
        assert list(entities.by_name("nobody")) == []
        assert {entity.path for entity in entities.all()} == {"A", "b", "c"}
        assert [entity.path for entity in entities.by_name()] == (
            ["c", "A", "b"] if namespace.lower() > "other" else ["A", "b", "c"]
        )

    asyncio.run(test())


def test_counts_and_lists_follow_what_comes_and_goes() -> None:
    async def test() -> None:
        bench, entities = await filled()
        namespace = bench.broker.namespace
        assert counts(entities, namespace) == (2, 1)
        assert counts(entities, "other") == (1, 0)
        assert counts(entities, "nobody") == (0, 0)
        assert entities.usage("").used == {"one": 4, "two": 2}
        partitioned = entities.get(namespace, "A")
        assert partitioned is not None
        entities.remove(partitioned)
        assert entities.get(namespace, "A") is None
        assert [entity.path for entity in entities.by_name(namespace)] == ["b"]
        assert counts(entities, namespace) == (1, 0)
        assert entities.usage("").used == {"one": 2, "two": 0}
        entities.put(partitioned)
        assert [entity.path for entity in entities.by_name(namespace)] == ["A", "b"]
        assert counts(entities, namespace) == (2, 1)

    asyncio.run(test())


def test_room_is_free_again_when_an_entity_goes() -> None:
    """R-P10: the limit counts what is there, not what was."""

    async def test() -> None:
        bench = BrokerHarness(limits=NamespaceLimits(entities_max=2))
        await bench.broker.start()
        for path in ("a", "b"):
            await bench.broker.put_queue(QueueDefinition(path))
        with pytest.raises(EntityError, match="has 2 entities"):
            await bench.broker.put_queue(QueueDefinition("c"))
        assert await bench.broker.remove("A")
        await bench.broker.put_queue(QueueDefinition("c"))
        assert [entity.path for entity in bench.broker.entities()] == ["b", "c"]

    asyncio.run(test())


def test_many_queues_are_made_together_or_not_at_all() -> None:
    """R-P10: those that are planned count too, for the limit and for the stores."""

    async def test() -> None:
        limits = NamespaceLimits(entities_max=3)
        stores: dict[str, Store] = {"one": MemoryStore(), "two": MemoryStore()}
        broker = BrokerHarness(stores=stores, limits=limits).broker
        await broker.start()
        first = await broker.put_queue(QueueDefinition("a"))
        with pytest.raises(EntityError, match="has 3 entities"):
            await broker.put_queues([(QueueDefinition(path), ()) for path in ("b", "c", "d")])
        assert broker.entities() == [first]
        changed = QueueDefinition("b", delivery_count_max=3)
        made = await broker.put_queues([(QueueDefinition("a"), ()), (changed, ())])
        assert made[0] is first
        assert made[1].definition == changed
        assert broker.entities() == made

    asyncio.run(test())


def test_what_is_planned_rests_where_the_fewest_are() -> None:
    usage = Usage("ns", 0, 0, {"one": 1})
    usage.take(("two",))
    usage.take(("one", "two"))
    assert (usage.count, usage.partitioned) == (2, 1)
    assert usage.used == {"one": 2, "two": 2}
