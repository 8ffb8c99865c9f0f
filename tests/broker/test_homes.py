"""The register of queues and topics: names, order, and counts that follow every change."""

from __future__ import annotations

import asyncio

import pytest

from peeklock.broker.broker import Limits
from peeklock.broker.changes import EntityError
from peeklock.broker.homes import Homes, Room
from peeklock.entity.definition import QueueDefinition, TopicDefinition
from peeklock.store.memory import MemoryStore
from peeklock.store.store import Store
from tests.broker.bench import Bench


async def filled() -> tuple[Bench, Homes]:
    bench = Bench(stores={"one": MemoryStore(), "two": MemoryStore()})
    await bench.broker.start()
    homes = Homes()
    for path, partitions in (("b", 1), ("A", 4)):
        homes.put(await bench.broker.put_queue(QueueDefinition(path, partitions=partitions)))
    homes.put(await bench.broker.put_topic(TopicDefinition("c"), namespace="Other"))
    return bench, homes


def counts(homes: Homes, namespace: str) -> tuple[int, int]:
    room = homes.room(namespace)
    return room.count, room.partitioned


def test_homes_are_found_and_listed_by_name_without_case() -> None:
    async def test() -> None:
        bench, homes = await filled()
        namespace = bench.broker.namespace
        found = homes.get(namespace.upper(), "a")
        assert found is not None
        assert found.path == "A"
        assert homes.get(namespace, "c") is None
        assert [home.path for home in homes.by_name(namespace)] == ["A", "b"]
        assert [home.path for home in homes.by_name("OTHER")] == ["c"]
        assert list(homes.by_name("nobody")) == []
        assert {home.path for home in homes.all()} == {"A", "b", "c"}
        assert [home.path for home in homes.by_name()] == (
            ["c", "A", "b"] if namespace.lower() > "other" else ["A", "b", "c"]
        )

    asyncio.run(test())


def test_counts_and_lists_follow_what_comes_and_goes() -> None:
    async def test() -> None:
        bench, homes = await filled()
        namespace = bench.broker.namespace
        assert counts(homes, namespace) == (2, 1)
        assert counts(homes, "other") == (1, 0)
        assert counts(homes, "nobody") == (0, 0)
        assert homes.room("").used == {"one": 4, "two": 2}
        partitioned = homes.get(namespace, "A")
        assert partitioned is not None
        homes.remove(partitioned)
        assert homes.get(namespace, "A") is None
        assert [home.path for home in homes.by_name(namespace)] == ["b"]
        assert counts(homes, namespace) == (1, 0)
        assert homes.room("").used == {"one": 2, "two": 0}
        homes.put(partitioned)
        assert [home.path for home in homes.by_name(namespace)] == ["A", "b"]
        assert counts(homes, namespace) == (2, 1)

    asyncio.run(test())


def test_room_is_free_again_when_an_entity_goes() -> None:
    """R-P10: the limit counts what is there, not what was."""

    async def test() -> None:
        bench = Bench(limits=Limits(entities_max=2))
        await bench.broker.start()
        for path in ("a", "b"):
            await bench.broker.put_queue(QueueDefinition(path))
        with pytest.raises(EntityError, match="has 2 entities"):
            await bench.broker.put_queue(QueueDefinition("c"))
        assert await bench.broker.remove("A")
        await bench.broker.put_queue(QueueDefinition("c"))
        assert [home.path for home in bench.broker.homes()] == ["b", "c"]

    asyncio.run(test())


def test_many_queues_are_made_together_or_not_at_all() -> None:
    """R-P10: those that are planned count too, for the limit and for the stores."""

    async def test() -> None:
        limits = Limits(entities_max=3)
        stores: dict[str, Store] = {"one": MemoryStore(), "two": MemoryStore()}
        broker = Bench(stores=stores, limits=limits).broker
        await broker.start()
        first = await broker.put_queue(QueueDefinition("a"))
        with pytest.raises(EntityError, match="has 3 entities"):
            await broker.put_queues([(QueueDefinition(path), ()) for path in ("b", "c", "d")])
        assert broker.homes() == [first]
        changed = QueueDefinition("b", delivery_count_max=3)
        made = await broker.put_queues([(QueueDefinition("a"), ()), (changed, ())])
        assert made[0] is first
        assert made[1].definition == changed
        assert broker.homes() == made

    asyncio.run(test())


def test_what_is_planned_rests_where_the_fewest_are() -> None:
    room = Room("ns", 0, 0, {"one": 1})
    room.take(("two",))
    room.take(("one", "two"))
    assert (room.count, room.partitioned) == (2, 1)
    assert room.used == {"one": 2, "two": 2}
