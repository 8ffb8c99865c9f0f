"""Messages in and out: the bare message byte-exact, everything around it as it was meant."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.message import (
    DATA_BODY,
    NO_BODY,
    SEQUENCE_BODY,
    AmqpMessage,
    decode_message,
    encode_message,
)
from peeklock.amqp.messages.message_forms import Header, Properties
from peeklock.amqp.messages.properties import read_properties
from peeklock.amqp.messages.sections import lone_data_at, split
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Symbol, Timestamp, Uint, Ulong
from peeklock.entity import message as domain
from peeklock.entity.deliveries import (
    STATE_ACTIVE,
    STATE_DEFERRED,
    Delivery,
    Details,
)
from peeklock.gateway.amqp.management.lock_tokens import (
    pack_tag,
    tag_begin,
    token_of,
    turned,
    uuid_of,
)
from peeklock.gateway.amqp.messages.envelope import AS_IT_LIVES, DURABLE, Envelope, opened
from peeklock.gateway.amqp.messages.translate import (
    incoming,
    incoming_run,
    outgoing,
    outgoing_run,
    via_key_of,
    without_body,
)
from peeklock.gateway.identifiers import MessageIds
from tests.amqp.any_values import same
from tests.broker.seeded_random import SeededRandom

NOW = 1_700_000_000_000
IDS = MessageIds(SeededRandom(1).number)
DAY_MS = 86_400_000


def read(**sections: Any) -> domain.Message:
    sections.setdefault("properties", Properties(message_id="m"))
    return incoming(encode_message(AmqpMessage(**sections)), NOW, IDS, False)


def written(
    message: domain.Message,
    *,
    details: Details | None = None,
    expires_at: int = 0,
    locked_until: int = NOW + 60_000,
    delivery_count: int = 0,
) -> AmqpMessage:
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


def noted(told: AmqpMessage) -> dict[Any, Any]:
    """The delivery annotations beside the lock token, which comes first."""
    assert told.delivery_annotations is not None
    (token, value), *others = told.delivery_annotations.items()
    assert (token, value) == ("x-opt-lock-token", UUID(int=5 << 64 | 9))
    return dict(others)


def test_an_ordinary_message_has_no_envelope() -> None:
    """Neither has one that says nothing but what is known by other ways."""
    for header in (None, Header(), Header(ttl=5)):
        assert read(header=header, body="x").envelope == b""
    assert read(message_annotations={}, delivery_annotations={}, body="x").envelope == b""


@pytest.mark.parametrize("footer", [None, {Symbol("f"): 1}])
@pytest.mark.parametrize(
    ("kind", "body"),
    [(DATA_BODY, [b"a", b"", b"c"]), (SEQUENCE_BODY, [[1, "x"], []]), (0x77, {"k": [None, 1.5]})],
)
def test_the_bare_message_stays_byte_exact(kind: int, body: Any, footer: Any) -> None:
    bare = AmqpMessage(
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
    bare = encode_message(AmqpMessage(properties=Properties(message_id="m"), body="x"))
    last = encode(Described(Ulong(0x71), {Symbol("d"): 1}))
    message = incoming(bare + last, NOW, IDS, False)
    assert message.content == bare
    assert noted(written(message)) == {"d": 1}


@pytest.mark.parametrize("durable", [None, False, True])
@pytest.mark.parametrize("priority", [None, 0, 4, 255])
@pytest.mark.parametrize("delivery_annotations", [None, {Symbol("d"): "x"}])
@pytest.mark.parametrize("annotations", [None, {Symbol("x-opt-partition-key"): "p", "own": 1}])
@pytest.mark.parametrize(("ttl", "first"), [(None, None), (7, True), (0, False)])
def test_what_the_sender_wrote_around_it_comes_back(
    durable: bool | None,
    priority: int | None,
    delivery_annotations: Any,
    annotations: Any,
    ttl: int | None,
    first: bool | None,
) -> None:
    """And what it left out stays out."""
    message = read(
        header=Header(durable=durable, priority=priority, ttl=ttl, first_acquirer=first),
        delivery_annotations=delivery_annotations,
        message_annotations=annotations,
        body="x",
    )
    told = written(message, delivery_count=3)
    assert told.header == Header(
        durable=durable, priority=priority, ttl=ttl, first_acquirer=first, delivery_count=3
    )
    assert noted(told) == (delivery_annotations or {})
    assert told.message_annotations is not None
    assert told.message_annotations.items() >= (annotations or {}).items()
    assert told.message_annotations["x-opt-sequence-number"] == 5
    assert all(type(key) is Symbol for key in told.message_annotations)


@pytest.mark.parametrize("kind", [str, Symbol])
def test_keys_that_were_written_as_strings_arrive_as_symbols(kind: Any) -> None:
    """Java's client reads nothing else."""
    raw = {kind("k"): "k", kind("l" * 300): 1}
    message = read(delivery_annotations=raw, message_annotations=raw, footer=raw, body="x")
    told = written(message)
    for found in (noted(told), told.message_annotations, told.footer):
        assert found is not None
        assert found.items() >= {Symbol("k"): "k", Symbol("l" * 300): 1}.items()
        assert all(type(key) is Symbol for key in found)


def test_envelopes_of_the_first_form_are_opened() -> None:
    """Messages that were stored before are delivered like those of today."""
    pairs = encode("own") + encode("value")
    first = struct.pack(">BBBBIII", 1, 2, True, 7, 1, len(pairs), 1) + pairs + pairs
    message = domain.Message(first, read(body="x").content)
    told = written(message)
    assert told.header == Header(durable=True, priority=7, delivery_count=0)
    assert same(noted(told), {Symbol("own"): "value"})
    assert told.message_annotations is not None
    assert type(list(told.message_annotations)[-1]) is Symbol
    absent = struct.pack(">BBBBIII", 1, 0, False, 0, 0, 0, 0)
    told = written(domain.Message(absent, message.content, domain.Traits(time_to_live_ms=5)))
    assert told.header == Header(ttl=5, delivery_count=0)


@given(
    st.builds(
        Envelope,
        durable=st.integers(-1, 1),
        priority=st.integers(-1, 255),
        ttl_ms=st.sampled_from([AS_IT_LIVES, -1, 0, 5, 0xFFFF_FFFF]),
        first_acquirer=st.integers(-1, 1),
        delivery_annotations=st.just(b"ab"),
        delivery_annotations_count=st.just(1),
        annotations=st.sampled_from([b"", b"cde"]),
        annotations_count=st.just(1),
    )
)
def test_what_is_sealed_is_opened_again(envelope: Envelope) -> None:
    assert opened(envelope.sealed()) == envelope
    alone = Envelope(durable=envelope.durable, ttl_ms=envelope.ttl_ms)
    assert opened(alone.sealed()) == alone


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
    assert list(told) == ["x-opt-enqueued-time", "x-opt-sequence-number", "x-opt-locked-until"]
    assert told["x-opt-sequence-number"] == 5


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
    told = written(message).header
    assert told is not None
    assert told.ttl == header


def test_the_life_that_is_told_is_the_one_that_the_sender_gave() -> None:
    """The default of its entity, which ends it sooner, does not change what the header says."""
    header = written(read(body="x"), expires_at=NOW + 4_000).header
    assert header is not None
    assert header.ttl is None
    header = written(read(body="x", header=Header(ttl=9_000)), expires_at=NOW + 4_000).header
    assert header is not None
    assert header.ttl == 9_000


def test_the_scheduled_instant_is_a_fact_and_not_an_annotation() -> None:
    name = Symbol("x-opt-scheduled-enqueue-time")
    message = read(message_annotations={name: Timestamp(NOW + 1)}, body="x")
    assert (message.scheduled_at, message.envelope) == (NOW + 1, b"")
    details = Details()
    details.scheduled_at = NOW + 1
    details.enqueue_sequence = 4
    told = written(message, details=details)
    assert told.message_annotations is not None
    assert told.message_annotations[name] == NOW + 1
    assert told.message_annotations["x-opt-enqueue-sequence-number"] == 4
    assert told.message_annotations["x-opt-message-state"] == 2
    with pytest.raises(DecodeError, match="x-opt-scheduled-enqueue-time"):
        read(message_annotations={name: "soon"}, body="x")


@pytest.mark.parametrize("properties", [None, Properties(), Properties(subject="s")])
def test_a_missing_id_is_made_up(properties: Properties | None) -> None:
    """R-S9: and nothing else in the message changes."""
    raw = encode_message(AmqpMessage(properties=properties, body="x"))
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
    assert (left.body_kind, left.footer) == (NO_BODY, {"f": 1})
    assert left.application_properties == {"n": 1}


@pytest.mark.parametrize(
    "payload", [b"\x00", b"x", b"\x00\x53\x73\xc0\x05\x01", b"\x00\x53\x10\x45"]
)
def test_what_cannot_be_read_is_an_error(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        incoming(payload, NOW, IDS, False)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, 0x1_0000, 0xFFFF, 7 << 48 | 5]),
            st.sampled_from([(0, 0), (9, NOW + 1), ((1 << 64) - 1, NOW + 2)]),
            st.sampled_from([0, 300]),
            st.sampled_from([b"", DURABLE, Envelope(priority=3).sealed()]),
            st.sampled_from([None, 5]),
            st.sampled_from([STATE_ACTIVE, STATE_DEFERRED]),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_a_run_is_written_like_each_of_its_messages(facts: list[Any]) -> None:
    content = read(body="x").content
    deliveries: list[Delivery] = []
    for sequence, (number, until), count, envelope, life_ms, state, has_details in facts:
        traits = None if life_ms is None else domain.Traits(time_to_live_ms=life_ms)
        details = Details() if has_details else None
        if details is not None:
            details.enqueue_sequence = 3
        message = domain.Message(envelope, content, traits)
        deliveries.append(
            Delivery(sequence, number, until, count, NOW, 0, 1, message, details, state)
        )
    tags: list[bytes] = []
    heads: list[bytes] = []
    bodies: list[bytes] = []
    size = outgoing_run(deliveries, tags, heads, bodies)
    assert list(zip(heads, bodies, strict=True)) == [outgoing(each) for each in deliveries]
    assert tags == [lock_tag(each.sequence, each.number) for each in deliveries]
    assert size == sum(map(len, heads + bodies))


def lock_tag(sequence: int, number: int) -> bytes:
    return pack_tag(tag_begin(sequence), turned(sequence), number)


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
    assert message.envelope == (DURABLE if "41" in header or "56" in header else b"")
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
    return incoming(encode_message(AmqpMessage(**sections)), NOW, IDS, True)


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
    raw = encode_message(AmqpMessage(message_annotations=annotations, body="x"))
    assert incoming(raw, NOW, IDS, True).partition_key == "ü"
    assert via_key_of(raw) == "v"


@pytest.mark.parametrize(
    "raw",
    [
        bytes.fromhex("00 53 75 b0 00000001 61"),
        bytes.fromhex("00 53 75 a0 01 61"),
        bytes.fromhex("00 53 70 45  00 53 72 d1 00000004 00000000  00 53 73 45  00 53 75 a0 01 61"),
        encode_message(AmqpMessage(properties=Properties(group_id="s"), body="x")),
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
    other = encode_message(AmqpMessage(properties=Properties(message_id="m"), body="x"))
    mortal = encode_message(AmqpMessage(header=Header(ttl=7), body_kind=DATA_BODY, body=[b"y"]))
    payloads = [data, durable, durable, durable[:-3] + b"xyz", other, durable, mortal, data]
    one_by_one = MessageIds(SeededRandom(7).number)
    alone = [incoming(payload, NOW, one_by_one, wants_keys) for payload in payloads]
    together = incoming_run(payloads, 1_000, NOW, MessageIds(SeededRandom(7).number), wants_keys)
    assert [(m.envelope, m.content, m.message_id, m.time_to_live_ms) for m in together] == [
        (m.envelope, m.content, m.message_id, m.time_to_live_ms) for m in alone
    ]


@pytest.mark.parametrize("bad", [b"\x00\x53", b"x" * 200])
def test_a_run_is_read_up_to_what_cannot_be_taken(bad: bytes) -> None:
    data = bytes.fromhex("00 53 75 b0 00 00 00 03") + b"abc"
    assert len(incoming_run([data, data, bad, data], 100, NOW, IDS, False)) == 2


def test_generated_ids_do_not_repeat() -> None:
    ids = MessageIds(SeededRandom(1).number)
    made = [ids.next() for _ in range(70_000)]
    assert len(set(made)) == 70_000
    assert {len(each) for each in made} == {32}
    assert all(each[:16] == made[0][:16] for each in made)
    assert [int(each[16:], 16) for each in made] == list(range(1, 70_001))
