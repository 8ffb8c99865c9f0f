"""Transactions: operations of the management node that are part of one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.frames.states import Accepted, Discharge, Rejected
from peeklock.amqp.messages.message import AmqpMessage as WireMessage
from peeklock.amqp.messages.message import decode_message, encode_message
from peeklock.amqp.values.composites import described_of
from peeklock.amqp.values.constructors import LONG, UUID_CODE
from peeklock.amqp.values.types import Array, Int, Timestamp, Uint
from tests.gateway.amqp.amqp_harness import (
    AmqpHarness,
    plain,
    request,
    serve,
)
from tests.gateway.amqp.nodes.transacting import (
    Control,
    manage_within,
    peeked,
    said_within,
    scheduled,
    send_within,
    settle_within,
)


def test_messages_are_scheduled_with_the_commit() -> None:
    """Their numbers are told before, and another message does not get them."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        sender = await client.sender()
        at = bus.clock.now() + 60_000
        txn = await control.declare()
        body = {"messages": [scheduled("a", at), scheduled("b", at)]}
        status, answer = await manage_within(client, links, "schedule-message", body, txn)
        assert status == 200
        numbers = answer["sequence-numbers"].items
        assert await peeked(bus, "q") == []
        await client.send(sender, plain("between"))
        assert isinstance(await control.commit(txn), Accepted)
        assert sorted(await peeked(bus, "q")) == ["a", "b", "between"]
        status, _ = await client.manage(
            links, "cancel-scheduled-message", {"sequence-numbers": Array(LONG, numbers[:1])}
        )
        assert status == 200
        assert sorted(await peeked(bus, "q")) == ["b", "between"]

    serve(talk)


def test_a_rollback_undoes_scheduling_and_cancelling() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        at = bus.clock.now() + 60_000
        body = {"messages": [scheduled("kept", at)]}
        status, answer = await client.manage(links, "schedule-message", body)
        assert status == 200
        cancel = {"sequence-numbers": answer["sequence-numbers"]}
        txn = await control.declare()
        body = {"messages": [scheduled("never", at)]}
        assert (await manage_within(client, links, "schedule-message", body, txn))[0] == 200
        assert (await manage_within(client, links, "cancel-scheduled-message", cancel, txn))[
            0
        ] == 200
        await control.roll_back(txn)
        assert await peeked(bus, "q") == ["kept"]
        txn = await control.declare()
        assert (await manage_within(client, links, "cancel-scheduled-message", cancel, txn))[
            0
        ] == 200
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []

    serve(talk)


def test_a_commit_waits_for_numbers_that_are_being_reserved() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        txn = await control.declare()
        body = {"messages": [scheduled("a", bus.clock.now() + 60_000)]}
        properties = {"operation": "com.microsoft:schedule-message"}
        said = said_within(client, links[0], request(properties, body, "id-1"), txn, settled=True)
        discharge = described_of(Discharge(txn_id=txn, fail=False))
        client.post(control.link, encode_message(WireMessage(body=discharge)))
        client.peer.receive(said + client.connection.take_output(), bus.clock.now())
        ((outcome, _),) = await client.outcomes()
        assert isinstance(outcome, Accepted)
        assert await peeked(bus, "q") == ["a"]

    serve(talk)


def test_numbers_that_come_after_the_rollback_are_not_told() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        txn = await control.declare()
        body = {"messages": [scheduled("a", bus.clock.now() + 60_000)]}
        properties = {"operation": "com.microsoft:schedule-message"}
        said = said_within(client, links[0], request(properties, body, "id-1"), txn, settled=True)
        discharge = described_of(Discharge(txn_id=txn, fail=True))
        client.post(control.link, encode_message(WireMessage(body=discharge)))
        client.peer.receive(said + client.connection.take_output(), bus.clock.now())
        ((outcome, _),) = await client.outcomes()
        assert isinstance(outcome, Accepted)
        (answer,) = client.arrived(links[1])
        told = decode_message(answer.payload).application_properties
        assert told is not None
        assert told["errorCondition"] == "amqp:transaction:unknown-id"
        assert await peeked(bus, "q") == []

    serve(talk)


def test_deferred_messages_are_settled_by_their_tokens() -> None:
    """Also a message whose settlement on the link was rolled back: the official clients have
    forgotten its delivery by then and ask the management node."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        await client.send(await client.sender(), plain("a"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        await settle_within(client, receiver, [delivery.id], txn)
        await control.roll_back(txn)
        body = {
            "disposition-status": "completed",
            "lock-tokens": Array(UUID_CODE, [UUID(bytes_le=delivery.tag)]),
        }
        txn = await control.declare()
        assert (await manage_within(client, links, "update-disposition", body, txn))[0] == 200
        assert await peeked(bus, "q") == ["a"]
        await control.roll_back(txn)
        txn = await control.declare()
        assert (await manage_within(client, links, "update-disposition", body, txn))[0] == 200
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []

    serve(talk)


def test_what_cannot_be_undone_is_done_at_once_or_refused() -> None:
    """R-S1: nothing is received and deleted within a transaction."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        await client.send(await client.sender(), plain("a"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        tokens = {"lock-tokens": Array(UUID_CODE, [UUID(bytes_le=delivery.tag)])}
        status, answer = await manage_within(client, links, "renew-lock", tokens, txn)
        assert status == 200
        assert len(answer["expirations"].items) == 1
        delete = {"message-count": Int(1), "enqueued-time-utc": Timestamp(bus.clock.now())}
        assert (await manage_within(client, links, "batch-delete-messages", delete, txn))[0] == 400
        take = {"sequence-numbers": Array(LONG, [1]), "receiver-settle-mode": Uint(0)}
        answer = await manage_within(client, links, "receive-by-sequence-number", take, txn)
        assert answer[0] == 400
        unknown = await manage_within(client, links, "renew-lock", tokens, b"never")
        assert unknown[0] == 400

    serve(talk)


@pytest.mark.parametrize(
    ("operation", "body", "status"),
    [
        (
            "batch-delete-messages",
            {"message-count": Int(1), "enqueued-time-utc": Timestamp(1)},
            400,
        ),
        ("update-disposition", {"disposition-status": "completed"}, 400),
        ("cancel-scheduled-message", {}, 400),
        ("dance", {}, 501),
    ],
)
def test_a_refused_request_dooms_its_transaction(
    operation: str, body: dict[str, Any], status: int
) -> None:
    """What was refused would be missing, so that the rest is not carried out either."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        sender = await client.sender()
        txn = await control.declare()
        await send_within(client, sender, plain("never"), txn)
        assert (await manage_within(client, links, operation, body, txn))[0] == status
        assert isinstance(await control.commit(txn), Rejected)
        assert await peeked(bus, "q") == []

    serve(talk)
