"""Messages as rules see them, and as they go on to other entities."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.messages.message import (
    decode_message,
)
from peeklock.amqp.messages.message_forms import Header, Properties
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Encoded,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from peeklock.entity import message as domain
from peeklock.entity.deliveries import Details
from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.filter import SqlFilter
from peeklock.entity.rules.values import (
    CORRELATION_ID,
    FORCE_PERSISTENCE,
    LABEL,
    MESSAGE_ID,
    MISSING,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    SEQUENCE_NUMBER,
    SESSION_ID,
    SYSTEM_PROPERTIES,
    TIME_TO_LIVE,
    TO,
    DurationValue,
    InstantValue,
)
from peeklock.gateway.amqp.messages.envelope import opened
from peeklock.gateway.amqp.messages.translate import incoming
from tests.amqp.any_values import same
from tests.gateway.amqp.messages.sample_messages import (
    DATETIME_OFFSET,
    IDS,
    NOW,
    TEXTS,
    TICKS,
    TIMESPAN,
    URI,
    WORDING,
    acted,
    bare_keys,
    body_of,
    delivery_of,
    sent,
    told,
)

# --- reading

# What .NET alone writes comes back in the plain form.
NET_ONLY = [
    Described(DATETIME_OFFSET, 621_355_968_000_000_000 + 3),
    Described(URI, "http://x/"),
]


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        (None, None),
        (True, True),
        (Ubyte(200), Ubyte(200)),
        (Ushort(60_000), Ushort(60_000)),
        (Uint(7), Uint(7)),
        (Ulong(2**64 - 1), Ulong(2**64 - 1)),
        (Byte(-3), Byte(-3)),
        (Short(-300), Short(-300)),
        (Int(5), Int(5)),
        (-(2**63), -(2**63)),
        (Float(0.5), Float(0.5)),
        (0.1, 0.1),
        (Char("x"), Char("x")),
        ("text", "text"),
        (Symbol("name"), Symbol("name")),
        (b"\x00\xff", b"\x00\xff"),
        (UUID(int=7), UUID(int=7)),
        (Timestamp(NOW), InstantValue(NOW * TICKS)),
        (Described(TIMESPAN, 15), DurationValue(15)),
        (NET_ONLY[0], InstantValue(3)),
        (NET_ONLY[1], "http://x/"),
        (Decimal32(bytes.fromhex("32800001")), Decimal("1")),
        (Decimal64(bytes.fromhex("b1a000000000000f")), Decimal("-1.5")),
        (Decimal128(bytes.fromhex("303e000000000000000000000000007b")), Decimal("12.3")),
    ],
)
def test_every_wire_type_is_known_to_rules(wire: Any, value: Any) -> None:
    """Numbers of all widths, instants, durations, uuids; a copy keeps the wire's type."""
    message = sent(application_properties={"p": wire})
    found: Any = WORDING.reader(message, NOW).user("p")
    assert same(found, value)
    if not isinstance(wire, (Decimal32, Decimal64)) and wire not in NET_ONLY:
        copied = told(acted(message, "SET copy = p")).application_properties
        assert copied is not None
        assert same(copied["copy"], wire)


@pytest.mark.parametrize(
    "wire",
    [
        [1, "x"],
        {"k": 1},
        Array(0x71, [Int(1), Int(2)]),
        Described(Symbol("else"), 1),
        Described(Ulong(3), [1]),
        Described(TIMESPAN, "no ticks"),
        Described(URI, 5),
    ],
)
def test_values_of_other_types_exist_and_equal_nothing(wire: Any) -> None:
    message = sent(application_properties={"p": wire})
    reader = WORDING.reader(message, NOW)
    found: Any = reader.user("p")
    assert same(found, wire)
    assert SqlFilter("EXISTS(p) AND p IS NOT NULL").evaluate(reader) is True
    assert SqlFilter("p = 1 OR p = 'x'").evaluate(reader) is False
    copied = told(acted(message, "SET q = p")).application_properties
    assert copied is not None
    assert same(copied["q"], wire)


def test_names_are_found_in_any_case_and_the_exact_one_wins() -> None:
    reader = WORDING.reader(sent(application_properties={"Colour": 1, "colour": 2}), NOW)
    assert (reader.user("colour"), reader.user("Colour"), reader.user("COLOUR")) == (2, 1, 1)
    assert (reader.user("color"), reader.user("colour")) == (MISSING, 2)
    assert WORDING.reader(sent(), NOW).user("colour") is MISSING


def test_what_cannot_be_read_is_there_and_equals_nothing() -> None:
    """An entity that looks at nothing lets it in, and no rule may fail on it."""
    no_text = b"\xa1\x01\xff"
    pairs = encode("p") + no_text + encode("q") + encode(1) + encode(5) + encode(2) + no_text * 2
    section = b"\x00\x53\x74\xc1" + bytes((len(pairs) + 1, 8)) + pairs
    message = incoming(section + encode(Described(Ulong(0x75), b"x")), NOW, IDS, False)
    reader = WORDING.reader(message, NOW)
    assert reader.user("p") == Encoded(no_text)
    assert reader.user("q") == 1
    after = acted(message, "SET r = p; SET q = 2")
    expected = pairs.replace(encode("q") + encode(1), encode("q") + encode(2))
    expected += encode("r") + no_text
    assert expected in after.content
    assert body_of(after) == body_of(message)


def test_properties_that_are_no_map_have_no_names() -> None:
    section = b"\x00\x53\x74\xc1\x03\x02\x40\xa1"
    message = incoming(section + encode(Described(Ulong(0x75), b"x")), NOW, IDS, False)
    assert WORDING.reader(message, NOW).user("p") is MISSING
    details = Details()
    details.reason = "why"
    assert WORDING.forwarded(delivery_of(message, details=details), "").content == message.content


def test_system_properties() -> None:
    message = sent(
        header=Header(ttl=5_000, durable=False),
        message_annotations={
            Symbol("x-opt-partition-key"): "s",
            Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW - 7),
        },
        properties=Properties(
            message_id=UUID(int=1),
            correlation_id=Ulong(8),
            group_id="s",
            to="t",
            reply_to="r",
            reply_to_group_id="rs",
            subject="l",
            content_type=Symbol("a/b"),
        ),
    )
    for read in (message, bare_keys(message)):
        reader = WORDING.reader(read, NOW)
        found = {name: reader.system(name) for name in SYSTEM_PROPERTIES}
        assert found == {
            "MessageId": "00000000-0000-0000-0000-000000000001",
            "CorrelationId": "8",
            "SessionId": "s",
            "To": "t",
            "ReplyTo": "r",
            "ReplyToSessionId": "rs",
            "Label": "l",
            "ContentType": "a/b",
            "TimeToLive": DurationValue(5_000 * TICKS),
            "ScheduledEnqueueTimeUtc": InstantValue((NOW - 7) * TICKS),
            "PartitionKey": "s",
            "ForcePersistence": False,
            "EnqueuedTimeUtc": InstantValue(NOW * TICKS),
            "SequenceNumber": MISSING,
            "EnqueuedSequenceNumber": MISSING,
            "DeliveryCount": 0,
            "Size": message.size,
            "State": 0,
        }
        assert type(found["ContentType"]) is str
        with pytest.raises(FilterError, match="there is no system property Colour"):
            reader.system("Colour")


def test_system_properties_that_are_not_there_are_missing() -> None:
    raw = bytes.fromhex(
        "00 53 70 45  00 53 72 d1 00000004 00000000  00 53 73 45  00 53 75 a0 01 61"
    )
    message = incoming(raw, NOW, IDS, True)
    reader = WORDING.reader(message, NOW)
    assert reader.system(MESSAGE_ID) == message.message_id
    assert reader.system(FORCE_PERSISTENCE) is True
    for name in (*TEXTS, SESSION_ID, PARTITION_KEY, TIME_TO_LIVE, SCHEDULED_ENQUEUE_TIME):
        assert reader.system(name) is MISSING
    message.known().enqueue_sequence = 77
    assert WORDING.reader(message, NOW).system("EnqueuedSequenceNumber") == 77


def test_system_properties_of_wrong_types_equal_nothing() -> None:
    raw = encode(Described(Ulong(0x73), [[1], None, 5, b"x", None, {}])) + b"\x00\x53\x75\xa0\x00"
    reader = WORDING.reader(incoming(raw, NOW, IDS, False), NOW)
    assert reader.system(MESSAGE_ID) == Encoded(encode([1]))
    assert reader.system(CORRELATION_ID) == Encoded(encode({}))
    assert reader.system(TO) == Encoded(encode(5))
    assert reader.system(LABEL) == Encoded(encode(b"x"))


def test_ids_are_made_of_chance() -> None:
    reader = WORDING.reader(sent(), NOW)
    one, other = reader.new_id(), reader.new_id()
    assert one != other
    assert one.version == 4


# --- keys


@pytest.mark.parametrize(
    "properties",
    [
        Properties(message_id="m"),
        Properties(message_id=b"\x01\x02", group_id=""),
        Properties(message_id=Ulong(5), group_id="s", user_id=b"u", to="t"),
    ],
)
@pytest.mark.parametrize("annotations", [None, {Symbol("x-opt-partition-key"): "p"}])
def test_keys_are_read_when_they_were_not(properties: Properties, annotations: Any) -> None:
    sections: dict[str, Any] = {"properties": properties, "message_annotations": annotations}
    without = sent(wants_keys=False, header=Header(ttl=5), **sections)
    without.known().expires_at = NOW + 5
    without.known().hops = 3
    keyed = WORDING.keyed(without)
    asked = sent(wants_keys=True, **sections)
    assert asked.message_id
    for fact in ("message_id", "session_id", "partition_key", "content", "envelope", "size"):
        assert getattr(keyed, fact) == getattr(asked, fact)
    assert (keyed.time_to_live_ms, keyed.expires_at, keyed.hops) == (5, NOW + 5, 3)
    assert WORDING.keyed(keyed) is keyed
    assert WORDING.keyed(asked) is asked


def test_keys_of_wrong_types_are_none() -> None:
    raw = encode(Described(Ulong(0x72), {Symbol("x-opt-partition-key"): 5}))
    raw += encode(Described(Ulong(0x73), [[1], *[None] * 9, 7])) + b"\x00\x53\x75\xa0\x00"
    message = incoming(raw, NOW, IDS, False)
    assert WORDING.keyed(message) is message
    assert (message.message_id, message.session_id, message.partition_key) == ("", None, None)
    assert WORDING.reader(message, NOW).system(PARTITION_KEY) is MISSING


# --- forwarding


def test_a_forwarded_message_takes_its_reasons_along() -> None:
    message = sent(
        wants_keys=False,
        header=Header(ttl=60_000),
        message_annotations={
            Symbol("x-opt-partition-key"): "s",
            Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW - 1),
        },
        properties=Properties(message_id="m", group_id="s"),
        application_properties={"kept": Uint(1), "changed": 1},
    )
    details = Details()
    details.changes = {"changed": encode("new")}
    details.reason = "why"
    details.description = "because"
    details.enqueue_sequence = 3
    details.hops = 1
    going = WORDING.forwarded(
        delivery_of(message, details=details, expires_at=NOW + 30_000), "the-queue"
    )
    assert decode_message(going.content).application_properties == {
        "kept": Uint(1),
        "changed": "new",
        "DeadLetterReason": "why",
        "DeadLetterErrorDescription": "because",
    }
    assert body_of(going) == body_of(message)
    assert (going.message_id, going.session_id, going.partition_key) == ("m", "s", "s")
    assert (going.hops, going.scheduled_at, going.time_to_live_ms) == (2, domain.NEVER, 30_000)
    assert (going.enqueue_sequence, going.dead_letter_source) == (3, "the-queue")
    # The header is the sender's, whatever life the entity gave to the message.
    assert opened(going.envelope).ttl_ms == 60_000
    assert opened(going.envelope).annotations == opened(message.envelope).annotations
    assert going.size == len(going.envelope) + len(going.content)
    assert (message.scheduled_at, message.hops) == (NOW - 1, 0)


def test_a_forwarded_message_without_reasons_is_byte_exact() -> None:
    message = sent()
    message.known().dead_letter_source = "first"
    going = WORDING.forwarded(delivery_of(message), "")
    assert (going.content, going.hops, going.enqueue_sequence) == (message.content, 1, 5)
    assert (going.dead_letter_source, going.time_to_live_ms) == ("first", domain.NO_DURATION)
    details = Details()
    details.source = "second"
    assert WORDING.forwarded(delivery_of(message, details=details), "").dead_letter_source == (
        "second"
    )
    assert WORDING.forwarded(delivery_of(message, details=details), "third").dead_letter_source == (
        "third"
    )


def test_sequence_numbers_are_given_after_the_rules_were_asked() -> None:
    reader = WORDING.reader(sent(), NOW)
    assert reader.system(SEQUENCE_NUMBER) is MISSING
    assert SqlFilter("sys.SequenceNumber > 0").evaluate(reader) is None
