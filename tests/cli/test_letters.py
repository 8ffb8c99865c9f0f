"""Messages as commands make and tell them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from peeklock.amqp.composites import Properties
from peeklock.amqp.message import DATA_BODY, Message, decode_message, encode_message
from peeklock.amqp.types import Symbol, Timestamp, Uint
from peeklock.cli.letters import preview, read_letter, write_letter

NOW = 1_700_000_000_000


def test_a_message_says_what_was_asked_for() -> None:
    letter = write_letter(
        b"hello",
        now=NOW,
        message_id="m",
        session_id="s",
        subject="x",
        content_type="text/plain",
        correlation_id="c",
        ttl_ms=90 * 86_400_000,
        at=NOW + 5000,
        properties={"n": 5, "t": "text", "b": True, "r": 0.5},
    )
    told = read_letter(letter)
    assert told["MessageId"] == "m"
    assert (told["SessionId"], told["Subject"], told["CorrelationId"]) == ("s", "x", "c")
    assert told["ContentType"] == "text/plain"
    assert told["ScheduledEnqueueTime"] == "2023-11-14T22:13:25.000Z"
    assert told["ApplicationProperties"] == {"n": 5, "t": "text", "b": True, "r": 0.5}
    assert told["Body"] == "hello"
    properties = decode_message(letter).properties
    assert properties is not None
    # More than the header can say.
    assert told["TimeToLiveMs"] == 0xFFFF_FFFF
    assert properties.absolute_expiry_time == NOW + 90 * 86_400_000


def test_a_bare_message_says_little() -> None:
    told = read_letter(write_letter(b"", now=NOW))
    assert told == {"State": "active", "DeliveryCount": 0, "ApplicationProperties": {}, "Body": ""}


def read(**sections: Any) -> dict[str, Any]:
    return read_letter(encode_message(Message(**sections)))


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
