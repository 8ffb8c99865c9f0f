"""Messages in and out: the bare message byte-exact, everything around it as it was meant."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.codec import encode
from peeklock.amqp.composites import Header, Properties
from peeklock.amqp.errors import DecodeError
from peeklock.amqp.message import (
    DATA_BODY,
    SEQUENCE_BODY,
    Message,
    decode_message,
    encode_message,
    lone_data_at,
    read_properties,
    split,
)
from peeklock.amqp.types import Described, Symbol, Timestamp, Uint, Ulong
from peeklock.broker.chance import SeededChance
from peeklock.entity import message as domain
from peeklock.entity.replies import STATE_ACTIVE, Delivery, Details
from peeklock.gateway.amqp.lock_tokens import lock_tag, token_of, uuid_of
from peeklock.gateway.amqp.translate import (
    incoming,
    incoming_run,
    outgoing,
    way_of,
    without_body,
)
from peeklock.gateway.identifiers import MessageIds

NOW = 1_700_000_000_000
IDS = MessageIds(SeededChance(1).number)
DAY_MS = 86_400_000


def read(**sections: Any) -> domain.Message:
    sections.setdefault("properties", Properties(message_id="m"))
    return incoming(encode_message(Message(**sections)), NOW, IDS, False)


def written(
    message: domain.Message,
    *,
    details: Details | None = None,
    expires_at: int = 0,
    locked_until: int = NOW + 60_000,
    delivery_count: int = 0,
) -> Message:
    delivery = Delivery(
        5,
        9,
        locked_until,
        delivery_count,
        NOW,
        expires_at,
        1,
        message,
        details,
        STATE_ACTIVE,
    )
    head, body = outgoing(delivery)
    return decode_message(head + body)


def test_an_ordinary_message_has_no_envelope() -> None:
    """Neither has one that says what is so anyway."""
    for header in (None, Header(), Header(durable=True), Header(ttl=5)):
        assert read(header=header, body="x").envelope == b""
    assert read(message_annotations={}, delivery_annotations={}, body="x").envelope == b""


@pytest.mark.parametrize("footer", [None, {Symbol("f"): 1}])
@pytest.mark.parametrize(
    ("kind", "body"),
    [(DATA_BODY, [b"a", b"", b"c"]), (SEQUENCE_BODY, [[1, "x"], []]), (0x77, {"k": [None, 1.5]})],
)
def test_the_bare_message_stays_byte_exact(kind: int, body: Any, footer: Any) -> None:
    bare = Message(
        properties=Properties(message_id=UUID(int=3), subject="s", group_id="g"),
        application_properties={"n": Uint(1), "t": Timestamp(NOW), "s": Symbol("y")},
        body_kind=kind,
        body=body,
        footer=footer,
    )
    raw = encode_message(bare)
    message = incoming(raw, NOW, IDS, False)
    assert message.content == raw
    told = written(message)
    assert told.body == body
    assert told.footer == footer
    assert told.application_properties == bare.application_properties


def test_delivery_annotations_may_come_last() -> None:
    """Python's client puts them there."""
    bare = encode_message(Message(properties=Properties(message_id="m"), body="x"))
    last = encode(Described(Ulong(0x71), {Symbol("d"): 1}))
    message = incoming(bare + last, NOW, IDS, False)
    assert message.content == bare
    assert written(message).delivery_annotations == {"d": 1}


@pytest.mark.parametrize("durable", [None, False, True])
@pytest.mark.parametrize("priority", [None, 0, 4, 255])
@pytest.mark.parametrize("delivery_annotations", [None, {Symbol("d"): "x"}])
@pytest.mark.parametrize("annotations", [None, {Symbol("x-opt-partition-key"): "p", "own": 1}])
def test_what_the_sender_wrote_around_it_comes_back(
    durable: bool | None, priority: int | None, delivery_annotations: Any, annotations: Any
) -> None:
    message = read(
        header=Header(durable=durable, priority=priority),
        delivery_annotations=delivery_annotations,
        message_annotations=annotations,
        body="x",
    )
    told = written(message, delivery_count=3)
    assert told.header == Header(durable=durable is not False, priority=priority, delivery_count=3)
    assert told.delivery_annotations == delivery_annotations
    assert told.message_annotations is not None
    assert told.message_annotations.items() >= (annotations or {}).items()
    assert told.message_annotations["x-opt-sequence-number"] == 5


def test_annotations_of_a_former_life_are_dropped() -> None:
    """A received message can be sent again."""
    former = {
        Symbol("x-opt-sequence-number"): 77,
        Symbol("x-opt-enqueued-time"): Timestamp(1),
        Symbol("x-opt-locked-until"): Timestamp(2),
        Symbol("x-opt-message-state"): 1,
        Symbol("x-opt-enqueue-sequence-number"): 77,
    }
    message = read(
        message_annotations=former,
        delivery_annotations={Symbol("x-opt-lock-token"): UUID(int=1)},
        body="x",
    )
    assert message.envelope == b""
    told = written(message).message_annotations
    assert told is not None
    assert len(told) == 5
    assert told["x-opt-sequence-number"] == told["x-opt-enqueue-sequence-number"] == 5


@pytest.mark.parametrize(
    ("header", "expiry", "created", "life_ms"),
    [
        (None, None, None, -1),
        (5_000, None, None, 5_000),
        (0, None, None, 0),
        (5_000, NOW + 5_000, NOW, 5_000),
        (5_000, NOW + 3_000, NOW, 3_000),
        (None, NOW + 90 * DAY_MS, NOW, 90 * DAY_MS),
        (0xFFFF_FFFF, NOW + 90 * DAY_MS, NOW, 90 * DAY_MS),
        (None, NOW + 7_000, None, 7_000),
        (None, NOW - 7_000, None, 0),
        (0xFFFF_FFFF, None, None, 0xFFFF_FFFF),
    ],
)
def test_the_time_to_live(
    header: int | None, expiry: int | None, created: int | None, life_ms: int
) -> None:
    """The smaller wins; what 32 bits cannot hold is read from the expiry."""
    properties = Properties(message_id="m", absolute_expiry_time=expiry, creation_time=created)
    message = read(header=Header(ttl=header), properties=properties, body="x")
    assert message.time_to_live_ms == life_ms


def test_the_life_that_is_told_is_the_effective_one() -> None:
    header = written(read(body="x"), expires_at=NOW + 4_000).header
    assert header is not None
    assert header.ttl == 4_000
    long = written(read(body="x"), expires_at=NOW + 90 * DAY_MS).header
    assert long is not None
    assert long.ttl == 0xFFFF_FFFF


def test_the_scheduled_instant_is_a_fact_and_not_an_annotation() -> None:
    name = Symbol("x-opt-scheduled-enqueue-time")
    message = read(message_annotations={name: Timestamp(NOW + 1)}, body="x")
    assert (message.scheduled_at, message.envelope) == (NOW + 1, b"")
    details = Details()
    details.scheduled_at = NOW + 1
    details.time_to_live_ms = 900
    details.enqueue_sequence = 4
    told = written(message, details=details)
    assert told.message_annotations is not None
    assert told.message_annotations[name] == NOW + 1
    assert told.message_annotations["x-opt-enqueue-sequence-number"] == 4
    assert told.header is not None
    assert told.header.ttl == 900
    with pytest.raises(DecodeError, match="x-opt-scheduled-enqueue-time"):
        read(message_annotations={name: "soon"}, body="x")


@pytest.mark.parametrize("properties", [None, Properties(), Properties(subject="s")])
def test_a_missing_id_is_made_up(properties: Properties | None) -> None:
    """R-S9: and nothing else in the message changes."""
    raw = encode_message(Message(properties=properties, body="x"))
    message = incoming(raw, NOW, IDS, False)
    told = written(message)
    assert told.properties is not None
    assert len(told.properties.message_id) == 32
    assert told.properties.subject == (properties and properties.subject)
    assert message.content.endswith(encode(Described(Ulong(0x77), "x")))


def test_changes_and_reasons_become_application_properties() -> None:
    """R-S5: over the sender's, of which the others stay."""
    message = read(application_properties={"kept": 1, "changed": 2}, body="x")
    details = Details()
    details.changes = {"changed": encode("new"), "added": encode(True)}
    details.reason = "why"
    details.description = "because"
    assert written(message, details=details).application_properties == {
        "kept": 1,
        "changed": "new",
        "added": True,
        "DeadLetterReason": "why",
        "DeadLetterErrorDescription": "because",
    }


def test_a_message_that_was_not_locked_says_nothing_of_a_lock() -> None:
    told = written(read(body="x"), locked_until=0).message_annotations
    assert told is not None
    assert "x-opt-locked-until" not in told


def test_a_body_can_be_left_out() -> None:
    content = read(application_properties={"n": 1}, body="x", footer={Symbol("f"): 1}).content
    left = decode_message(without_body(content))
    assert (left.body, left.footer) == ([b""], None)
    assert left.application_properties == {"n": 1}


@pytest.mark.parametrize(
    "payload", [b"\x00", b"x", b"\x00\x53\x73\xc0\x05\x01", b"\x00\x53\x10\x45"]
)
def test_what_cannot_be_read_is_an_error(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        incoming(payload, NOW, IDS, False)


@given(st.integers(1, (1 << 63) - 1), st.integers(0, (1 << 64) - 1))
def test_a_delivery_tag_is_the_token_in_dotnet_order(sequence: int, number: int) -> None:
    uuid = UUID(bytes_le=lock_tag(sequence, number))
    assert uuid.int >> 64 == sequence
    token = token_of(uuid)
    assert (token.sequence, token.number) == (sequence, number)
    assert uuid_of(token) == uuid


@pytest.mark.parametrize(
    "header", ["", "00 53 70 c0 02 01 41", "00 53 70 c0 03 01 56 01", "00 53 70 45"]
)
def test_a_lone_data_section_is_read_the_short_way_like_any_other(header: str) -> None:
    """The short way and `split` agree, and a length that does not fit goes the long way."""
    data = bytes.fromhex("00 53 75 b0 00 00 00 03 61 62 63")
    raw = bytes.fromhex(header) + data
    assert lone_data_at(raw) == len(raw) - len(data)
    message = incoming(raw, NOW, IDS, False)
    sections = split(message.content)
    assert message.envelope == b""
    assert message.content[sections.body_at :] == data == split(raw).bare
    found = read_properties(message.content, sections.properties_at).message_id
    assert found is not None
    assert len(found) == 32
    assert lone_data_at(raw + b"x") == lone_data_at(raw[:-1]) == -1
    with pytest.raises(DecodeError):
        incoming(raw[:-1], NOW, IDS, False)


def test_ids_differ() -> None:
    assert len({IDS.next() for _ in range(1000)}) == 1000


# --- keys


def keyed(**sections: Any) -> domain.Message:
    sections.setdefault("properties", Properties(message_id="m"))
    return incoming(encode_message(Message(**sections)), NOW, IDS, True)


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        ("m", "m"),
        ("", ""),
        (Ulong(2**64 - 1), "18446744073709551615"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"octets", "6f6374657473"),
        ("x" * 128, "x" * 128),
    ],
)
@pytest.mark.parametrize("group_id", [None, "", "s", "y" * 128])
@pytest.mark.parametrize("partition_key", [None, "", "p"])
def test_keys_are_read_where_they_are_wanted(
    message_id: Any, text: str, group_id: str | None, partition_key: str | None
) -> None:
    """And the annotations stay for the receiver."""
    annotations = {
        Symbol("x-opt-partition-key"): partition_key,
        Symbol("x-opt-via-partition-key"): "v",
    }
    sections: dict[str, Any] = {
        "properties": Properties(message_id=message_id, group_id=group_id, to="t", user_id=b"u"),
        "message_annotations": annotations,
        "body": "x",
    }
    message = keyed(**sections)
    assert (message.message_id, message.session_id) == (text, group_id)
    assert message.partition_key == partition_key
    unread = read(**sections)
    assert (unread.message_id, unread.session_id, unread.partition_key) == ("", None, None)
    assert (unread.envelope, unread.content) == (message.envelope, message.content)
    told = written(message).message_annotations
    assert told is not None
    assert told.items() >= annotations.items()


def test_a_key_may_be_bytes() -> None:
    """As the official Python client writes it into a message that it received and sends again."""
    annotations = {
        Symbol("x-opt-partition-key"): "ü".encode(),
        Symbol("x-opt-via-partition-key"): b"v",
    }
    raw = encode_message(Message(message_annotations=annotations, body="x"))
    assert incoming(raw, NOW, IDS, True).partition_key == "ü"
    assert way_of(raw) == "v"


@pytest.mark.parametrize(
    "raw",
    [
        bytes.fromhex("00 53 75 b0 00000001 61"),
        bytes.fromhex("00 53 75 a0 01 61"),
        bytes.fromhex("00 53 70 45  00 53 72 d1 00000004 00000000  00 53 73 45  00 53 75 a0 01 61"),
        encode_message(Message(properties=Properties(group_id="s"), body="x")),
    ],
)
def test_a_key_that_was_made_is_the_one_in_the_message(raw: bytes) -> None:
    message = incoming(raw, NOW, IDS, True)
    sections = split(message.content)
    properties = read_properties(message.content, sections.properties_at)
    assert len(message.message_id) == 32
    assert message.message_id == properties.message_id
    assert message.session_id == properties.group_id


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"properties": Properties(message_id="x" * 129)}, "message-id has more than 128"),
        ({"properties": Properties(message_id=b"x" * 65)}, "message-id has more than 128"),
        (
            {"properties": Properties(message_id="m", group_id="x" * 129)},
            "group-id has more than 128",
        ),
        (
            {"message_annotations": {Symbol("x-opt-partition-key"): "x" * 129}},
            "x-opt-partition-key has more than 128",
        ),
        (
            {"message_annotations": {Symbol("x-opt-partition-key"): 5}},
            "x-opt-partition-key is not a string",
        ),
        (
            {"message_annotations": {Symbol("x-opt-partition-key"): b"\xff"}},
            "x-opt-partition-key is not a string",
        ),
        (
            {"message_annotations": {Symbol("x-opt-partition-key"): Symbol("p")}},
            "x-opt-partition-key is not a string",
        ),
    ],
)
def test_keys_that_nobody_can_decide_by_are_refused(sections: dict[str, Any], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        keyed(body="x", **sections)
    read(body="x", **sections)


@pytest.mark.parametrize(
    "section",
    [
        encode(Described(Ulong(0x73), [[1]])),
        encode(Described(Ulong(0x73), ["m", *[None] * 9, 5])),
        b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff",
        b"\x00\x53\x74\xc1\x03\x02\x40\xa1",
    ],
)
def test_what_keys_and_rules_need_is_checked_where_they_are_wanted(section: bytes) -> None:
    raw = section + b"\x00\x53\x75\xa0\x01\x61"
    with pytest.raises(DecodeError):
        incoming(raw, NOW, IDS, True)
    incoming(raw, NOW, IDS, False)


def test_where_a_message_was_dead_lettered_is_told() -> None:
    details = Details()
    details.source = "the-queue"
    details.enqueue_sequence = 3
    told = written(read(body="x"), details=details, locked_until=0).message_annotations
    assert told is not None
    assert told["x-opt-deadletter-source"] == "the-queue"
    assert type(told["x-opt-deadletter-source"]) is str
    assert told["x-opt-enqueue-sequence-number"] == 3
    without = written(read(body="x"), details=Details()).message_annotations
    assert without is not None
    assert "x-opt-deadletter-source" not in without


def test_reasons_are_left_out_where_properties_are_no_map() -> None:
    """Such a message is handed on as it came, rather than never."""
    raw = b"\x00\x53\x74\xc1\x03\x02\x40\xa1\x00\x53\x75\xa0\x01\x61"
    message = incoming(raw, NOW, IDS, False)
    details = Details()
    details.reason = "why"
    _, content = outgoing(Delivery(5, 9, 0, 0, NOW, 0, 1, message, details, STATE_ACTIVE))
    assert content == message.content


def test_no_life_is_longer_than_the_longest() -> None:
    properties = Properties(message_id="m", absolute_expiry_time=2**63 - 1, creation_time=0)
    assert read(properties=properties, body="x").time_to_live_ms == 10_675_199 * DAY_MS


@pytest.mark.parametrize("wants_keys", [False, True])
def test_a_run_is_read_as_its_messages_are_one_by_one(wants_keys: bool) -> None:
    data = bytes.fromhex("00 53 75 b0 00 00 00 03") + b"abc"
    durable = bytes.fromhex("00 53 70 c0 02 01 41") + data
    other = encode_message(Message(properties=Properties(message_id="m"), body="x"))
    mortal = encode_message(Message(header=Header(ttl=7), body_kind=DATA_BODY, body=[b"y"]))
    payloads = [data, durable, durable, durable[:-3] + b"xyz", other, durable, mortal, data]
    one_by_one = MessageIds(SeededChance(7).number)
    alone = [incoming(payload, NOW, one_by_one, wants_keys) for payload in payloads]
    together = incoming_run(payloads, 1_000, NOW, MessageIds(SeededChance(7).number), wants_keys)
    assert [(m.envelope, m.content, m.message_id, m.time_to_live_ms) for m in together] == [
        (m.envelope, m.content, m.message_id, m.time_to_live_ms) for m in alone
    ]


@pytest.mark.parametrize("bad", [b"\x00\x53", b"x" * 200])
def test_a_run_is_read_up_to_what_cannot_be_taken(bad: bytes) -> None:
    data = bytes.fromhex("00 53 75 b0 00 00 00 03") + b"abc"
    assert len(incoming_run([data, data, bad, data], 100, NOW, IDS, False)) == 2


def test_generated_ids_do_not_repeat() -> None:
    ids = MessageIds(SeededChance(1).number)
    made = [ids.next() for _ in range(70_000)]
    assert len(set(made)) == 70_000
    assert {len(each) for each in made} == {32}
    assert all(each[:16] == made[0][:16] for each in made)
    assert [int(each[16:], 16) for each in made] == list(range(1, 70_001))
