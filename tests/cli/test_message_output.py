"""Messages as commands tell them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from peeklock.amqp.messages.message import DATA_BODY, AmqpMessage, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.types import Symbol, Timestamp, Uint
from peeklock.cli.message_output import describe_message, preview
from peeklock.client.message import ServiceBusMessage

NOW = 1_700_000_000_000


def test_a_message_says_what_its_sender_said() -> None:
    message = ServiceBusMessage(
        b"hello",
        message_id="m",
        session_id="s",
        subject="x",
        content_type="text/plain",
        correlation_id="c",
        time_to_live=timedelta(days=90),
        scheduled_enqueue_time_utc=datetime(2023, 11, 14, 22, 13, 25, tzinfo=UTC),
        application_properties={"n": 5, "t": "text", "b": True, "r": 0.5},
    )
    told = describe_message(message.encoded())
    assert told["MessageId"] == "m"
    assert (told["SessionId"], told["Subject"], told["CorrelationId"]) == ("s", "x", "c")
    assert told["ContentType"] == "text/plain"
    assert told["ScheduledEnqueueTime"] == "2023-11-14T22:13:25.000Z"
    assert told["ApplicationProperties"] == {"n": 5, "t": "text", "b": True, "r": 0.5}
    assert told["Body"] == "hello"
    # The header has no room for more.
    assert told["TimeToLiveMs"] == 0xFFFF_FFFF


def test_a_bare_message_says_little() -> None:
    told = describe_message(ServiceBusMessage(b"").encoded())
    assert told == {"State": "active", "DeliveryCount": 0, "ApplicationProperties": {}, "Body": ""}


def read(**sections: Any) -> dict[str, Any]:
    return describe_message(encode_message(AmqpMessage(**sections)))


def test_what_json_has_no_type_for_is_written_as_text() -> None:
    told = read(
        properties=Properties(message_id=UUID(int=5), correlation_id=b"\x01"),
        message_annotations={Symbol("x-opt-sequence-number"): 9},
        application_properties={"when": Timestamp(NOW), "raw": b"\xff", "u": Uint(5)},
        body={"list": [1, b"x"]},
    )
    assert told["MessageId"] == "00000000-0000-0000-0000-000000000005"
    assert (told["CorrelationId"], told["SequenceNumber"]) == ("01", 9)
    assert told["ApplicationProperties"] == {
        "when": "2023-11-14T22:13:20.000Z",
        "raw": "/w==",
        "u": 5,
    }
    assert told["Body"] == {"list": [1, "eA=="]}
    assert preview(told) == '{"list": [1, "eA=="]}'


def test_content_that_is_no_text_is_told_by_its_size() -> None:
    told = read(body_kind=DATA_BODY, body=[b"\xff\xfe", b"\x00"])
    assert (told["BodyBase64"], told["BodyBytes"]) == ("//4A", 3)
    assert preview(told) == "(3 bytes)"
    assert preview({"Body": "a\nb" + "x" * 500}).startswith("a⏎bxxx")
