"""A worker goes on with what one decision left over, and others have their turn in between."""

import asyncio

from peeklock.entity.commands import (
    MAIN,
    PEEK_LOCK,
    Count,
    Grant,
    OpenReceiver,
    SendBatch,
    SendMany,
)
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.replies import Counted, SendsAccepted
from peeklock.entity.stint import STINT_STEPS
from tests.broker.broker_harness import (
    BrokerHarness,
    Recorder,
    contents,
    message,
    settle_down,
    until,
)

MANY = 3 * STINT_STEPS


def test_the_copies_of_a_large_batch_are_made_without_being_asked_for() -> None:
    async def test() -> None:
        bench = BrokerHarness()
        await bench.broker.start()
        topic = await bench.broker.put_topic(TopicDefinition("news"))
        for name in ("a", "b", "c"):
            await bench.broker.put_subscription(SubscriptionDefinition("news", name))
        last = await bench.broker.put_subscription(SubscriptionDefinition("news", "last"))
        reader, sender = Recorder(), Recorder()
        last.submit(OpenReceiver(reader, last.lane, PEEK_LOCK))
        last.submit(Grant(reader, MANY, False))
        texts = [str(number) for number in range(MANY)]
        topic.submit(SendBatch(sender, 1, [message(text) for text in texts]))
        await until(lambda: len(reader.deliveries()) == MANY)
        assert sender.replies == [SendsAccepted(sender, [1])]
        assert contents(reader.deliveries()) == texts
        for entity in bench.broker.entities():
            await entity.partitions.close()

    asyncio.run(test())


def test_what_falls_due_together_comes_without_being_asked_for() -> None:
    async def test() -> None:
        bench = BrokerHarness()
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q"))
        origin = Recorder()
        due = bench.clock.now() + 1_000
        scheduled = [message("m", scheduled_at=due) for _ in range(MANY)]
        queue.submit(SendMany(origin, list(range(MANY)), scheduled))
        await settle_down()
        await bench.advance(1_000)

        def is_there() -> bool:
            counted = [each for each in origin.replies if isinstance(each, Counted)]
            queue.submit(Count(origin, 1, MAIN))
            return bool(counted) and counted[-1].active == MANY

        await until(is_there)
        for entity in bench.broker.entities():
            await entity.partitions.close()

    asyncio.run(test())
