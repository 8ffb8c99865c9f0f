"""Brokers that serve together: each answers for all partitions, wherever they live (R-P1, R-P4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from peeklock.broker.changes import NEW, EntityError
from peeklock.broker.counting import count
from peeklock.broker.entities import Queue, Subscription, Topic
from peeklock.broker.worker.partition_door import PartitionDoor
from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.cluster.catalog import ClusterCatalog
from peeklock.entity.commands import (
    MAIN,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    AcceptSession,
    CloseReceiver,
    Grant,
    OpenReceiver,
    Requeue,
    SendMany,
    SettleMany,
)
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.refusals import ENTITY_EXISTS, UNAVAILABLE
from peeklock.entity.replies import Delivered, ReceiverClosed, Refused, SendsAccepted, Settled
from peeklock.entity.rules.filter import SqlFilter
from peeklock.entity.rules.rule import Rule
from peeklock.entity.settlement import PLAIN_COMPLETE
from peeklock.store.store import Fenced, StoreError
from tests.broker.broker_harness import Recorder, contents, message, settle_down, token, until
from tests.cluster.cluster_harness import ClusterHarness, cluster

Scenario = Callable[[ClusterHarness], Coroutine[Any, Any, None]]


def run(directory: Path, scenario: Scenario, *, count: int = 2, stores: int = 4) -> None:
    async def lived() -> None:
        async with cluster(directory, count, stores) as made:
            await scenario(made)

    asyncio.run(asyncio.wait_for(lived(), 60))


def queue(made: ClusterHarness, index: int, path: str = "orders") -> Queue:
    found = made.broker(index).find("ns", path)
    assert isinstance(found, Queue)
    return found


def owner_of(made: ClusterHarness, path: str = "orders") -> int:
    """The node that has the only partition of a queue."""
    for index in range(len(made.nodes)):
        if queue(made, index, path).partitions.workers[0].id in _local(made, index, path):
            return index
    raise AssertionError("nobody has it")


def _local(made: ClusterHarness, index: int, path: str) -> list[Any]:
    entity = queue(made, index, path)
    stores = entity.place.stores
    workers = entity.partitions.workers
    return [
        worker.id
        for worker, store in zip(workers, stores, strict=True)
        if made.nodes[index].node.has_store(store)
    ]


async def sent(entity: Queue | Topic, *texts: str, **facts: Any) -> Recorder:
    origin = Recorder()
    entity.submit(SendMany(origin, list(range(len(texts))), [message(t, **facts) for t in texts]))
    await until(origin.has_replies)
    return origin


def test_any_node_serves_any_queue(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        await made.broker(0).put_queue(QueueDefinition("orders"))
        for index in (0, 1):
            found = await sent(queue(made, index), "a", "b")
            assert isinstance(found.replies[0], SendsAccepted)
            assert found.replies[0].tags == [0, 1]
            receiver = Recorder()
            queue(made, index).submit(OpenReceiver(receiver, MAIN, PEEK_LOCK))
            queue(made, index).submit(Grant(receiver, 2, False))
            await until(partial(_has, receiver, 2))
            assert contents(receiver.deliveries()) == ["a", "b"]
            tokens = [token(each) for each in receiver.deliveries()]
            receiver.take()
            queue(made, index).submit(SettleMany(receiver, [7, 8], PLAIN_COMPLETE, tokens))
            await until(receiver.has_replies)
            settled = receiver.take()[0]
            assert isinstance(settled, Settled)
            assert settled.tags == [7, 8]
            assert (await count(queue(made, 1 - index))).total == 0
            queue(made, index).submit(CloseReceiver(receiver, False))

    run(tmp_path, scenario)


def test_what_one_node_makes_all_know(tmp_path: Path) -> None:
    """Whoever asked for it finds it at once, through any other."""

    async def scenario(made: ClusterHarness) -> None:
        one, two = made.broker(0), made.broker(1)
        await one.put_topic(TopicDefinition("events"))
        assert isinstance(two.find("ns", "events"), Topic)
        await two.put_subscription(SubscriptionDefinition("events", "all"))
        await one.put_rule("events/subscriptions/all", Rule("more", SqlFilter("a = 1")))
        for broker in (one, two):
            subscription = broker.find("ns", "events/subscriptions/all")
            assert isinstance(subscription, Subscription)
            assert [each.name for each in subscription.rules] == ["$Default", "more"]
        await two.remove_rule("events/subscriptions/all", "more")
        await two.put_topic(TopicDefinition("events", time_to_live_ms=60_000))
        found = one.find("ns", "events")
        assert isinstance(found, Topic)
        assert found.definition.time_to_live_ms == 60_000
        for broker in (one, two):
            topic = broker.find("ns", "events")
            assert isinstance(topic, Topic)
            await sent(topic, "hello")
        copies = one.find("ns", "events/subscriptions/all")
        assert isinstance(copies, Subscription)
        assert (await count(copies)).active == 2
        assert await two.remove("events")
        assert one.find("ns", "events") is None
        assert one.find("ns", "events/subscriptions/all") is None
        assert await made.catalog.load() == []

    run(tmp_path, scenario)


def test_one_of_two_makes_a_queue(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        results = await asyncio.gather(
            *(
                made.broker(each).put_queue(QueueDefinition("orders"), expect=NEW)
                for each in (0, 1, 0, 1)
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(each, Queue) for each in results) == 1
        refused = [each for each in results if isinstance(each, EntityError)]
        assert [each.refusal.kind for each in refused] == [ENTITY_EXISTS] * 3
        assert queue(made, 0).place == queue(made, 1).place

    run(tmp_path, scenario)


def test_a_queue_that_is_made_again_has_nothing_of_its_past(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        for maker in (0, 1, 0):
            await made.broker(maker).put_queue(QueueDefinition("orders"))
            assert (await count(queue(made, 1 - maker))).total == 0
            found = await sent(queue(made, 1 - maker), "past")
            assert isinstance(found.replies[0], SendsAccepted)
            await made.broker(1 - maker).remove("orders")

    run(tmp_path, scenario)


def test_a_partitioned_queue_lives_on_all_nodes(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        await made.broker(1).put_queue(QueueDefinition("orders", partitions=16))
        for number in range(64):
            await sent(queue(made, number % 2), f"m{number}")
        for index in (0, 1):
            assert len(_local(made, index, "orders")) == 8
            assert (await count(queue(made, index))).active == 64
        receiver = Recorder()
        queue(made, 0).submit(OpenReceiver(receiver, MAIN, RECEIVE_AND_DELETE))
        queue(made, 0).submit(Grant(receiver, 64, False))
        await until(lambda: len(receiver.deliveries()) == 64)
        assert set(contents(receiver.deliveries())) == {f"m{number}" for number in range(64)}

    run(tmp_path, scenario)


def test_a_node_that_is_gone_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Those who wait are told, keyless sends go elsewhere, and what rests is there again."""

    async def scenario(made: ClusterHarness) -> None:
        await made.broker(0).put_queue(QueueDefinition("orders", partitions=16))
        await made.broker(0).put_queue(QueueDefinition("lone"))
        gone = owner_of(made, "lone")
        here = 1 - gone
        await sent(queue(made, here, "lone"), "kept")
        lone = Recorder()
        queue(made, here, "lone").submit(OpenReceiver(lone, MAIN, PEEK_LOCK))
        spread = Recorder()
        queue(made, here).submit(OpenReceiver(spread, MAIN, RECEIVE_AND_DELETE))
        queue(made, here).submit(Grant(spread, 100, False))
        await settle_down()
        await made.nodes[gone].vanish()
        await until(lone.has_replies)
        assert isinstance(lone.replies[0], ReceiverClosed)
        refused = await sent(queue(made, here, "lone"), "later")
        assert isinstance(refused.replies[0], Refused)
        assert refused.replies[0].refusal.kind == UNAVAILABLE
        for number in range(32):
            found = await sent(queue(made, here), f"m{number}")
            assert isinstance(found.replies[0], SendsAccepted), found.replies
        await until(lambda: len(spread.deliveries()) == 32)
        assert queue(made, here).partitions.availability == "Limited"
        # The same stores, another process.
        await made.nodes[gone].broker.close()
        made.nodes[gone] = made.make(gone)
        await made.nodes[gone].start()
        door = queue(made, here, "lone").partitions.workers[0]
        await until(lambda: door.is_available)
        assert (await count(queue(made, here, "lone"))).active == 1
        for number in range(32):
            await sent(queue(made, here), f"n{number}")
        await until(lambda: len(spread.deliveries()) == 64)
        assert queue(made, here).partitions.availability == "Available"

    run(tmp_path, scenario)


def test_what_was_taken_and_never_sent_goes_back(tmp_path: Path) -> None:
    """Also when the node that has the partition goes before it has said that it is back."""

    async def scenario(made: ClusterHarness) -> None:
        await made.broker(0).put_queue(QueueDefinition("orders"))
        gone = owner_of(made)
        here = 1 - gone
        await sent(queue(made, here), "a", "b", "c")
        receiver = Recorder()
        queue(made, here).submit(OpenReceiver(receiver, MAIN, RECEIVE_AND_DELETE))
        queue(made, here).submit(Grant(receiver, 3, False))
        await until(lambda: len(receiver.deliveries()) == 3)
        first, *rest = receiver.deliveries()
        assert isinstance(receiver.replies[0], Delivered)
        queue(made, here).submit(Requeue(MAIN, [first]))
        await until(lambda: queue(made, gone).partitions.workers[0].is_open)
        while (await count(queue(made, here))).active != 1:
            await settle_down()
        await made.nodes[gone].vanish()
        await until(lambda: not queue(made, here).partitions.workers[0].can_be_asked)
        queue(made, here).submit(Requeue(MAIN, rest))
        await made.nodes[gone].broker.close()
        made.nodes[gone] = made.make(gone)
        await made.nodes[gone].start()
        while (await count(queue(made, here))).active != 3:
            await settle_down()

    run(tmp_path, scenario)


def test_the_right_to_change_ends_with_its_node(tmp_path: Path) -> None:
    """A node that was taken for lost changes nothing that others have changed since."""

    async def scenario(made: ClusterHarness) -> None:
        late = made.nodes[1].node.changing
        await late.__aenter__()
        # As if the parent had given it to another one.
        made.coordinator.end(made.coordinator.members[1], late.turn)
        await made.broker(0).put_queue(QueueDefinition("orders"))
        catalog = made.nodes[1].broker._catalog
        assert isinstance(catalog, ClusterCatalog)
        with pytest.raises(Fenced):
            await catalog.save("ns", "queue", "orders", "{}")
        await late.__aexit__(None, None, None)
        await made.broker(1).put_queue(QueueDefinition("others"))
        assert queue(made, 0, "others").path == "others"

    run(tmp_path, scenario)


def test_an_entity_that_is_used_anywhere_is_not_idle(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        definition = QueueDefinition("orders", auto_delete_ms=300_000)
        await made.broker(0).put_queue(definition)
        user = next(
            index
            for index in (0, 1)
            if not made.nodes[index].node.has_store(queue(made, index).place.stores[0])
        )
        link = _Link()
        queue(made, user).link_attached(link)
        for _ in range(3):
            await _pass(made, 200_000)
            assert made.broker(0).find("ns", "orders") is not None
        queue(made, user).link_detached(link)
        await _pass(made, 299_000)
        assert made.broker(0).find("ns", "orders") is not None
        for _ in range(4):
            await _pass(made, 301_000)
        await until(lambda: made.broker(0).find("ns", "orders") is None)
        assert made.broker(1).find("ns", "orders") is None

    run(tmp_path, scenario)


def test_counting_opens_nothing_that_was_never_written_to(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        await made.broker(0).put_queue(QueueDefinition("orders", partitions=16))
        assert (await count(queue(made, 0))).total == 0
        for index in (0, 1):
            assert not any(each.is_open for each in local_workers(made, index))
        await sent(queue(made, 0), "a")
        assert (await count(queue(made, 1))).active == 1

    run(tmp_path, scenario)


def test_what_was_deleted_while_a_node_was_away_is_dropped_when_it_is_back(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        await made.broker(0).put_queue(QueueDefinition("orders", partitions=16))
        for number in range(16):
            await sent(queue(made, 0), f"m{number}")
        await made.nodes[1].vanish()
        await until(lambda: queue(made, 0).partitions.availability == "Limited")
        assert await made.broker(0).remove("orders")
        assert [kind for _, kind, _, _ in await made.catalog.load()] == ["dropped"]
        await made.nodes[1].broker.close()
        made.nodes[1] = made.make(1)
        await made.nodes[1].start()
        while await made.catalog.load():
            await settle_down()

    run(tmp_path, scenario)


def test_a_change_that_rests_is_known_to_all_though_its_node_is_gone(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        may_go_on = asyncio.Event()
        begun = asyncio.Event()
        replace = made.catalog.replace

        async def slowly(*arguments: Any) -> None:
            begun.set()
            await may_go_on.wait()
            await replace(*arguments)

        vars(made.catalog)["replace"] = slowly  # as a slow disk does
        making = asyncio.ensure_future(made.broker(1).put_queue(QueueDefinition("orders")))
        await begun.wait()
        await made.nodes[1].vanish()
        waiting = asyncio.ensure_future(made.broker(0).put_queue(QueueDefinition("others")))
        await settle_down()
        assert not waiting.done(), "the turn ends with the write"
        may_go_on.set()
        await waiting
        assert queue(made, 0, "orders").path == "orders"
        with pytest.raises(StoreError):
            await making

    run(tmp_path, scenario)


def test_a_node_that_cannot_apply_a_change_is_let_go(tmp_path: Path) -> None:
    """It would go on with what is no longer true."""

    async def scenario(made: ClusterHarness) -> None:
        lost: list[int] = []
        made.coordinator.on_lost = lost.append

        async def fails(*_: Any) -> None:
            raise ZeroDivisionError

        vars(made.broker(1))["apply"] = fails  # a fault that nobody has thought of
        await made.broker(0).put_queue(QueueDefinition("orders"))
        await until(lambda: lost == [1])

    run(tmp_path, scenario)


def local_workers(made: ClusterHarness, index: int, path: str = "orders") -> list[PartitionDoor]:
    entity = queue(made, index, path)
    return [each for each in entity.partitions.workers if isinstance(each, PartitionWorker)]


def _has(receiver: Recorder, count: int) -> bool:
    return len(receiver.deliveries()) == count


def test_a_wish_for_a_session_that_is_withdrawn_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        await made.broker(0).put_queue(QueueDefinition("orders", requires_session=True))
        here = 1 - owner_of(made)
        node = next(iter(made.nodes[here].node.nodes.values()))
        for number in range(2_400):
            origin = Recorder()
            queue(made, here).submit(AcceptSession(origin, 1, MAIN, PEEK_LOCK, None, 1 << 50))
            queue(made, here).submit(CloseReceiver(origin, False))
            if number % 100 == 0:
                await settle_down()
        assert len(node._origins) < 1_600

    run(tmp_path, scenario)


def test_a_turn_that_nobody_waits_for_any_more_is_given_back(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        held = made.nodes[0].node.changing
        await held.__aenter__()
        waiting = asyncio.ensure_future(made.broker(1).put_queue(QueueDefinition("orders")))
        await settle_down()
        waiting.cancel()
        await settle_down()
        await held.__aexit__(None, None, None)
        await made.broker(1).put_queue(QueueDefinition("others"))
        assert queue(made, 0, "others").path == "others"

    run(tmp_path, scenario)


def test_what_was_taken_for_a_node_that_is_gone_goes_back(tmp_path: Path) -> None:
    async def scenario(made: ClusterHarness) -> None:
        await made.broker(0).put_queue(QueueDefinition("orders"))
        owner = owner_of(made)
        here = 1 - owner
        receiver = Recorder()
        queue(made, here).submit(OpenReceiver(receiver, MAIN, RECEIVE_AND_DELETE))
        queue(made, here).submit(Grant(receiver, 5, False))
        await until(lambda: queue(made, owner).partitions.workers[0].is_open)
        # In one turn: the message is taken for a receiver whose node goes in that moment.
        origin = Recorder()
        queue(made, owner).submit(SendMany(origin, [1], [message("kept")]))
        for host in made.nodes[owner].node._hosts:
            host._host.lost()  # as when the connection ends
        await until(origin.has_replies)
        while (await count(queue(made, owner))).active != 1:
            await settle_down()

    run(tmp_path, scenario)


async def _pass(made: ClusterHarness, duration_ms: int) -> None:
    made.clock.advance(duration_ms)
    for node in made.nodes:
        node.timers.advance(0)
    for _ in range(20):
        await settle_down()


class _Link:
    def dismiss(self, _refusal: Any) -> None:
        """It goes."""
