"""Our own client beside the official one: what either sends, the other reads the same."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage as AzureMessage
from azure.servicebus import ServiceBusReceivedMessage as AzureReceived
from azure.servicebus.amqp import AmqpAnnotatedMessage

from peeklock.amqp.messages.message import SEQUENCE_BODY, VALUE_BODY, AmqpMessage
from peeklock.client import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
)
from peeklock.client import exceptions as own_exceptions
from tests.wire.broker_process import BrokerProcess
from tests.wire.clients import Bus, receive
from tests.wire.own_client import run_with, take

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
PLAIN = (
    "message_id",
    "session_id",
    "correlation_id",
    "subject",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
    "partition_key",
    "time_to_live",
    "sequence_number",
    "enqueued_sequence_number",
    "enqueued_time_utc",
    "expires_at_utc",
    "delivery_count",
    "scheduled_enqueue_time_utc",
)
OPTIONS: dict[str, Any] = {
    "message_id": "m-1",
    "session_id": "s",
    "correlation_id": "c",
    "subject": "label",
    "content_type": "application/json",
    "to": "somewhere",
    "reply_to": "back",
    "reply_to_session_id": "r",
    "partition_key": "s",
    "time_to_live": timedelta(hours=1),
}
PROPERTIES = {
    "text": "käse",
    "number": 77,
    "fraction": 2.5,
    "yes": True,
    "raw": b"\x00\xff",
    "uuid": UUID(int=1 << 100),
}


def using(broker: BrokerProcess, work: Callable[[ServiceBusClient], Awaitable[Any]]) -> Any:
    found: list[Any] = []

    async def test(client: ServiceBusClient) -> None:
        found.append(await work(client))

    run_with(broker.connection_string, test)
    return found[0]


def peek_with_ours(broker: BrokerProcess, queue: str) -> list[ServiceBusReceivedMessage]:
    async def work(client: ServiceBusClient) -> list[ServiceBusReceivedMessage]:
        return await client.get_queue_receiver(queue).peek_messages(100, sequence_number=1)

    found: list[ServiceBusReceivedMessage] = using(broker, work)
    return found


def peek_with_theirs(bus: Bus, queue: str) -> list[AzureReceived]:
    with bus.receiver(queue) as receiver:
        return receiver.peek_messages(100, sequence_number=1)


def their_properties(message: AzureReceived) -> dict[str, Any]:
    """The official client gives texts as bytes."""
    found = message.application_properties or {}
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in found.items()}


def assert_same(ours: ServiceBusReceivedMessage, theirs: AzureReceived) -> None:
    for name in PLAIN:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert int(ours.state) == int(theirs.state)
    assert bytes(ours) == b"".join(theirs.body)


def test_what_our_sender_sends_the_official_receiver_reads(
    bus: Bus, broker: BrokerProcess, queue: str
) -> None:
    message = ServiceBusMessage([b"one", b"two"], application_properties=PROPERTIES, **OPTIONS)

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(message)
            await sender.send_messages([message, message])
            await asyncio.gather(*(sender.send_soon(message).outcome for _ in range(3)))

    using(broker, work)
    with bus.receiver(queue) as receiver:
        found = receive(receiver, 6)
        for each in found:
            assert list(each.body) == [b"one", b"two"]
            for name, value in OPTIONS.items():
                assert getattr(each, name) == value, name
            assert their_properties(each) == PROPERTIES | {"text": "käse".encode()}
        for each in found:
            receiver.abandon_message(each)
    for ours, theirs in zip(
        peek_with_ours(broker, queue), peek_with_theirs(bus, queue), strict=True
    ):
        assert_same(ours, theirs)


def test_what_the_official_sender_sends_our_receiver_reads(
    bus: Bus, broker: BrokerProcess, queue: str
) -> None:
    # The official client makes a text of each binary property.
    properties: dict[Any, Any] = PROPERTIES | {"raw": b"text", "when": WHEN}
    message = AzureMessage(b"onetwo", application_properties=properties, **OPTIONS)
    with bus.sender(queue) as sender:
        sender.send_messages(message)
        sender.send_messages([message, message])

    async def work(client: ServiceBusClient) -> None:
        receiver = client.get_queue_receiver(queue)
        for each in await take(receiver, 3):
            assert list(each.body) == [b"onetwo"]
            for name, value in OPTIONS.items():
                assert getattr(each, name) == value, name
            read = dict(each.application_properties)
            assert read == PROPERTIES | {"raw": "text", "when": WHEN}
            await receiver.abandon_message(each)

    using(broker, work)
    for ours, theirs in zip(
        peek_with_ours(broker, queue), peek_with_theirs(bus, queue), strict=True
    ):
        assert_same(ours, theirs)


@pytest.mark.parametrize(
    ("kind", "body"), [("value", {"a": [1, "x", None]}), ("sequence", [[1, 2], ["x"]])]
)
def test_bodies_that_are_no_bytes(
    bus: Bus, broker: BrokerProcess, queue: str, kind: str, body: Any
) -> None:
    number = VALUE_BODY if kind == "value" else SEQUENCE_BODY

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages(AmqpMessage(body_kind=number, body=body))

    using(broker, work)
    with bus.sender(queue) as sender:
        sender.send_messages(AmqpAnnotatedMessage(**{f"{kind}_body": body}))
    for message in peek_with_ours(broker, queue):
        read = message.body if kind == "value" else list(message.body)
        assert read == body


def test_settled_by_one_and_seen_by_the_other(bus: Bus, broker: BrokerProcess, queue: str) -> None:
    bus.send(queue, AzureMessage("a"))

    async def work(client: ServiceBusClient) -> None:
        receiver = client.get_queue_receiver(queue)
        [message] = await take(receiver, 1)
        await receiver.dead_letter_message(message, "Because", "of this", {"n": 5})

    using(broker, work)
    with bus.receiver(queue, sub_queue="deadletter") as receiver:
        [message] = receive(receiver, 1)
        assert message.dead_letter_reason == "Because"
        assert message.dead_letter_error_description == "of this"
        receiver.complete_message(message)


def test_moving_over_is_a_change_of_import() -> None:
    """Every name that the official package offers, and every operation, is here too."""
    import azure.servicebus
    import azure.servicebus.aio
    from azure.servicebus import exceptions as their_exceptions

    import peeklock.client
    from peeklock.client import blocking

    for name in azure.servicebus.aio.__all__:
        theirs, ours = getattr(azure.servicebus.aio, name), getattr(peeklock.client, name)
        assert _operations(theirs) <= _operations(ours), name
    # What reads connection strings is not for talking to a broker.
    own_business = {"parse_connection_string", "ServiceBusConnectionStringProperties"}
    for name in set(azure.servicebus.__all__) - own_business:
        theirs = getattr(azure.servicebus, name)
        assert hasattr(peeklock.client, name), name
        ours = getattr(blocking, name, None) or getattr(peeklock.client, name)
        assert _operations(theirs) <= _operations(ours), name
    errors = {
        name
        for name in dir(their_exceptions)
        if isinstance(getattr(their_exceptions, name), type)
        and issubclass(getattr(their_exceptions, name), Exception)
        and getattr(their_exceptions, name).__module__ == their_exceptions.__name__
    }
    assert errors <= set(dir(own_exceptions))
    found: dict[str, Any] = {}
    exec("from peeklock.client import *", found)
    assert set(azure.servicebus.__all__) - own_business <= set(found)


def _operations(thing: Any) -> set[str]:
    # Deprecated, or about a library underneath that is not here; the last is set on objects.
    without = {"message", "from_bytes", "client_identifier"}
    if not isinstance(thing, type):
        return set()
    return {name for name in dir(thing) if not name.startswith("_")} - without - set(dir(str))
