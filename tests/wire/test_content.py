"""Content: what a sender wrote is what a receiver reads, section by section and type by type."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from tests.wire.clients import PLACE, Bus, body, peek_all, receive, receive_one
from tests.wire.entities import Queues

pytestmark = pytest.mark.side_by_side

KEY: dict[str, Any] = {"x-opt-partition-key": "k"}
SOME_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
SOME_INSTANT = datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC)
SOME_INSTANT_MS = int(SOME_INSTANT.timestamp() * 1000)


def typed(kind: str, value: object) -> dict[str, object]:
    """A value of an exact AMQP type; the client takes the pair wherever it takes a value."""
    return {"TYPE": kind, "VALUE": value}


# What is written, and what the client reads: text comes back as bytes, an instant as milliseconds.
VALUES: list[tuple[str, Any, Any]] = [
    ("true", True, True),
    ("false", False, False),
    ("small int", 7, 7),
    ("negative int", -300_000, -300_000),
    ("ubyte", typed("UBYTE", 255), 255),
    ("byte", typed("BYTE", -128), -128),
    ("ushort", typed("USHORT", 65_535), 65_535),
    ("short", typed("SHORT", -32_768), -32_768),
    ("uint", typed("UINT", 4_294_967_295), 4_294_967_295),
    ("uint zero", typed("UINT", 0), 0),
    ("int", typed("INT", -2_147_483_648), -2_147_483_648),
    ("ulong", typed("ULONG", 18_446_744_073_709_551_615), 18_446_744_073_709_551_615),
    ("ulong zero", typed("ULONG", 0), 0),
    ("long", typed("LONG", -9_223_372_036_854_775_808), -9_223_372_036_854_775_808),
    ("float", typed("FLOAT", 0.5), 0.5),
    ("double", 3.141592653589793, 3.141592653589793),
    ("timestamp", SOME_INSTANT, SOME_INSTANT_MS),
    ("uuid", SOME_UUID, SOME_UUID),
    ("binary", typed("BINARY", b"\x00\xff"), b"\x00\xff"),
    ("string", "Grüße, 世界 🚀", "Grüße, 世界 🚀".encode()),
    ("long string", "x" * 30_000, b"x" * 30_000),
    ("symbol", typed("SYMBOL", "a-symbol"), b"a-symbol"),
    ("null", None, None),
]


def test_application_properties_keep_their_types(bus: Bus, queue: str) -> None:
    """R-T1: every simple type of AMQP, all in one message."""
    properties = {name: value for name, value, _ in VALUES}
    bus.send(queue, AmqpAnnotatedMessage(data_body=b"", application_properties=properties))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)

    assert message.application_properties == {name.encode(): read for name, _, read in VALUES}


def test_bodies_of_every_kind(bus: Bus, queue: str) -> None:
    """R-T1: data in several sections, sequences, and values of every type."""
    nested = {"list": [1, "two", None, [3.5]], "map": {"deep": True}}
    nested_read = {b"list": [1, b"two", None, [3.5]], b"map": {b"deep": True}}
    written: list[tuple[dict[str, Any], AmqpMessageBodyType, Any]] = [
        ({"data_body": b"one"}, AmqpMessageBodyType.DATA, [b"one"]),
        ({"data_body": [b"one", b"", b"three"]}, AmqpMessageBodyType.DATA, [b"one", b"", b"three"]),
        ({"data_body": bytes(range(256))}, AmqpMessageBodyType.DATA, [bytes(range(256))]),
        ({"sequence_body": [1, "two", 3.5]}, AmqpMessageBodyType.SEQUENCE, [[1, b"two", 3.5]]),
        (
            {"sequence_body": [[1, 2], [], ["x"]]},
            AmqpMessageBodyType.SEQUENCE,
            [[1, 2], [], [b"x"]],
        ),
        ({"value_body": nested}, AmqpMessageBodyType.VALUE, nested_read),
        # The client leaves an empty value out altogether: a message without any body section.
        ({"value_body": None}, AmqpMessageBodyType.VALUE, None),
    ]
    written += [
        ({"value_body": value}, AmqpMessageBodyType.VALUE, read)
        for _, value, read in VALUES
        if value and not isinstance(value, dict)
    ]
    with bus.sender(queue) as sender:
        for parts, _, _ in written:
            # One key, so that they come back in their order from a partitioned queue too.
            sender.send_messages(AmqpAnnotatedMessage(annotations=KEY, **parts))

    with bus.receiver(queue) as receiver:
        messages = receive(receiver, len(written))

    assert [(message.body_type, body_of(message)) for message in messages] == [
        (kind, read) for _, kind, read in written
    ]


def body_of(message: ServiceBusReceivedMessage) -> Any:
    if message.body_type == AmqpMessageBodyType.VALUE:
        return message.body
    return list(message.body)


def test_all_sections_of_one_message(bus: Bus, queue: str) -> None:
    """R-T1: header, annotations, properties, footer; the broker only adds its own annotations."""
    properties = AmqpMessageProperties(
        message_id="an-id",
        user_id=b"somebody",
        to="a-destination",
        subject="a-subject",
        reply_to="a-reply-queue",
        correlation_id="a-correlation",
        content_type="application/json",
        content_encoding="gzip",
        creation_time=SOME_INSTANT_MS,
        group_id="a-group",
        group_sequence=42,
        reply_to_group_id="a-reply-group",
    )
    bus.send(
        queue,
        AmqpAnnotatedMessage(
            data_body=b"content",
            header=AmqpMessageHeader(durable=True, priority=7),
            properties=properties,
            annotations={"x-opt-mine": "kept", "other": typed("LONG", 5)},
            delivery_annotations={"x-opt-hop": "kept too"},
            footer={"checksum": "abc"},
        ),
    )

    with bus.receiver(queue) as receiver:
        raw = receive_one(receiver).raw_amqp_message

    assert raw.header is not None
    assert (raw.header.durable, raw.header.priority) == (True, 7)
    assert (raw.header.time_to_live, raw.header.first_acquirer) == (None, None)
    assert raw.properties is not None
    assert raw.properties.message_id == b"an-id"
    assert raw.properties.user_id == b"somebody"
    assert raw.properties.to == b"a-destination"
    assert raw.properties.subject == b"a-subject"
    assert raw.properties.reply_to == b"a-reply-queue"
    assert raw.properties.correlation_id == b"a-correlation"
    assert raw.properties.content_type == b"application/json"
    assert raw.properties.content_encoding == b"gzip"
    assert raw.properties.creation_time == SOME_INSTANT_MS
    assert raw.properties.group_id == b"a-group"
    assert raw.properties.group_sequence == 42
    assert raw.properties.reply_to_group_id == b"a-reply-group"
    assert raw.annotations is not None
    assert raw.annotations[b"x-opt-mine"] == b"kept"
    assert raw.annotations[b"other"] == 5
    assert raw.annotations[b"x-opt-sequence-number"] & PLACE == 1
    assert raw.delivery_annotations is not None
    assert raw.delivery_annotations[b"x-opt-hop"] == b"kept too"
    assert raw.footer == {b"checksum": b"abc"}


def test_a_plain_message_is_told_little_of(bus: Bus, queue: str) -> None:
    """No state and no first number; the lock token in an annotation of the delivery."""
    bus.send(queue, ServiceBusMessage("a"))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)
        raw = message.raw_amqp_message
        assert list(raw.annotations or {}) == [
            b"x-opt-enqueued-time",
            b"x-opt-sequence-number",
            b"x-opt-locked-until",
        ]
        assert raw.delivery_annotations == {b"x-opt-lock-token": message.lock_token}
        assert raw.header is not None
        assert (raw.header.durable, raw.header.priority) == (None, None)
        assert (raw.header.time_to_live, raw.header.first_acquirer) == (None, None)
        (seen,) = peek_all(receiver)
        assert list(seen.raw_amqp_message.annotations or {})[2:] == [
            b"x-opt-enqueue-sequence-number",
            b"x-opt-message-state",
        ]
        receiver.abandon_message(message)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with bus.receiver(queue, receive_mode=mode) as receiver:
        raw = receive_one(receiver).raw_amqp_message
    assert list(raw.annotations or {}) == [b"x-opt-enqueued-time", b"x-opt-sequence-number"]
    assert raw.delivery_annotations == {}


def test_an_empty_session_id_goes_with_any_partition_key(bus: Bus, queue: str) -> None:
    properties = AmqpMessageProperties(group_id="")
    bus.send(queue, AmqpAnnotatedMessage(data_body=b"a", annotations=KEY, properties=properties))
    with bus.receiver(queue) as receiver:
        assert receive_one(receiver).partition_key == "k"


def test_an_empty_session_id_is_one_session_under_any_partition_key(
    bus: Bus, queues: Queues
) -> None:
    """Of a queue and of a subscription with sessions; its messages keep their order and keys."""
    queue, topic = queues.take("session"), queues.take("session-topic")
    for key in ("k", "l", "m"):
        sent = AmqpAnnotatedMessage(
            data_body=key.encode(),
            annotations={"x-opt-partition-key": key},
            properties=AmqpMessageProperties(group_id=""),
        )
        bus.send(queue, sent)
        bus.publish(topic, sent)
    with (
        bus.receiver(queue, session_id="") as of_queue,
        bus.subscriber(topic, "sessions", session_id="") as of_topic,
    ):
        for receiver in (of_queue, of_topic):
            got = receive(receiver, 3)
            assert [(body(each), each.partition_key) for each in got] == [
                (b"k", "k"),
                (b"l", "l"),
                (b"m", "m"),
            ]
            for each in got:
                receiver.complete_message(each)


def test_what_the_convenient_message_carries(bus: Bus, queue: str) -> None:
    bus.send(
        queue,
        ServiceBusMessage(
            "text",
            content_type="text/plain",
            correlation_id="c",
            message_id="m",
            partition_key="s",
            reply_to="r",
            reply_to_session_id="rs",
            session_id="s",
            subject="label",
            time_to_live=timedelta(hours=2),
            to="t",
            application_properties={"number": 1},
        ),
    )

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)

    assert message.content_type == "text/plain"
    assert message.correlation_id == "c"
    assert message.message_id == "m"
    assert message.partition_key == "s"
    assert message.reply_to == "r"
    assert message.reply_to_session_id == "rs"
    # A session id on a queue without sessions is only text.
    assert message.session_id == "s"
    assert message.subject == "label"
    assert message.to == "t"
    assert message.time_to_live == timedelta(hours=2)
    assert message.enqueued_time_utc is not None
    assert message.expires_at_utc == message.enqueued_time_utc + timedelta(hours=2)


@pytest.mark.parametrize(
    ("message_id", "read"),
    [("text", b"text"), (SOME_UUID, SOME_UUID), (77, 77), (b"\x01\x02", b"\x01\x02")],
    ids=["string", "uuid", "ulong", "binary"],
)
def test_message_ids_of_every_type(bus: Bus, queue: str, message_id: Any, read: Any) -> None:
    """R-S9: the type of the id is the sender's choice."""
    properties = AmqpMessageProperties(message_id=message_id, correlation_id=message_id)
    bus.send(queue, AmqpAnnotatedMessage(data_body=b"", properties=properties))

    with bus.receiver(queue) as receiver:
        raw = receive_one(receiver).raw_amqp_message

    assert raw.properties is not None
    assert (raw.properties.message_id, raw.properties.correlation_id) == (read, read)


def test_a_message_with_a_thousand_properties(bus: Bus, queue: str) -> None:
    """The limits are on size, not on the number of properties."""
    properties: dict[str | bytes, Any] = {f"name-{index}": index for index in range(1000)}
    bus.send(queue, ServiceBusMessage("many", application_properties=properties))

    with bus.receiver(queue) as receiver:
        message = receive_one(receiver)

    assert message.application_properties == {
        f"name-{index}".encode(): index for index in range(1000)
    }
