"""Settlements that were refused: the lock is as it was, and whatever is said next is answered."""

from __future__ import annotations

import pytest

from peeklock.amqp.frames.states import Accepted, Released
from peeklock.amqp.values.composites import ACCEPTED, RELEASED
from tests.gateway.amqp.amqp_harness import AmqpHarness, condition_of, plain, serve
from tests.gateway.amqp.nodes.transacting import (
    Control,
    group,
    peeked,
    send_within,
    settle_within,
    two_queues,
)


@pytest.mark.parametrize("again", ["plain", "release", "within"])
def test_a_refused_settlement_can_be_done_again(again: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        await client.send(await client.sender("q"), plain("a"))
        receiver = await client.receiver("q", credit=1)
        (delivery,) = client.arrived(receiver)
        ids = [delivery.id]
        elsewhere = await bus.authorized("other")
        txn = await control.declare()
        # The transaction is unknown to its connection, or doomed by what was refused before.
        unknown = await (await Control.of(elsewhere)).declare()
        for _ in range(2):
            answer = await settle_within(client, receiver, ids, unknown)
            assert condition_of(answer) == "amqp:transaction:unknown-id"
        refused = await send_within(client, await client.sender("q"), b"\xff", txn)
        assert condition_of(refused) == "amqp:decode-error"
        answer = await settle_within(client, receiver, ids, txn)
        assert condition_of(answer) == "com.microsoft:argument-error"
        await control.roll_back(txn)
        if again == "within":
            txn = await control.declare()
            assert isinstance(await settle_within(client, receiver, ids, txn), Accepted)
            assert isinstance(await control.commit(txn), Accepted)
        else:
            state = ACCEPTED if again == "plain" else RELEASED
            (answer,) = await client.settle(receiver, ids, state)
            assert isinstance(answer, Accepted if again == "plain" else Released)
        assert await peeked(bus, "q") == (["a"] if again == "release" else [])
        # Now it is settled for good, which is an answer too.
        (answer,) = await client.settle(receiver, ids, ACCEPTED)
        assert condition_of(answer) == "com.microsoft:message-lock-lost"

    serve(talk, *two_queues())


def test_what_is_beyond_a_hundred_can_be_settled_alone() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        await client.send(await client.sender(), *[plain(str(n)) for n in range(101)])
        receiver = await client.receiver(credit=101)
        ids = [delivery.id for delivery in client.arrived(receiver)]
        txn = await control.declare()
        assert isinstance(await settle_within(client, receiver, ids[:100], txn), Accepted)
        answer = await settle_within(client, receiver, ids[100:], txn)
        assert condition_of(answer) == "amqp:resource-limit-exceeded"
        await control.roll_back(txn)
        (answer,) = await client.settle(receiver, ids, ACCEPTED)
        assert isinstance(answer, Accepted)
        assert await peeked(bus, "q") == []

    serve(talk)


def test_what_is_kept_is_bounded() -> None:
    """The oldest is answered as settled; its lock token still settles it."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        await client.send(await client.sender(), *[plain(str(n)) for n in range(4)])
        receiver = await client.receiver(credit=4)
        ids = [delivery.id for delivery in client.arrived(receiver)]
        client.peer.output.transactions.kept_max = 3
        for id in (ids[0], *ids):
            answer = await settle_within(client, receiver, [id], b"never")
            assert condition_of(answer) == "amqp:transaction:unknown-id"
        (answer,) = await client.settle(receiver, ids[:1], ACCEPTED)
        assert condition_of(answer) == "com.microsoft:message-lock-lost"
        assert "its lock token settles it" in answer.error.description
        (answer,) = await client.settle(receiver, ids[1:], ACCEPTED)
        assert isinstance(answer, Accepted)
        assert await peeked(bus, "q") == ["0"]

    serve(talk)
