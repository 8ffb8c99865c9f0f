"""The low-water mark for memory: sends are refused, receiving and settling make room."""

from __future__ import annotations

import asyncio

from peeklock.broker.worker.memory_mark import (
    NAME,
    Forecast,
    MemoryMark,
    default_mark,
    memory_of_machine,
)
from peeklock.budgets import Budget
from peeklock.entity.blueprint import (
    FIRST_SUBSCRIPTION_LANE,
    Blueprint,
    Copy,
    queue_blueprint,
    subscription_policy,
    topic_blueprint,
)
from peeklock.entity.commands import (
    COMPLETE,
    MAIN,
    PEEK_LOCK,
    Command,
    Grant,
    OpenReceiver,
    PublishStages,
    Schedule,
    SendBatch,
    SendMany,
    SettleMany,
    Stage,
)
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.message import Message
from peeklock.entity.refusals import BUSY
from peeklock.entity.replies import NOBODY, Refused, SendsAccepted
from peeklock.entity.rules.filter import SqlFilter
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.entity.rules.topic import TopicRules
from peeklock.entity.settlement import Settlement
from peeklock.entity.upkeep.memory import COPY_BYTES, ENTRY_BYTES, SEEN_BYTES, SESSION_BYTES
from tests.broker.broker_harness import BrokerHarness, Recorder, message, settle_down, token


def fates(origin: Recorder) -> list[str]:
    """What became of each send, in order."""
    found: list[str] = []
    for reply in origin.take():
        if isinstance(reply, SendsAccepted):
            found += ["accepted"] * len(reply.tags)
        elif isinstance(reply, Refused):
            found += [reply.refusal.kind] * len(reply.tags)
    return found


def test_sends_are_refused_at_the_mark_until_there_is_room() -> None:
    """R-T2: busy is retryable; who receives and settles is served all the time."""

    async def whole() -> None:
        mark = MemoryMark(Budget(NAME, 1_000 * ENTRY_BYTES))
        bench = BrokerHarness(memory=mark)
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
        queue.submit(
            SettleMany(
                reader, list(range(50)), Settlement(COMPLETE), [token(d) for d in locked[:50]]
            )
        )
        await settle_down()
        queue.submit(SendMany(sender, [1], [message("x")]))
        await settle_down()
        assert fates(sender) == [BUSY], "a sixteenth must be free before it goes on"
        rest = [token(each) for each in locked[50:]]
        queue.submit(SettleMany(reader, list(range(150)), Settlement(COMPLETE), rest))
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
        bench = BrokerHarness()
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q", batched_store_access=False))
        queue.submit(SendMany(Recorder(), list(range(500)), [message("x")] * 500))
        await settle_down()
        mark = MemoryMark(Budget(NAME, 100 * ENTRY_BYTES))
        later = BrokerHarness(bench.store, bench.catalog, memory=mark)
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
        bench = BrokerHarness(memory=mark)
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


def test_what_is_published_later_is_refused_like_what_is_published_now() -> None:
    """What is scheduled cannot be refused any more when it falls due."""

    async def whole() -> None:
        mark = MemoryMark(Budget(NAME, 1_000 * COPY_BYTES))
        bench = BrokerHarness(memory=mark)
        await bench.broker.start()
        topic = await bench.broker.put_topic(TopicDefinition("news"))
        for number in range(20):
            await bench.broker.put_subscription(SubscriptionDefinition("news", f"s{number}"))
        sender = Recorder()
        later = message("x", scheduled_at=bench.clock.now() + 60_000)
        topic.submit(SendMany(sender, list(range(40)), [later] * 40))
        await settle_down()
        assert fates(sender) == ["accepted"] * 40
        assert mark.budget.used == 840 * COPY_BYTES
        topic.submit(SendMany(sender, list(range(40)), [later] * 40))
        topic.submit(Schedule(sender, 40, [later] * 40))
        topic.submit(Stage(sender, list(range(40)), [message("x")] * 40, "s"))
        await settle_down()
        assert fates(sender) == [BUSY] * 81
        await bench.broker.close()
        assert mark.budget.used == 0

    asyncio.run(whole())


def test_what_is_staged_can_be_published_although_its_copies_reach_the_mark() -> None:
    mark = MemoryMark(Budget(NAME, 1_000))
    used = mark.weigh(0, 1_000)
    expected = mark.expect(0, 600)
    publish = PublishStages(NOBODY, 1, "writer", 0, ["s"])
    assert mark.is_short
    assert not mark.must_wait(publish)
    assert mark.must_wait(SendMany(NOBODY, [1], [message("x")]))
    mark.weigh(used, 1_600)
    mark.expect(expected, 0)
    assert mark.must_wait(publish)


def filtered(*copies: Copy, lanes: int, cost: int) -> tuple[Blueprint, list[Message]]:
    """A topic that makes these copies of each message, and what its rules were asked about."""
    asked: list[Message] = []

    def route(message: Message, now: int) -> list[Copy]:
        asked.append(message)
        return list(copies)

    blueprint = topic_blueprint(TopicDefinition("news"), route)
    blueprint.rules = TopicRules()
    for number in range(cost - 1):
        blueprint.rules.put(number, RuleSet([Rule("r", SqlFilter(f"a + {number} > 1"))]))
    assert blueprint.rules.cost == cost
    for number in range(lanes):
        lane = FIRST_SUBSCRIPTION_LANE + 2 * number
        blueprint.lanes[lane] = subscription_policy(SubscriptionDefinition("news", str(lane)))
    return blueprint, asked


def test_rules_are_asked_in_stints_how_many_copies_there_will_be_and_once() -> None:
    mark = MemoryMark(Budget(NAME, COPY_BYTES))
    blueprint, asked = filtered(lanes=2, cost=100)
    commands: list[Command] = [SendMany(NOBODY, [1] * 9, [message("x")] * 9) for _ in range(6)]
    forecast = Forecast()
    for count in (8, 16, 24):
        forecast.begin(commands, 0)
        for command in commands:
            if forecast.is_over:
                break
            assert mark.takes(blueprint, command, forecast, 0)
        assert len(asked) == count
    forecast.begin(commands, 0)
    assert all(mark.takes(blueprint, command, forecast, 0) for command in commands)
    assert len(asked) == 24


def test_the_copies_of_a_round_are_counted_together() -> None:
    mark = MemoryMark(Budget(NAME, 100 * COPY_BYTES))
    blueprint, _ = filtered(Copy(4), Copy(6), lanes=3, cost=2)
    commands: list[Command] = [SendMany(NOBODY, [1] * 10, [message("x")] * 10) for _ in range(8)]
    forecast = Forecast()
    forecast.begin(commands, 2)
    fates = [mark.takes(blueprint, command, forecast, 0) for command in commands]
    assert fates == [True] * 5 + [False] * 3


def test_a_batch_that_would_pass_the_mark_is_refused_beforehand() -> None:
    """Hundreds of thousands of tiny messages in one batch passed it by their own size."""

    async def whole() -> None:
        mark = MemoryMark(Budget(NAME, 1_000 * ENTRY_BYTES))
        bench = BrokerHarness(memory=mark)
        await bench.broker.start()
        queue = await bench.broker.put_queue(QueueDefinition("q", batched_store_access=False))
        sender = Recorder()
        queue.submit(SendBatch(sender, 1, [message("x")] * 700))
        await settle_down()
        assert fates(sender) == ["accepted"]
        queue.submit(SendBatch(sender, 2, [message("x")] * 301))
        queue.submit(SendBatch(sender, 3, [message("x")] * 150))
        queue.submit(SendBatch(sender, 4, [message("x")] * 151))
        queue.submit(SendBatch(sender, 5, [message("x")] * 150))
        await settle_down()
        assert sorted(fates(sender)) == ["accepted", "accepted", BUSY, BUSY]
        assert mark.budget.used == 1_000 * ENTRY_BYTES
        assert mark.budget.refused == 2
        await bench.broker.close()

    asyncio.run(whole())


def test_what_never_fits_is_taken_while_half_is_free() -> None:
    """Nobody is refused for ever; how far it passes the mark is bounded by the size of a batch."""
    mark = MemoryMark(Budget(NAME, 100 * ENTRY_BYTES))
    blueprint = queue_blueprint(QueueDefinition("q"))
    command = SendMany(NOBODY, [1], [message("x")] * 101)
    forecast = Forecast()
    forecast.begin([command], 0)
    assert mark.takes(blueprint, command, forecast, 0)
    assert not mark.takes(blueprint, command, forecast, 0), "once in a round"
    forecast.begin([command], 0)
    mark.weigh(0, 51 * ENTRY_BYTES)
    assert not mark.takes(blueprint, command, forecast, 0)


def test_new_sessions_and_ids_are_counted() -> None:
    size = 10 * ENTRY_BYTES + 3 * SESSION_BYTES
    blueprint = queue_blueprint(QueueDefinition("q", requires_session=True))
    messages = [message("x", session_id=f"s{number % 4}") for number in range(10)]
    command = SendMany(NOBODY, list(range(10)), messages)
    for used, is_taken in ((size, True), (size + 1, False)):
        mark = MemoryMark(Budget(NAME, 3 * size))
        mark.weigh(0, size + used)
        forecast = Forecast()
        forecast.begin([command], 0, lambda lane, name: lane == MAIN and name == "s0")
        assert mark.takes(blueprint, command, forecast, 0) is is_taken
    seen = queue_blueprint(QueueDefinition("q", duplicate_window_ms=60_000))
    forecast = Forecast()
    forecast.begin([], 0)
    assert forecast.most_of(seen, messages) == 10 * (ENTRY_BYTES + SEEN_BYTES)


def test_the_mark_is_a_share_of_what_there_is() -> None:
    assert 64 << 20 <= default_mark() <= max(64 << 20, memory_of_machine() // 2)
