"""Transactions over several entities: one commits, the others get messages from it."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.amqp.frames.states import Accepted, Discharge, TransactionalState
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.messages.message import AmqpMessage as WireMessage
from peeklock.amqp.messages.message import encode_message
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import ACCEPTED, described_of, encode_composite
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Symbol, Ulong
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from tests.gateway.amqp.amqp_harness import (
    SESSION_FILTER,
    AmqpHarness,
    Client,
    bodies,
    condition_of,
    plain,
    serve,
)
from tests.gateway.amqp.nodes.transacting import (
    BATCH,
    group,
    manage_within,
    peeked,
    said_within,
    scheduled,
    send_within,
    settle_within,
    transferred,
    two_queues,
)

DESTINATION = Symbol("com.microsoft:transfer-destination-address")


def test_links_of_one_session_are_a_transaction_group() -> None:
    """What is settled decides on the entity that commits; the others get messages only."""

    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        sender = await client.sender("other")
        await client.send(await client.sender("q"), plain("in"))
        receiver = await client.receiver("q", credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        assert isinstance(await send_within(client, sender, plain("out"), txn), Accepted)
        assert isinstance(await settle_within(client, receiver, [delivery.id], txn), Accepted)
        assert await transferred(bus, "q", "other") == []
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []
        assert await transferred(bus, "q", "other") == ["out"]

    serve(talk, *two_queues())


def test_settlements_of_two_entities_are_refused() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        receivers = []
        for path in ("q", "other"):
            await client.send(await client.sender(path), plain(path))
            receivers.append(await client.receiver(path, credit=1))
        txn = await control.declare()
        first, second = [client.arrived(receiver)[0].id for receiver in receivers]
        assert isinstance(await settle_within(client, receivers[0], [first], txn), Accepted)
        answer = await settle_within(client, receivers[1], [second], txn)
        assert condition_of(answer) == "amqp:not-allowed"
        links = await client.request_links("other/$management")
        body = {"messages": [scheduled("a", bus.clock.now() + 60_000)]}
        assert (await manage_within(client, links, "schedule-message", body, txn))[0] == 400
        assert condition_of(await control.commit(txn)) == "amqp:transaction:rollback"
        assert await peeked(bus, "q") == ["q"]
        assert await peeked(bus, "other") == ["other"]

    serve(talk, *two_queues())


def test_two_sessions_are_no_transaction_group() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        sender = await client.sender("q")
        own = client.session
        client.session = client.connection.begin_session()
        elsewhere = await client.sender("other")
        client.session = own
        txn = await control.declare()
        assert isinstance(await send_within(client, sender, plain("a"), txn), Accepted)
        outcome = await send_within(client, elsewhere, plain("b"), txn)
        assert condition_of(outcome) == "amqp:not-allowed"
        assert condition_of(await control.commit(txn)) == "amqp:transaction:rollback"
        assert await peeked(bus, "q") == []
        assert await transferred(bus, "q", "other") == []

    serve(talk, *two_queues())


def test_a_topic_and_its_subscription_are_one_entity() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await bus.bench.broker.put_topic(TopicDefinition("t", batched_store_access=False))
        await bus.bench.broker.put_subscription(SubscriptionDefinition("t", "s"))
        client, control = await group(bus, "t", "t/Subscriptions/s")
        sender = await client.sender("t")
        await client.send(sender, plain("in"))
        own = client.session
        client.session = client.connection.begin_session()
        receiver = await client.receiver("t/Subscriptions/s", credit=1)
        client.session = own
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        await send_within(client, sender, plain("out"), txn)
        await settle_within(client, receiver, [delivery.id], txn)
        assert isinstance(await control.commit(txn), Accepted)
        receiver.grant(5)
        await client.talk()
        assert bodies(client.arrived(receiver)) == ["out"]

    serve(talk)


def test_messages_of_a_session_are_settled_in_a_transaction() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        await client.send(await client.sender(), plain("in", group_id="s"))
        source = Source(address="q", filter={Symbol(SESSION_FILTER): "s"})
        receiver = await client.receiver(source=source, credit=1)
        (delivery,) = client.arrived(receiver)
        sender = await client.sender("other")
        txn = await control.declare()
        await settle_within(client, receiver, [delivery.id], txn)
        await send_within(client, sender, plain("out"), txn)
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []
        assert await transferred(bus, "q", "other") == ["out"]

    with_sessions = QueueDefinition("q", requires_session=True, batched_store_access=False)
    serve(talk, with_sessions, two_queues()[1])


# --- send-via


async def via_sender(client: Client, destination: Any = "other") -> Link:
    return await client.sender("q", properties={DESTINATION: destination})


def test_a_sender_can_name_another_destination() -> None:
    """Its messages are taken by the entity of the link and forwarded, with a transaction or
    without one."""

    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        sender = await via_sender(client, "amqps://localhost/OTHER")
        assert isinstance(await client.send(sender, plain("a")), Accepted)
        batch = b"".join(encode(Described(Ulong(0x75), plain(text))) for text in ("b", "c"))
        assert isinstance(await client.send(sender, batch, form=BATCH), Accepted)
        client.post(sender, plain("d"), settled=True)
        assert isinstance(await client.send(sender, b"", form=BATCH), Accepted)
        txn = await control.declare()
        await send_within(client, sender, plain("e"), txn)
        assert await transferred(bus, "q", "other") == ["a", "b", "c", "d"]
        assert isinstance(await control.commit(txn), Accepted)
        assert await transferred(bus, "q", "other") == ["a", "b", "c", "d", "e"]
        assert await peeked(bus, "q") == []

    serve(talk, *two_queues())


def test_a_via_sender_needs_no_transaction_group() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        await client.send(await client.sender(), plain("in"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        client.session = client.connection.begin_session()
        sender = await via_sender(client)
        txn = await control.declare()
        await settle_within(client, receiver, [delivery.id], txn)
        assert isinstance(await send_within(client, sender, plain("out"), txn), Accepted)
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []
        assert await transferred(bus, "q", "other") == ["out"]

    serve(talk, *two_queues())


@pytest.mark.parametrize(
    ("destination", "condition"),
    [
        ("missing", "amqp:not-found"),
        ("q/$deadletterqueue", "amqp:not-allowed"),
        ("other/$management", "com.microsoft:argument-error"),
        (Ulong(7), "com.microsoft:argument-error"),
    ],
)
def test_a_destination_must_be_able_to_take_messages(destination: Any, condition: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized("")
        link = client.session.attach_sender(
            "a", Target(address="q"), properties={DESTINATION: destination}
        )
        assert (await client.refused(link)).condition == condition

    serve(talk, *two_queues())


def test_the_right_to_send_is_needed_on_both() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized("q")
        link = client.session.attach_sender(
            "a", Target(address="q"), properties={DESTINATION: "other"}
        )
        assert (await client.refused(link)).condition == "amqp:unauthorized-access"

    serve(talk, *two_queues())


@pytest.mark.parametrize("late", ["settlement", "message"])
def test_what_is_lost_with_a_link_is_missed(late: str) -> None:
    """Over a link that the broker has detached, before the client knows; nothing is waited for."""

    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        await client.send(await client.sender("q"), plain("in"))
        receiver = await client.receiver("q", credit=1)
        gone_sender = await client.sender("q")
        sender = await client.sender("other")
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        assert isinstance(await send_within(client, sender, plain("out"), txn), Accepted)
        await bus.bench.broker.remove("q")
        said = b""
        if late == "message":
            said = said_within(client, gone_sender, plain("late"), txn)
        else:
            state = TransactionalState(txn_id=txn, outcome=Accepted())
            receiver.settle([delivery.id], encode_composite(state), settled=False)
        discharge = described_of(Discharge(txn_id=txn, fail=False))
        said += client.connection.take_output()
        client.post(control.link, encode_message(WireMessage(body=discharge)))
        client.peer.receive(said + client.connection.take_output(), bus.clock.now())
        outcome = (await client.outcomes())[-1][0]
        assert condition_of(outcome) == "amqp:transaction:rollback"
        assert await peeked(bus, "other") == []

    serve(talk, *two_queues())


def test_a_link_that_the_client_detaches_takes_nothing_along() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q")
        sender = await client.sender()
        txn = await control.declare()
        await send_within(client, sender, plain("a"), txn)
        sender.detach()
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == ["a"]

    serve(talk, *two_queues())


def test_a_link_that_breaks_the_rules_dooms_the_transaction() -> None:
    """A tag has 32 bytes at most."""

    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q")
        sender, other = await client.sender(), await client.sender()
        txn = await control.declare()
        await send_within(client, sender, plain("a"), txn)
        other.send(bytes(33), plain("b"), b"", False, None)
        await client.talk()
        assert not other.attached
        assert condition_of(await control.commit(txn)) == "amqp:transaction:rollback"
        assert await peeked(bus, "q") == []

    serve(talk, *two_queues())


def test_a_sender_goes_when_it_may_no_longer_send_to_its_destination() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", life_ms=60_000)
        await client.put_token("other", life_ms=30_000)
        link = await via_sender(client)
        await bus.advance(client, 30_000)
        assert (await client.refused(link)).condition == "amqp:unauthorized-access"

    serve(talk, *two_queues())


def test_what_was_settled_before_cannot_be_settled_within() -> None:
    """Nothing else of the transaction is carried out then."""

    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q")
        sender = await client.sender()
        await client.send(sender, plain("in"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        await client.settle(receiver, [delivery.id], ACCEPTED)
        txn = await control.declare()
        await send_within(client, sender, plain("out"), txn)
        answer = await settle_within(client, receiver, [delivery.id], txn)
        assert condition_of(answer) == "com.microsoft:message-lock-lost"
        assert condition_of(await control.commit(txn)) == "amqp:transaction:rollback"
        assert await peeked(bus, "q") == []

    serve(talk, *two_queues())
