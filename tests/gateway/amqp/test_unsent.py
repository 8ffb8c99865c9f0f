"""What all connections together have ahead of their readers: one budget, and turns before it."""

from __future__ import annotations

import pytest

from peeklock.amqp.events import Closed, FlowReceived
from peeklock.amqp.frames.termini import Source
from peeklock.budgets import Budget
from peeklock.entity.definition import QueueDefinition
from peeklock.gateway.amqp.unsent import STALLED_MS_MAX, UnsentBudget
from tests.broker.broker_harness import settle_down
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, serve
from tests.gateway.amqp.nodes.test_slow_readers import (
    COUNT,
    LIMITS,
    MODES,
    PEEK_LOCK,
    SIZE,
    Slow,
    _without_window,
    filled,
    numbers,
    slow_receiver,
)

# Eight messages over all, where each reader alone may have five ahead.
LIMIT = 8 * SIZE
# Who holds nothing gets so much all the same.
LEAST = 2 * SIZE


def bounded(bus: AmqpHarness, limit: int = LIMIT) -> Budget:
    budget = Budget("amqp_delivery_bytes", limit)
    bus.namespace_context.unsent_budget = UnsentBudget(budget)
    return budget


def queued(*clients: Client) -> int:
    return sum(client.peer.output.connection.output.queued_size for client in clients)


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_all_slow_readers_together_are_bounded_and_all_comes(mode: int, partitions: int) -> None:
    async def talk(bus: AmqpHarness) -> None:
        budget = bounded(bus)
        await filled(bus)
        readers = [(await slow_receiver(bus, mode))[0] for _ in range(10)]
        clients = [slow.client for slow in readers]
        got: list[int] = []
        rounds = 0
        while len(got) < COUNT:
            assert queued(*clients) <= LIMIT + SIZE + len(readers) * LEAST
            for slow in readers:
                await slow.read()
                got += numbers(slow.client)
            rounds += 1
            assert rounds < 100
        assert sorted(got) == list(range(COUNT))
        for slow in readers:
            await slow.read()
        assert (queued(*clients), budget.used) == (0, 0)
        # What a partition has decided on is for a moment counted beside what the gateway has of it.
        assert budget.peak <= LIMIT + 2 * SIZE + len(readers) * (LEAST + SIZE)

    serve(
        talk,
        QueueDefinition("q", partitions=partitions, batched_store_access=False),
        limits=LIMITS,
    )


def test_many_links_of_one_connection_have_no_message_each_beyond_the_budget() -> None:
    paths = [f"q{number}" for number in range(20)]

    async def talk(bus: AmqpHarness) -> None:
        budget = bounded(bus)
        client = await bus.authorized(paths[0])
        for path in paths:
            await filled(bus, path, 3)
            await client.put_token(path)
        slow = Slow(client, 1 << 30)
        links = [await client.receiver(path) for path in paths]
        client.peer.hold_writing()
        client.peer.resume_writing()
        slow.takes = 1
        for link in links:
            link.grant(100)
        await slow.say()
        got: list[int] = []
        rounds = 0
        while len(got) < 3 * len(paths):
            assert queued(client) <= LIMIT + SIZE
            await slow.read()
            got += numbers(client)
            rounds += 1
            assert rounds < 200
        await slow.read()
        assert budget.used == 0

    definitions = [QueueDefinition(path, batched_store_access=False) for path in paths]
    serve(talk, *definitions, limits=LIMITS)


def test_readers_that_wait_for_messages_hold_nothing() -> None:
    """Credit for an empty queue is no memory: whoever comes later is served."""

    async def talk(bus: AmqpHarness) -> None:
        budget = bounded(bus)
        for _ in range(10):
            other = await bus.authorized()
            await other.receiver(credit=100)
        assert budget.used == 0
        sender = await filled(bus, count=3)
        assert budget.used == 0
        assert budget.refused == 0
        assert sender.peer.output.unsent_budget is bus.namespace_context.unsent_budget

    serve(talk, limits=LIMITS)


@pytest.mark.parametrize("mode", MODES)
def test_who_reads_is_served_while_others_hold_everything(mode: int) -> None:
    async def talk(bus: AmqpHarness) -> None:
        budget = bounded(bus)
        await filled(bus)
        stalled = [(await slow_receiver(bus, mode))[0] for _ in range(6)]
        assert budget.is_exhausted
        quick = await bus.authorized()
        await quick.receiver(source=Source(address="q"), credit=1_000)
        got = numbers(quick)
        assert got
        for slow in stalled:
            slow.client.peer.lost()
        await quick.talk()
        got += numbers(quick)
        assert len(got) >= COUNT - 18
        assert budget.used == 0

    serve(talk, limits=LIMITS)


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_drain_is_answered_while_others_hold_everything(partitions: int) -> None:
    """It is answered after all there is, as if the budget had no end."""

    async def talk(bus: AmqpHarness) -> None:
        budget = bounded(bus)
        await filled(bus)
        stalled = [(await slow_receiver(bus, PEEK_LOCK))[0] for _ in range(6)]
        assert budget.is_exhausted
        assert len(stalled) == 6
        quick = await bus.authorized()
        link = await quick.receiver()
        quick.take(FlowReceived)
        link.grant(10)
        link.drain_credit()
        await quick.talk()
        assert len(numbers(quick)) == 10
        assert quick.take(FlowReceived)

    serve(
        talk,
        QueueDefinition("q", partitions=partitions, batched_store_access=False),
        limits=LIMITS,
    )


def test_a_window_that_stays_closed_is_cut_off_when_others_wait() -> None:
    async def talk(bus: AmqpHarness) -> None:
        budget = bounded(bus, 4 * SIZE)
        await filled(bus)
        stalled = await bus.authorized()
        await stalled.receiver(source=Source(address="q"))
        stalled.peer.receive(_without_window(stalled), bus.clock.now())
        await settle_down()
        assert budget.is_exhausted
        quick = await bus.authorized()
        await quick.receiver(credit=1_000)
        got = numbers(quick)
        assert got
        at = bus.clock.now()
        stalled.peer.tick(at)
        stalled.peer.tick(at + STALLED_MS_MAX - 1)
        assert not stalled.peer.output.connection.closed
        stalled.peer.tick(at + STALLED_MS_MAX)
        await stalled.talk()
        assert stalled.take(Closed)
        await quick.talk()
        got += numbers(quick)
        assert len(got) >= COUNT - 2

    serve(talk, limits=LIMITS)


def test_a_long_line_is_served_in_several_steps() -> None:
    class Waiting:
        asked = 0

        def flowed(self) -> None:
            Waiting.asked += 1

    later: list[object] = []
    unsent_budget = UnsentBudget(Budget("x", 10), later.append)
    for _ in range(150):
        unsent_budget.line[Waiting()] = True
    unsent_budget.budget.take_anyway(10)
    unsent_budget.serve()
    assert Waiting.asked == 0
    unsent_budget.count(10, 5)
    steps = [64, 128, 150]
    unsent_budget.serve()
    unsent_budget.serve()
    for step in steps:
        assert Waiting.asked == step
        if later:
            go_on = later.pop()
            assert callable(go_on)
            go_on()
    assert not unsent_budget.line
