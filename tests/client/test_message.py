"""Messages: what is set is written, what was written is read, and nothing else is."""

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.messages.message import (
    DATA_BODY,
    NO_BODY,
    SEQUENCE_BODY,
    VALUE_BODY,
    AmqpMessage,
    decode_message,
    encode_message,
)
from peeklock.amqp.messages.message_forms import Header, Properties
from peeklock.amqp.values.types import Int, Symbol, Timestamp
from peeklock.client.constants import AmqpMessageBodyType, ServiceBusMessageState
from peeklock.client.message import ServiceBusMessage, instant_ms, moment_of
from peeklock.client.received import ServiceBusReceivedMessage
from peeklock.client.sending.outbound import as_message

NOON = datetime(2030, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
LONG_AGO = 1_700_000_000_000


def read(message: ServiceBusMessage) -> ServiceBusReceivedMessage:
    return ServiceBusReceivedMessage(message.encoded())


def delivered(**sections: Any) -> ServiceBusReceivedMessage:
    return ServiceBusReceivedMessage(encode_message(AmqpMessage(**sections)))


def test_a_message_of_content_alone_is_content_alone() -> None:
    assert ServiceBusMessage(b"tea").encoded() == b"\x00\x53\x75\xb0\x00\x00\x00\x03tea"


@pytest.mark.parametrize(
    ("body", "pieces"),
    [
        (b"tea", [b"tea"]),
        ("Tee für zwei", ["Tee für zwei".encode()]),
        ([b"a", b"b"], [b"a", b"b"]),
        (["a", "b"], [b"a", b"b"]),
        (bytearray(b"x"), [b"x"]),
        (None, [b""]),
        (b"", [b""]),
    ],
)
def test_content_is_bytes_text_or_a_list_of_either(body: Any, pieces: list[bytes]) -> None:
    message = ServiceBusMessage(body)
    assert list(message.body) == pieces
    assert list(read(message).body) == pieces
    assert bytes(read(message)) == bytes(message) == b"".join(pieces)


def test_content_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be a dict"):
        ServiceBusMessage({"a": 1})  # type: ignore[arg-type]  # the mistake that is tested


def test_everything_that_is_set_can_be_read_again() -> None:
    message = ServiceBusMessage(
        "content",
        application_properties={
            "text": "x",
            "number": 1 << 40,
            "fraction": 0.5,
            "yes": True,
            "raw": b"\xff",
            "id": UUID(int=7),
            "when": NOON,
            "nothing": None,
        },
        session_id="s",
        message_id="m",
        scheduled_enqueue_time_utc=NOON,
        time_to_live=timedelta(minutes=5),
        content_type="text/plain",
        correlation_id="c",
        subject="label",
        partition_key="s",
        to="there",
        reply_to="back",
        reply_to_session_id="r",
    )
    found = read(message)
    assert (found.session_id, found.message_id, found.partition_key) == ("s", "m", "s")
    assert (found.correlation_id, found.subject, found.to) == ("c", "label", "there")
    assert (found.reply_to, found.reply_to_session_id) == ("back", "r")
    assert found.content_type == "text/plain"
    assert found.scheduled_enqueue_time_utc == NOON
    assert found.time_to_live == timedelta(minutes=5)
    assert found.application_properties == message.application_properties
    assert str(found) == "content"


def test_a_life_longer_than_the_header_has_room_for_is_kept() -> None:
    message = ServiceBusMessage("x", time_to_live=timedelta(days=400))
    header = decode_message(message.encoded()).header
    assert header is not None
    assert header.ttl == 0xFFFF_FFFF
    assert read(message).time_to_live == timedelta(days=400)


def test_a_number_is_a_life_in_seconds_and_none_is_negative() -> None:
    assert ServiceBusMessage("x", time_to_live=1.5).time_to_live == timedelta(seconds=1.5)
    with pytest.raises(ValueError, match="before now"):
        ServiceBusMessage("x", time_to_live=-1)


def test_a_session_is_the_partition_key() -> None:
    with pytest.raises(ValueError, match="must be the session_id"):
        ServiceBusMessage("x", session_id="a", partition_key="b")
    assert ServiceBusMessage("x", session_id="a").routing_key == "a"
    assert ServiceBusMessage("x", partition_key="b").routing_key == "b"
    assert ServiceBusMessage("x", session_id="", partition_key="").routing_key == ""


@pytest.mark.parametrize(
    "name", ["message_id", "session_id", "partition_key", "reply_to_session_id"]
)
def test_ids_have_128_characters_at_most(name: str) -> None:
    message = ServiceBusMessage("x")
    setattr(message, name, "x" * 128)
    assert getattr(message, name) == "x" * 128
    with pytest.raises(ValueError, match="longer than 128"):
        setattr(message, name, "x" * 129)


def test_a_time_without_a_zone_is_meant_in_utc() -> None:
    assert instant_ms(NOON.replace(tzinfo=None)) == instant_ms(NOON)
    assert moment_of(instant_ms(NOON)) == NOON


def test_an_application_property_without_a_type_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be a list"):
        ServiceBusMessage("x", application_properties={"a": [1]}).encoded()


def test_what_the_broker_says_can_be_read() -> None:
    message = delivered(
        header=Header(durable=True, delivery_count=3, ttl=60_000),
        message_annotations={
            Symbol("x-opt-sequence-number"): 77,
            Symbol("x-opt-enqueued-time"): Timestamp(LONG_AGO),
            Symbol("x-opt-locked-until"): Timestamp(LONG_AGO + 30_000),
            Symbol("x-opt-enqueue-sequence-number"): 5,
            Symbol("x-opt-message-state"): Int(3),
            Symbol("x-opt-deadletter-source"): "orders",
        },
        application_properties={"DeadLetterReason": "R", "DeadLetterErrorDescription": "D"},
        body_kind=DATA_BODY,
        body=[b"x"],
    )
    assert (message.sequence_number, message.enqueued_sequence_number) == (77, 5)
    assert message.enqueued_time_utc == moment_of(LONG_AGO)
    assert message.expires_at_utc == moment_of(LONG_AGO + 60_000)
    assert message.locked_until_ms == LONG_AGO + 30_000
    assert message.is_lock_expired
    # Without a lock there is nothing that it would be locked by.
    assert message.locked_until_utc is None
    assert message.delivery_count == 3
    assert message.state is ServiceBusMessageState.CLAIMED  # of earlier brokers
    assert (message.dead_letter_reason, message.dead_letter_error_description) == ("R", "D")
    assert message.dead_letter_source == "orders"


def test_a_claimed_message_says_so_beside_its_state() -> None:
    noted = {Symbol("x-opt-message-state"): Int(0), Symbol("com.peeklock:claimed"): True}
    message = delivered(message_annotations=noted, body_kind=DATA_BODY, body=[b"x"])
    assert message.state is ServiceBusMessageState.CLAIMED


def test_a_message_of_nothing_says_nothing() -> None:
    message = delivered(body_kind=0)
    assert list(message.body) == []
    assert bytes(message) == b""
    assert (message.sequence_number, message.message_id, message.time_to_live) == (None, None, None)
    assert message.application_properties == {}
    assert message.state is ServiceBusMessageState.ACTIVE
    assert not message.is_lock_expired


def test_it_is_told_what_a_content_is_made_of() -> None:
    assert ServiceBusMessage("x").body_type is AmqpMessageBodyType.DATA
    assert delivered(body_kind=DATA_BODY, body=[b"x"]).body_type == "data"
    assert delivered(body_kind=SEQUENCE_BODY, body=[[1]]).body_type == "sequence"
    assert delivered(body_kind=VALUE_BODY, body=1).body_type == "value"


def test_every_content_can_be_shown() -> None:
    assert str(delivered(body_kind=NO_BODY)) == str(read(ServiceBusMessage([]))) == ""
    assert str(delivered(body_kind=SEQUENCE_BODY, body=[[1, "a"]])) == "[[1, 'a']]"
    assert str(delivered(body_kind=VALUE_BODY, body="a")) == "a"


def test_a_value_is_given_as_it_is() -> None:
    message = delivered(body_kind=VALUE_BODY, body={"a": [1, 2]})
    assert message.body == {"a": [1, 2]}
    with pytest.raises(TypeError, match="a value"):
        bytes(message)


def test_a_received_message_is_sent_again_without_what_the_broker_wrote() -> None:
    again = delivered(
        header=Header(durable=True, delivery_count=3, ttl=60_000),
        message_annotations={
            Symbol("x-opt-sequence-number"): 77,
            Symbol("x-opt-partition-key"): "k",
            Symbol("mine"): 1,
        },
        properties=Properties(message_id="m"),
        body_kind=DATA_BODY,
        body=[b"x"],
    )
    message = decode_message(again.encoded())
    assert message.message_annotations == {"x-opt-partition-key": "k", "mine": 1}
    assert message.header == Header(durable=True, delivery_count=0, ttl=60_000)
    assert (message.properties, message.body) == (Properties(message_id="m"), [b"x"])
    assert again.routing_key == "k"


def test_senders_take_messages_in_several_forms() -> None:
    raw = AmqpMessage(properties=Properties(group_id="g"), body_kind=VALUE_BODY, body=5)
    assert as_message(raw).encoded() == encode_message(raw)
    assert as_message(raw).routing_key == "g"
    assert as_message({"body": "x", "message_id": "m"}).encoded() == (
        ServiceBusMessage("x", message_id="m").encoded()
    )
    with pytest.raises(TypeError, match="int is not a message"):
        as_message(5)  # type: ignore[arg-type]  # the mistake that is tested


def test_messages_can_be_pickled_and_copied() -> None:
    token = UUID(int=9)
    message = ServiceBusReceivedMessage(ServiceBusMessage("x").encoded(), lock_token=token)
    message.lock_renewed(LONG_AGO)
    for again in (pickle.loads(pickle.dumps(message)), copy.deepcopy(message)):
        assert (str(again), again.lock_token, again.locked_until_ms) == ("x", token, LONG_AGO)
        assert (again.link, again.delivery, again.is_settled) == (None, None, False)
    sent = pickle.loads(pickle.dumps(ServiceBusMessage("x", session_id="s", time_to_live=5)))
    assert (str(sent), sent.session_id, sent.time_to_live) == ("x", "s", timedelta(seconds=5))
