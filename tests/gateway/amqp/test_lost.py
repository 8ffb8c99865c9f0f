"""Connections that are gone: nothing of them waits in memory for a collection."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from peeklock.amqp.events import Closed
from peeklock.amqp.parting import come_apart
from peeklock.amqp.sasl import plain as plain_credential
from peeklock.amqp.values.composites import ACCEPTED
from peeklock.auth.rights import DEVELOPMENT_KEY, ROOT_RULE_NAME
from peeklock.budgets import Budgets
from peeklock.gateway.quotas.shared_limits import SharedLimits
from peeklock.gateway.quotas.wrong_key_throttle import FREE_MAX
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, plain, request, serve


async def busy(bus: AmqpHarness, shared_limits: SharedLimits) -> Client:
    """A connection that uses everything there is."""
    client = await bus.authorized(shared_limits=shared_limits)
    sender = await client.sender()
    await client.send(sender, *[plain("x" * 1_000)] * 20)
    client.post(sender, plain("settled"), settled=True)
    await client.receiver(credit=5)
    receiver = await client.receiver(credit=5)
    ids = [delivery.id for delivery in client.arrived(receiver)]
    await client.settle(receiver, ids[:2], ACCEPTED)
    requests, responses = await client.request_links("q/$management")
    responses.grant(0)
    client.post(requests, request({"operation": "com.microsoft:peek-message"}, {}, "id"))
    other = client.connection.begin_session()
    other.attach_sender("other", sender.target)
    await client.talk()
    other.end()
    await client.talk()
    other.come_apart()  # the client's half
    refused = client.ask_sender("nothing-there")
    assert (await client.refused(refused)).condition == "amqp:unauthorized-access"
    return client


def test_a_lost_connection_leaves_nothing_to_collect() -> None:
    async def talk(bus: AmqpHarness) -> None:
        budgets = Budgets()
        shared_limits = SharedLimits(budgets)
        await (await busy(bus, shared_limits)).talk()  # what is kept once is not counted
        gc.collect()
        gc.disable()
        try:
            client: Any = await busy(bus, shared_limits)
            client.peer.lost()
            await client.talk()
            await bus.bench.advance(1_000)
            come_apart(client.connection)
            del client
            assert gc.collect() == 0
        finally:
            gc.enable()
        used = {budget.name: budget.used for budget in budgets}
        assert used["amqp_connections_without_token"] == 0
        assert used["amqp_bytes_held_without_token"] == 0

    serve(talk)


def test_what_strangers_hold_is_given_back() -> None:
    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits()
        client = await bus.connect(shared_limits=shared_limits)
        client._cbs = await client.request_links("$cbs")
        client.pipe.unread_bytes = 5_000
        client.session.write_flow()
        await client.talk()
        assert shared_limits.unauthenticated.count == 1
        assert shared_limits.unauthenticated_bytes.used > 5_000
        await client.put_token("q")
        assert shared_limits.unauthenticated.count == 0
        assert shared_limits.unauthenticated_bytes.used == 0
        assert 0 < shared_limits.held_bytes.used < 2_000
        client.peer.lost()
        assert shared_limits.held_bytes.used == 0

    serve(talk)


def test_a_stranger_that_leaves_answers_unread_is_cut_off() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        client.pipe.unread_bytes = 100_000
        client.session.write_flow()
        await client.talk()
        assert client.pipe.is_closed

    serve(talk)


def test_unauthenticated_connections_make_room_for_others() -> None:
    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits(unauthenticated_bytes_max=60_000)
        first = await bus.connect(shared_limits=shared_limits)
        await first.sender("$cbs", properties={"x": "y" * 40_000})
        second = await bus.connect(shared_limits=shared_limits)
        await second.sender("$cbs", properties={"x": "y" * 40_000})
        assert first.pipe.is_closed
        assert not second.pipe.is_closed

    serve(talk)


def test_one_stranger_goes_where_that_is_enough() -> None:
    """What it left unread counted until the system said that it is gone: all of them went."""

    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits(unauthenticated_bytes_max=100_000)
        crowd = [await bus.connect(shared_limits=shared_limits) for _ in range(8)]
        for each in crowd:
            each.pipe.unread_bytes = 12_000
            each.session.write_flow()
            await each.talk()
        newcomer = await bus.connect(shared_limits=shared_limits)
        await newcomer.sender("$cbs", properties={"x": "y" * 10_000})
        assert sum(each.pipe.is_closed for each in crowd) == 1
        assert not newcomer.pipe.is_closed
        for each in [*crowd, newcomer]:
            each.peer.lost()
        assert shared_limits.unauthenticated_bytes.used == 0
        assert shared_limits.unauthenticated.count == 0

    serve(talk)


def test_what_strangers_have_half_said_is_held() -> None:
    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits()
        client = await bus.connect(shared_limits=shared_limits)
        before = shared_limits.unauthenticated_bytes.used
        empty = (40_000).to_bytes(4, "big") + b"\x04\x00\x00\x00" + bytes(30_000)
        client.peer.receive(empty[:20_000], 0)
        assert shared_limits.unauthenticated_bytes.used == before + 20_000
        client.peer.receive(empty[20_000:], 0)
        assert shared_limits.unauthenticated_bytes.used == before + len(empty)
        client.peer.lost()
        assert shared_limits.unauthenticated_bytes.used == 0

    serve(talk)


def test_frames_that_wait_for_another_pass_are_held() -> None:
    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits(unauthenticated_bytes_max=200_000)
        patient, greedy = [await bus.connect(shared_limits=shared_limits) for _ in range(2)]
        heartbeat = b"\x00\x00\x00\x08\x02\x00\x00\x00"
        before = shared_limits.unauthenticated_bytes.used
        patient.peer.receive(heartbeat * 2_000, 0)
        assert shared_limits.unauthenticated_bytes.used > before + 8_000
        while patient.peer.is_behind:
            patient.peer.receive(b"", 0)
        assert shared_limits.unauthenticated_bytes.used == before
        assert not patient.pipe.is_closed
        greedy.peer.receive(heartbeat * 30_000, 0)
        assert greedy.pipe.is_closed

    serve(talk)


def test_who_holds_most_goes_where_nothing_else_frees_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Attaches cannot be given up: everybody else was refused."""

    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits(held_bytes_max=300_000)
        greedy = await bus.authorized(shared_limits=shared_limits)
        for _ in range(5):
            await greedy.sender(properties={"x": "y" * 50_000})
        assert shared_limits.held_bytes.used > 250_000
        modest = await bus.authorized(shared_limits=shared_limits)
        link = await modest.sender()
        unfinished(modest, link, 130_000)
        await modest.talk()
        assert greedy.pipe.is_closed
        await greedy.talk()
        (closed,) = greedy.take(Closed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:resource-limit-exceeded"
        assert "cut-off" in caplog.text
        assert link in modest.connection.links()
        assert shared_limits.held_bytes.used < 150_000
        greedy.peer.lost()
        modest.peer.lost()
        assert shared_limits.held_bytes.used == 0

    serve(talk)


def test_who_holds_most_is_refused_more_and_stays() -> None:
    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits(held_bytes_max=300_000)
        modest = await bus.authorized(shared_limits=shared_limits)
        greedy = await bus.authorized(shared_limits=shared_limits)
        for _ in range(5):
            await greedy.sender(properties={"x": "y" * 50_000})
        link = await greedy.sender()
        unfinished(greedy, link, 130_000)
        await greedy.talk()
        assert link not in greedy.connection.links()
        assert not greedy.pipe.is_closed
        assert not modest.pipe.is_closed

    serve(talk)


def test_unfinished_messages_of_all_connections_have_a_budget() -> None:
    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits(held_bytes_max=300_000)
        greedy = await bus.authorized(shared_limits=shared_limits)
        for _ in range(2):
            link = await greedy.sender()
            unfinished(greedy, link, 150_000)
        await greedy.talk()
        assert shared_limits.held_bytes.used > 260_000
        modest = await bus.authorized(shared_limits=shared_limits)
        link = await modest.sender()
        unfinished(modest, link, 70_000)
        await modest.talk()
        await greedy.talk()
        assert shared_limits.held_bytes.used < 130_000
        assert modest.connection.links()
        assert await modest.send(await modest.sender(), plain("x"))

    serve(talk)


def unfinished(client: Client, link: Any, size: int) -> None:
    """Send all frames of a message but the last one."""
    output = client.connection.output.parts
    before = len(output)
    client.post(link, plain("x" * size))
    del output[max(before, len(output) - 2) :]


@pytest.mark.parametrize("is_right", [False, True])
def test_keys_wait_for_their_turn_where_many_were_wrong(is_right: bool) -> None:
    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits()
        for _ in range(FREE_MAX + 1):
            wrong = await bus.connect(
                plain_credential(ROOT_RULE_NAME, "wrong"), shared_limits=shared_limits
            )
            assert wrong.pipe.is_closed
            wrong.peer.lost()
        key = DEVELOPMENT_KEY if is_right else "wrong"
        client = await bus.connect(
            plain_credential(ROOT_RULE_NAME, key), shared_limits=shared_limits
        )
        assert not client.pipe.is_closed
        assert not client.connection.authenticated
        gone = await bus.connect(plain_credential(ROOT_RULE_NAME, key), shared_limits=shared_limits)
        gone.peer.lost()
        await bus.advance(client, 1_000)
        assert client.connection.authenticated is is_right
        assert client.pipe.is_closed is not is_right

    serve(talk)


def test_wrong_tokens_end_a_connection() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        for _ in range(20):
            await client.put_token("q", key="wrong")
        assert not client.take(Closed)
        await client.put_token("q", key="wrong")
        assert client.take(Closed)
        known = await bus.authorized()
        for _ in range(30):
            await known.put_token("q", key="wrong")

    serve(talk)
