"""Messages become rows: every column, any subset, and bad messages as the reader wants them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from peeklock.amqp.messages.message import (
    DATA_BODY,
    SEQUENCE_BODY,
    VALUE_BODY,
    AmqpMessage,
    encode_message,
)
from peeklock.amqp.messages.message_forms import Header, Properties
from peeklock.amqp.values.types import Int, Symbol, Timestamp, Ubyte, Uint
from peeklock.spark.schema import MESSAGE_COLUMNS, Columns, SchemaProblem, struct_of
from peeklock.spark.source.arrow import BadRecord, Decoder, number_of, wants_body

NUMBER = 3 << 48 | 7
ALL = Columns(struct_of(MESSAGE_COLUMNS), MESSAGE_COLUMNS)


def columns(text: str) -> Columns:
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    kinds: dict[str, Any] = {"long": LongType(), "string": StringType(), "binary": BinaryType()}
    fields = [part.split() for part in text.split(",")]
    struct = StructType([StructField(name, kinds[kind]) for name, kind in fields])
    return Columns(struct, MESSAGE_COLUMNS)


def letter(**options: Any) -> bytes:
    annotations = {
        Symbol("x-opt-sequence-number"): NUMBER,
        Symbol("x-opt-enqueued-time"): Timestamp(1_767_225_600_123),
        Symbol("x-opt-message-state"): Int(3),
        Symbol("x-opt-partition-key"): "key",
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(1_767_225_600_000),
        Symbol("x-opt-deadletter-source"): "orders",
    }
    parts: dict[str, Any] = {
        "header": Header(durable=True, ttl=Uint(1_000), delivery_count=Uint(2)),
        "message_annotations": annotations,
        "properties": Properties(
            message_id="m-1",
            to="there",
            subject="letter",
            reply_to="here",
            correlation_id="c",
            content_type=Symbol("text/plain"),
            group_id="s",
        ),
        "application_properties": {"n": Int(3), "DeadLetterReason": "bad", "nothing": None},
        "body_kind": DATA_BODY,
        "body": [b"hello ", b"world"],
    }
    return encode_message(AmqpMessage(**{**parts, **options}))


def rows(wanted: Columns, payloads: list[bytes], **options: Any) -> list[dict[str, Any]]:
    options.setdefault("bad_records", "emit")
    decoder = Decoder(wanted, "orders/$DeadLetterQueue", **options)
    found: list[dict[str, Any]] = decoder.batch(payloads).to_pylist()
    return found


def test_every_column_is_filled() -> None:
    """R-D1."""
    (row,) = rows(ALL, [letter()])
    assert row == {
        "sequence_number": NUMBER,
        "enqueued_time": datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC),
        "message_id": "m-1",
        "session_id": "s",
        "partition_key": "key",
        "subject": "letter",
        "correlation_id": "c",
        "content_type": "text/plain",
        "to": "there",
        "reply_to": "here",
        "body": b"hello world",
        "application_properties": [("n", "3"), ("DeadLetterReason", "bad"), ("nothing", None)],
        "delivery_count": 2,
        "state": "claimed",
        "expires_at": datetime(2026, 1, 1, 0, 0, 1, 123_000, UTC),
        "scheduled_enqueue_time": datetime(2026, 1, 1, tzinfo=UTC),
        "dead_letter_reason": "bad",
        "dead_letter_description": None,
        "dead_letter_source": "orders",
        "entity": "orders/$DeadLetterQueue",
        "partition_id": 3,
        "body_section": "data",
        "properties_json": '{"n":{"int":3},"DeadLetterReason":{"string":"bad"},"nothing":null}',
        "error": None,
    }


def test_an_empty_message_has_a_row() -> None:
    (row,) = rows(ALL, [b"\x00\x53\x75\xa0\x00"])
    assert row["body"] == b""
    assert row["application_properties"] == []
    assert {row[name] for name in ("sequence_number", "error", "message_id")} == {None}


def test_any_subset_in_any_order() -> None:
    wanted = columns("subject string, sequence_number long")
    assert rows(wanted, [letter()]) == [{"subject": "letter", "sequence_number": NUMBER}]
    assert rows(wanted, []) == []
    assert not wants_body(wanted, True)


@pytest.mark.parametrize(
    ("kind", "body", "expected", "section"),
    [
        (VALUE_BODY, "tëxt", "tëxt".encode(), "value"),
        (VALUE_BODY, b"\x00\x01", b"\x00\x01", "value"),
        (VALUE_BODY, {"a": [1, True, None]}, b'{"a": [1, true, null]}', "value"),
        (VALUE_BODY, Timestamp(0), b'"1970-01-01T00:00:00.000Z"', "value"),
        (VALUE_BODY, None, None, "value"),
        (SEQUENCE_BODY, [[1, "x"], [Ubyte(2)]], b'[1, "x", 2]', "sequence"),
    ],
)
def test_bodies_of_every_kind(kind: int, body: Any, expected: bytes | None, section: str) -> None:
    (row,) = rows(ALL, [letter(body_kind=kind, body=body)])
    assert (row["body"], row["body_section"], row["error"]) == (expected, section, None)


def test_a_body_may_be_wanted_as_text_or_not_at_all() -> None:
    text = columns("body string, error string")
    assert rows(text, [letter(body=[b"\xc3\xa4"])]) == [{"body": "ä", "error": None}]
    (bad,) = rows(text, [letter(body=[b"\xff"])])
    assert bad["body"] is None
    assert "utf-8" in bad["error"]
    (row,) = rows(ALL, [letter()], include_body=False)
    assert (row["body"], row["body_section"], row["message_id"]) == (None, None, "m-1")


def test_bad_messages_are_rows_in_their_place() -> None:
    # An application property whose name is no text, and bytes that are no message behind the head.
    odd = letter(application_properties={1: "x"})
    broken = letter() + b"\x00\x53\x99"
    good, troubled, last, lost = rows(ALL, [letter(), odd, broken, b"junk"])
    assert good["error"] is None
    assert (troubled["sequence_number"], troubled["message_id"]) == (NUMBER, "m-1")
    assert troubled["application_properties"] is None
    assert troubled["entity"] == "orders/$DeadLetterQueue"
    assert (last["sequence_number"], last["body"]) == (NUMBER, broken)
    assert (lost["sequence_number"], lost["body"]) == (None, b"junk")
    assert all(row["error"] for row in (troubled, last, lost))


def test_bad_messages_are_left_out_for_the_dead_letter_queue() -> None:
    decoder = Decoder(ALL, "orders", bad_records="deadletter")
    batch = decoder.batch([letter(), letter() + b"\x00\x53\x99"])
    assert batch.num_rows == 1
    assert [number for number, _ in decoder.bad] == [NUMBER]


def test_bad_messages_fail_the_task() -> None:
    with pytest.raises(BadRecord, match=f"message {NUMBER} of"):
        rows(ALL, [letter() + b"\x00\x53\x99"], bad_records="fail")


def test_a_number_is_found_in_front_of_what_is_broken() -> None:
    assert number_of(letter() + b"junk") == NUMBER
    assert number_of(b"junk") is None
    assert number_of(b"") is None


def test_unknown_columns_are_named() -> None:
    with pytest.raises(SchemaProblem, match=r"no column 'subjct'.*did you mean 'subject'"):
        columns("subjct string")
    with pytest.raises(SchemaProblem, match="'subject' is string, not bigint"):
        columns("subject long")
    with pytest.raises(SchemaProblem, match="'body' is binary or string"):
        columns("body long")
