"""The low-water mark for memory: sends are refused, receiving and settling make room."""

from __future__ import annotations

import asyncio

from peeklock.broker.memory import NAME, MemoryMark, default_mark, memory_of_machine
from peeklock.budgets import Budget
from peeklock.entity.commands import (
    COMPLETE,
    MAIN,
    PEEK_LOCK,
    Grant,
    OpenReceiver,
    SendMany,
    SettleMany,
)
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.memory import COPY_BYTES, ENTRY_BYTES
from peeklock.entity.refusals import BUSY
from peeklock.entity.replies import Accepted, Refused
from tests.broker.bench import Bench, Recorder, message, settle_down, token


def fates(origin: Recorder) -> list[str]:
    """What became of each send, in order."""
    found: list[str] = []
    for reply in origin.take():
        if isinstance(reply, Accepted):
            found += ["accepted"] * len(reply.tags)
        elif isinstance(reply, Refused):
            found += [reply.refusal.kind] * len(reply.tags)
    return found


def test_sends_are_refused_at_the_mark_until_there_is_room() -> None:
    """R-T2: busy is retryable; who receives and settles is served all the time."""

    async def whole() -> None:
        mark = MemoryMark(Budget(NAME, 1_000 * ENTRY_BYTES))
        bench = Bench(memory=mark)
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q", batched_store_access=False))
        sender, reader = Recorder(), Recorder()
        for number in range(12):
            queue.submit(SendMany(sender, list(range(100)), [message("x")] * 100))
            await settle_down()
            assert fates(sender) == (["accepted"] if number < 10 else [BUSY]) * 100
        assert mark.budget.used == 1_000 * ENTRY_BYTES
        assert mark.budget.refused == 2
        queue.submit(OpenReceiver(reader, MAIN, PEEK_LOCK))
        queue.submit(Grant(reader, 200, False))
        await settle_down()
        locked = reader.deliveries()
        assert len(locked) == 200
        queue.submit(SettleMany(reader, list(range(50)), COMPLETE, [token(d) for d in locked[:50]]))
        await settle_down()
        queue.submit(SendMany(sender, [1], [message("x")]))
        await settle_down()
        assert fates(sender) == [BUSY], "a sixteenth must be free before it goes on"
        rest = [token(each) for each in locked[50:]]
        queue.submit(SettleMany(reader, list(range(150)), COMPLETE, rest))
        await settle_down()
        queue.submit(SendMany(sender, [1], [message("x")]))
        await settle_down()
        assert fates(sender) == ["accepted"]
        await bench.broker.close()
        assert mark.budget.used == 0

    asyncio.run(whole())


def test_a_partition_that_opens_is_counted() -> None:
    """A backlog from before counts before the first send is taken."""

    async def whole() -> None:
        bench = Bench()
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q", batched_store_access=False))
        queue.submit(SendMany(Recorder(), list(range(500)), [message("x")] * 500))
        await settle_down()
        mark = MemoryMark(Budget(NAME, 100 * ENTRY_BYTES))
        later = Bench(bench.store, bench.catalog, memory=mark)
        await later.broker.start()
        again = later.broker.find("ns", "q")
        assert again is not None
        sender = Recorder()
        again.submit(OpenReceiver(Recorder(), MAIN, PEEK_LOCK))
        await settle_down()
        again.submit(SendMany(sender, [1], [message("x")]))
        await settle_down()
        assert fates(sender) == [BUSY]
        assert mark.budget.used == 500 * ENTRY_BYTES

    asyncio.run(whole())


def test_a_publish_is_refused_beforehand_when_its_copies_would_pass_the_mark() -> None:
    """One batch to many subscriptions is many times its own size in memory."""

    async def whole() -> None:
        mark = MemoryMark(Budget(NAME, 1_000 * COPY_BYTES))
        bench = Bench(memory=mark)
        await bench.broker.start()
        topic = await bench.broker.put_topic(TopicDefinition("news"))
        for number in range(20):
            await bench.broker.put_subscription(SubscriptionDefinition("news", f"s{number}"))
        sender = Recorder()
        topic.submit(SendMany(sender, list(range(40)), [message("x")] * 40))
        await settle_down()
        assert fates(sender) == ["accepted"] * 40
        topic.submit(SendMany(sender, list(range(40)), [message("x")] * 40))
        await settle_down()
        assert fates(sender) == [BUSY] * 40, "800 of 1,000 copies are there, 800 are too many"
        topic.submit(SendMany(sender, list(range(5)), [message("x")] * 5))
        await settle_down()
        assert fates(sender) == ["accepted"] * 5
        assert mark.budget.refused == 1
        await bench.broker.close()

    asyncio.run(whole())


def test_the_mark_is_a_share_of_what_there_is() -> None:
    assert 64 << 20 <= default_mark() <= max(64 << 20, memory_of_machine() // 2)
