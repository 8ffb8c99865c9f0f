"""Transactions on partitioned entities: one key for all of it, because one partition commits."""

from __future__ import annotations

import pytest

from peeklock.amqp.frames.states import Accepted
from peeklock.amqp.frames.termini import Source
from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.constructors import LONG
from peeklock.amqp.values.types import Array, Symbol, Timestamp
from peeklock.entity.definition import QueueDefinition
from tests.gateway.amqp.amqp_harness import SESSION_FILTER, AmqpHarness, condition_of, plain, serve
from tests.gateway.amqp.nodes.transacting import (
    Control,
    group,
    manage_within,
    peeked,
    send_within,
    settle_within,
    transferred,
)

PARTITIONED = QueueDefinition("q", batched_store_access=False, partitions=4)
OTHER = QueueDefinition("other", batched_store_access=False)
VIA_KEY = "x-opt-via-partition-key"
KEY = "x-opt-partition-key"


def keyed(text: str, session: str | None = None, **annotations: object) -> bytes:
    """A message with a key, a session or a way."""
    names = {"key": KEY, "via": VIA_KEY, "at": "x-opt-scheduled-enqueue-time"}
    return encode_message(
        AmqpMessage(
            message_annotations={Symbol(names[name]): v for name, v in annotations.items()},
            properties=None if session is None else Properties(group_id=session),
            body_kind=DATA_BODY,
            body=[text.encode()],
        )
    )


@pytest.mark.parametrize("key", ["a", "b", "c", "d", "e"])
def test_messages_of_one_key_are_committed_together(key: str) -> None:
    """R-P7: whatever partition the key means."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        await client.send(sender, keyed("in", key=key))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        await settle_within(client, receiver, [delivery.id], txn)
        for text in ("x", "y"):
            assert isinstance(
                await send_within(client, sender, keyed(text, key=key), txn), Accepted
            )
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == ["x", "y"]

    serve(talk, PARTITIONED)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([keyed("x", key="a"), keyed("y", key="b")], "there are two"),
        ([keyed("x", key="a"), keyed("y")], "has none"),
        ([keyed("x", session="a"), keyed("y", session="b")], "there are two"),
        ([plain("x")], "has none"),
    ],
)
def test_a_transaction_without_one_key_is_no_valid_operation(
    messages: list[bytes], why: str
) -> None:
    """R-P7: no key, two keys, two sessions; the client hears of it with the message that is wrong,
    and the transaction can only be rolled back."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        txn = await control.declare()
        *right, wrong = messages
        for message in right:
            assert isinstance(await send_within(client, sender, message, txn), Accepted)
        refused = await send_within(client, sender, wrong, txn)
        assert condition_of(refused) == "amqp:not-allowed"
        assert why in refused.error.description
        outcome = await control.commit(txn)
        assert condition_of(outcome) == "amqp:transaction:rollback"
        assert why in outcome.error.description
        assert await peeked(bus, "q") == []

    serve(talk, PARTITIONED)


def test_settlements_in_two_partitions_are_not_one_transaction() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        keys = "abcdef"
        await client.send(await client.sender(), *(keyed(key, key=key) for key in keys))
        receiver = await client.receiver(credit=len(keys))
        ids = [delivery.id for delivery in client.arrived(receiver)]
        txn = await control.declare()
        for delivery_id in ids:
            await settle_within(client, receiver, [delivery_id], txn)
        outcome = await control.commit(txn)
        assert condition_of(outcome) == "amqp:transaction:rollback"
        assert "different partitions" in outcome.error.description
        # Each can still be completed by itself.
        for delivery_id in ids:
            txn = await control.declare()
            await settle_within(client, receiver, [delivery_id], txn)
            assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []

    serve(talk, PARTITIONED)


def test_a_session_is_the_key_where_there_are_sessions() -> None:
    """R-P7: on an entity with sessions every message needs one."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        await client.send(sender, keyed("in", session="s"))
        source = Source(address="q", filter={Symbol(SESSION_FILTER): "s"})
        receiver = await client.receiver(source=source, credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        await settle_within(client, receiver, [delivery.id], txn)
        await send_within(client, sender, keyed("out", session="s"), txn)
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == ["out"]
        txn = await control.declare()
        refused = await send_within(client, sender, keyed("x", key="s"), txn)
        assert condition_of(refused) == "amqp:not-allowed"
        assert condition_of(await control.commit(txn)) == "amqp:transaction:rollback"

    serve(
        talk, QueueDefinition("q", batched_store_access=False, partitions=4, requires_session=True)
    )


def test_messages_for_others_rest_with_what_was_settled() -> None:
    """They need no key for that."""

    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        await client.send(await client.sender("q"), keyed("in", key="a"))
        receiver = await client.receiver("q", credit=1)
        (delivery,) = client.arrived(receiver)
        sender = await client.sender("other")
        txn = await control.declare()
        assert isinstance(await send_within(client, sender, plain("out"), txn), Accepted)
        assert isinstance(await settle_within(client, receiver, [delivery.id], txn), Accepted)
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []
        assert await transferred(bus, "q", "other") == ["out"]

    serve(talk, PARTITIONED, OTHER)


def test_a_way_without_anything_else_needs_a_key() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client, control = await group(bus, "q", "other")
        properties = {Symbol("com.microsoft:transfer-destination-address"): "other"}
        sender = await client.sender("q", properties=properties)
        assert condition_of(await client.send(sender, plain("lost"))) == "amqp:not-allowed"
        assert isinstance(await client.send(sender, keyed("a", via="k")), Accepted)
        txn = await control.declare()
        # Their own keys are the destination's matter.
        for text in ("b", "c"):
            await send_within(client, sender, keyed(text, key=text, via="k"), txn)
        assert isinstance(await control.commit(txn), Accepted)
        assert sorted(await transferred(bus, "q", "other")) == ["a", "b", "c"]

    serve(talk, PARTITIONED, OTHER)


def test_scheduled_messages_get_numbers_of_their_partition() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        at = Timestamp(bus.clock.now() + 60_000)
        txn = await control.declare()
        body = {"messages": [{"message": keyed(text, key="a", at=at)} for text in ("x", "y")]}
        status, answer = await manage_within(client, links, "schedule-message", body, txn)
        assert status == 200
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == ["x", "y"]
        cancel = {"sequence-numbers": Array(LONG, answer["sequence-numbers"].items)}
        txn = await control.declare()
        assert (await manage_within(client, links, "cancel-scheduled-message", cancel, txn))[
            0
        ] == 200
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []
        # Without a key nobody knows whose numbers they would be.
        txn = await control.declare()
        body = {"messages": [{"message": keyed("z", at=at)}]}
        assert (await manage_within(client, links, "schedule-message", body, txn))[0] == 400
        assert condition_of(await control.commit(txn)) == "amqp:transaction:rollback"

    serve(talk, PARTITIONED)
