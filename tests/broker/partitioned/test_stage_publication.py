"""Stages in the broker: over several partitions, in steps, on topics and on stores that fail."""

from __future__ import annotations

import asyncio

import pytest

from peeklock.broker.worker.partition_worker import PartitionWorker
from peeklock.entity.commands import (
    MAIN,
    Command,
    DropStages,
    Peek,
    PublishStages,
    SendMany,
    Stage,
)
from peeklock.entity.definition import SubscriptionDefinition, TopicDefinition
from peeklock.entity.refusals import BUSY, NOT_ALLOWED, UNAVAILABLE
from peeklock.entity.replies import BatchPublished, Found, Numbered, Refused, Reply, SendsAccepted
from peeklock.entity.routing import partition_of_key
from peeklock.entity.stages.partition_stages import STAGE_GRACE_MS, STAGE_TIMEOUT_MS
from tests.broker.broker_harness import BrokerHarness, Recorder, contents, message, settle_down
from tests.broker.partitioned.harness import PARTITIONS, PartitionedHarness, calm, key_for, run

# Whose batches the first partition decides on.
WRITER = key_for(0)


async def stage(bench: PartitionedHarness, name: str, index: int, *texts: str) -> None:
    """Stage messages in one partition."""
    origin = Recorder()
    messages = [message(text, partition_key=key_for(index)) for text in texts]
    tags = list(range(len(texts)))
    assert await bench.ask(Stage(origin, tags, messages, name)) == SendsAccepted(origin, tags)


async def publish(bench: PartitionedHarness, batch: int, *stages: str) -> Reply:
    return await bench.ask(PublishStages(Recorder(), 7, WRITER, batch, list(stages)))


async def published(bench: PartitionedHarness, batch: int, *stages: str) -> int:
    reply = await publish(bench, batch, *stages)
    assert isinstance(reply, BatchPublished), reply
    return reply.count


async def drop(bench: PartitionedHarness, *stages: str, prefix: str | None = None) -> int:
    reply = await bench.ask(DropStages(Recorder(), 7, list(stages), prefix, []))
    assert isinstance(reply, Numbered)
    return reply.numbers[0]


async def peeked(bench: PartitionedHarness) -> list[str]:
    reply = await bench.ask(Peek(Recorder(), 1, MAIN, 0, 1000, 1 << 20))
    assert isinstance(reply, Found)
    return sorted(contents(reply.deliveries))


def kind_of(reply: object) -> str:
    assert isinstance(reply, Refused)
    return reply.refusal.kind


def test_the_first_partition_decides_here() -> None:
    assert partition_of_key(WRITER, PARTITIONS) == 0


def test_staged_messages_are_spread_and_published_everywhere() -> None:
    """R-P3, R-D1."""

    async def walk(bench: PartitionedHarness) -> None:
        origin = Recorder()
        messages = [message(str(each), partition_key=key_for(each)) for each in range(PARTITIONS)]
        messages.append(message("anywhere"))
        messages.append(message("nowhere", session_id="a", partition_key="b"))
        await bench.do(Stage(origin, list(range(6)), messages, "s"))
        replies = origin.take()
        assert kind_of(next(each for each in replies if isinstance(each, Refused))) == NOT_ALLOWED
        taken = [tag for each in replies if isinstance(each, SendsAccepted) for tag in each.tags]
        assert sorted(taken) == [0, 1, 2, 3, 4]
        assert await peeked(bench) == []
        assert await published(bench, 0, "s") == 5
        assert await peeked(bench) == ["0", "1", "2", "3", "anywhere"]
        assert await published(bench, 0, "s") == 0
        assert await published(bench, 1) == 0

    run(walk)


def test_a_batch_of_staged_messages_has_one_key() -> None:
    """R-T5, R-P3."""

    async def walk(bench: PartitionedHarness) -> None:
        mixed = [message("a", partition_key=key_for(0)), message("b", partition_key=key_for(1))]
        origin = Recorder()
        reply = await bench.ask(Stage(origin, [3], mixed, "s", True))
        assert kind_of(reply) == NOT_ALLOWED
        same = [message("a", partition_key=key_for(1)), message("b", partition_key=key_for(1))]
        for messages in (same, [message("c"), message("d")]):
            reply = await bench.ask(Stage(origin, [3], messages, "s", True))
            assert reply == SendsAccepted(origin, [3])
        assert await published(bench, 0, "s") == 4

    run(walk)


@pytest.mark.parametrize("is_whole", [True, False])
def test_staged_messages_without_a_key_go_round_a_lost_partition(is_whole: bool) -> None:
    """R-P4."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS - 1):
            bench.stores[index].is_down = True
        for number in range(PARTITIONS):
            origin = Recorder()
            reply = await bench.ask(Stage(origin, [5], [message(str(number))], "s", is_whole))
            assert reply == SendsAccepted(origin, [5])
        for index in range(PARTITIONS - 1):
            await bench.give_back(index)
        assert await published(bench, 0, "s") == PARTITIONS

    run(walk)


def test_nothing_is_published_while_a_partition_is_known_to_be_lost() -> None:
    """R-D1: retryable, and a repeat completes it."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await stage(bench, "s", index, str(index))
        await bench.take_away(2)
        assert kind_of(await publish(bench, 0, "s")) == UNAVAILABLE
        reply = await bench.ask(DropStages(Recorder(), 7, ["s"], None, []))
        assert kind_of(reply) == UNAVAILABLE
        await bench.give_back(2)
        assert await peeked(bench) == []
        assert await published(bench, 0, "s") == 4

    run(walk)


@pytest.mark.parametrize("lost", range(PARTITIONS))
@pytest.mark.parametrize("again", ["the same", "others", "after a drop"])
def test_a_partition_lost_while_publishing_neither_loses_nor_doubles(lost: int, again: str) -> None:
    """R-D1: whatever comes again, and wherever its messages are then."""

    async def walk(bench: PartitionedHarness) -> None:
        texts = [str(each) for each in range(PARTITIONS)]
        for index, text in enumerate(texts):
            await stage(bench, "first", index, text)
        bench.stores[lost].is_down = True  # nobody knows yet
        assert kind_of(await publish(bench, 0, "first")) == UNAVAILABLE
        await bench.give_back(lost)
        names = ["first"]
        if again == "after a drop":
            dropped = await drop(bench, prefix="fi")
            # Only where nothing was published yet may all of it be given up.
            assert dropped == (PARTITIONS if lost == 0 else 0)
        if again == "others" or (again == "after a drop" and lost == 0):
            names = ["second"]
            for index, text in enumerate(texts):
                await stage(bench, "second", (index + 1) % PARTITIONS, text)
        await published(bench, 0, *names)
        assert await peeked(bench) == texts
        # With those of a batch that was not begun nothing has happened.
        left = PARTITIONS if again == "others" and lost == 0 else 0
        assert await drop(bench, "first", "second") == left
        assert await published(bench, 0, *names) == 0
        assert await published(bench, -1, *names) == 0
        assert await peeked(bench) == texts

    run(walk)


@pytest.mark.parametrize("returning", [[2], [0, 2], [2, 0], [3, 2, 1, 0]])
def test_what_is_decided_is_carried_on_without_its_writer(returning: list[int]) -> None:
    """R-D1: a writer that comes back after days finds all of its batch, not a part of it whose
    rest is dropped by then."""

    async def walk(bench: PartitionedHarness) -> None:
        texts = [str(each) for each in range(PARTITIONS)]
        for index, text in enumerate(texts):
            await stage(bench, "first", index, text)
        bench.stores[2].is_down = True  # nobody knows yet
        assert kind_of(await publish(bench, 0, "first")) == UNAVAILABLE
        for index in returning:
            await bench.take_away(index)
        for index in returning:
            await bench.give_back(index)
        await bench.advance(STAGE_TIMEOUT_MS + STAGE_GRACE_MS)
        for index, text in enumerate(texts):
            await stage(bench, "second", (index + 1) % PARTITIONS, text)
        assert await published(bench, 0, "second") == 0
        assert await peeked(bench) == texts
        assert await drop(bench, prefix="") == 0

    run(walk)


def test_what_is_not_decided_waits_for_its_writer() -> None:
    """R-D1: also where it has the name of a stage that was published before."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await stage(bench, "s", index, "a")
        assert await published(bench, 0, "s") == PARTITIONS
        for index in range(PARTITIONS):
            await stage(bench, "s", index, "b")
            await stage(bench, "t", index, "c")
        for index in range(PARTITIONS):
            await bench.take_away(index)
            await bench.give_back(index)
        assert await peeked(bench) == ["a"] * PARTITIONS
        assert await published(bench, 1, "s", "t") == 2 * PARTITIONS

    run(walk)


def test_stages_are_dropped_in_all_partitions() -> None:
    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await stage(bench, "a/1", index, "x")
            await stage(bench, "a/2", index, "x")
            await stage(bench, "b", index, "x")
        assert await drop(bench, "a/1", "none") == PARTITIONS
        assert await drop(bench, prefix="a/") == PARTITIONS
        assert await published(bench, 0, "a/1", "a/2", "b") == PARTITIONS

    run(walk)


@pytest.mark.parametrize("is_drop_first", [True, False])
@pytest.mark.parametrize("partition_index", range(PARTITIONS))
def test_a_drop_and_a_publish_at_once_leave_no_half(
    is_drop_first: bool, partition_index: int
) -> None:
    """R-D1: all of it is published or all of it is dropped, whoever is heard first where."""

    async def walk(bench: PartitionedHarness) -> None:
        for index in range(PARTITIONS):
            await stage(bench, "s", index, "x")
        publishing, dropping = Recorder(), Recorder()
        commands: list[Command] = [
            DropStages(dropping, 7, [], "s", []),
            PublishStages(publishing, 7, key_for(partition_index), 0, ["s"]),
        ]
        await bench.do(*(commands if is_drop_first else reversed(commands)))
        (published_now,), (dropped,) = publishing.take(), dropping.take()
        assert isinstance(published_now, BatchPublished)
        assert isinstance(dropped, Numbered)
        counts = (published_now.count, dropped.numbers[0])
        assert counts in ((PARTITIONS, 0), (0, PARTITIONS))
        assert len(await peeked(bench)) == published_now.count

    run(walk)


def test_a_store_short_of_space_neither_stages_nor_publishes_but_drops() -> None:
    """R-T2."""

    async def walk(bench: PartitionedHarness) -> None:
        await stage(bench, "s", 0, "a")
        for store in bench.stores:
            store.full = True
        assert kind_of(await bench.ask(Stage(Recorder(), [1], [message("b")], "s"))) == BUSY
        assert kind_of(await publish(bench, 0, "s")) == BUSY
        assert await drop(bench, "s") == 1

    run(walk)


# One partition.


def test_a_publish_in_steps_is_carried_on_by_its_worker() -> None:
    """R-D1: whoever asked hears once, when all is done."""

    async def walk(bench: PartitionedHarness) -> None:
        await stage(bench, "s", 1, *[str(each) for each in range(10)])
        partition = bench.workers[1]._partition
        assert partition is not None
        partition._staging.count_max = 3
        before = bench.stores[1].appends
        assert await published(bench, 0, "s") == 10
        assert bench.stores[1].appends == before + 4
        assert len(await peeked(bench)) == 10

    run(walk)


def test_an_opened_partition_goes_on_with_what_was_begun() -> None:
    """R-D1."""

    async def walk(bench: PartitionedHarness) -> None:
        await stage(bench, "s", 0, *[str(each) for each in range(10)])
        partition = bench.workers[0]._partition
        assert partition is not None
        partition._staging.count_max = 4
        decision = partition.decide([PublishStages(Recorder(), 7, WRITER, 0, ["s"])], 1)
        # As if the process had ended when this was stored.
        worker = bench.workers[0]
        store = bench.stores[0]
        epoch = worker._epoch
        await store.append(worker.id, epoch, decision.first_position, decision.records)
        await bench.take_away(0)
        await bench.give_back(0)
        assert len(await peeked(bench)) == 10
        assert await published(bench, 0, "s") == 0

    run(walk)


def test_whoever_publishes_in_steps_is_answered_once_also_where_the_partition_fails() -> None:
    """R-D1: a round that fails after its first step has refused the wish, and does not go on with
    it in the name of who asked."""

    async def walk(bench: PartitionedHarness) -> None:
        worker, store = bench.workers[1], bench.stores[1]
        worker._budget.left = 0
        await bench.ask(SendMany(Recorder(), [0], [message("seen", partition_key=key_for(1))]))
        await stage(bench, "s", 1, *[str(each) for each in range(10)])
        assert worker._partition is not None
        worker._partition._staging.count_max = 3
        origin = Recorder()
        store.is_unreadable = True
        worker.submit(PublishStages(origin, 7, WRITER, 0, ["s"]))
        worker.submit(Peek(Recorder(), 8, MAIN, 0, 10, 1 << 20))
        await calm()
        assert [kind_of(reply) for reply in origin.take()] == [UNAVAILABLE]
        store.is_unreadable = False
        await bench.give_back(1)
        assert origin.take() == []
        assert len(await peeked(bench)) == 11

    run(walk)


def test_bodies_that_are_not_in_memory_are_fetched_for_a_topic() -> None:
    """R-D1: also where messages and their publishing come in one round."""

    async def walk() -> None:
        bench = BrokerHarness()
        topic = await bench.broker.put_topic(TopicDefinition("t"))
        subscription = await bench.broker.put_subscription(SubscriptionDefinition("t", "s"))
        worker = topic.partitions.workers[0]
        assert isinstance(worker, PartitionWorker)
        worker._budget.left = 0
        origin = Recorder()
        topic.submit(Stage(origin, [1, 2], [message("a"), message("b")], "s"))
        topic.submit(PublishStages(origin, 3, "w", 0, ["s"]))
        await settle_down()
        told = [SendsAccepted(origin, [1, 2]), BatchPublished(origin, 3, 2, ["s"])]
        assert origin.take() == told
        subscription.submit(Peek(origin, 4, subscription.lane, 0, 9, 999))
        await settle_down()
        assert contents(origin.deliveries()) == ["a", "b"]
        assert worker._budget.left == 0
        await bench.broker.close()

    asyncio.run(walk())
