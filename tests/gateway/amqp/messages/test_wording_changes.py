"""Messages as the actions of rules leave them."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from peeklock.amqp.messages.sections import split
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import (
    Described,
    Int,
    Symbol,
    Timestamp,
    Uint,
    Ulong,
)
from peeklock.entity import message as domain
from peeklock.entity.rules.action import REMOVED, RESET, Changes
from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.values import (
    CONTENT_TYPE,
    CORRELATION_ID,
    FORCE_PERSISTENCE,
    LABEL,
    MESSAGE_ID,
    MISSING,
    PARTITION_KEY,
    REPLY_TO,
    REPLY_TO_SESSION_ID,
    SCHEDULED_ENQUEUE_TIME,
    SESSION_ID,
    SYSTEM_PROPERTIES,
    TIME_TO_LIVE,
    TO,
    DurationValue,
    InstantValue,
    Value,
)
from peeklock.gateway.amqp.management.rule_values import rule_value
from peeklock.gateway.amqp.messages.translate import incoming
from tests.amqp.any_values import same, scalars, values
from tests.gateway.amqp.messages.sample_messages import (
    IDS,
    NOW,
    TEXTS,
    TICKS,
    TIMESPAN,
    WORDING,
    acted,
    bare_keys,
    body_of,
    sent,
    told,
)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (None, None),
        (5, 5),
        (2**63, Ulong(2**63)),
        (Int(5), Int(5)),
        (1.5, 1.5),
        (True, True),
        ("x", "x"),
        (b"x", b"x"),
        (UUID(int=3), UUID(int=3)),
        (InstantValue(NOW * TICKS + 9_999), Timestamp(NOW)),
        (InstantValue(-1), Timestamp(-1)),
        (DurationValue(7), Described(TIMESPAN, 7)),
        (DurationValue(1 << 70), Described(TIMESPAN, 2**63 - 1)),
    ],
)
def test_user_properties_are_written_in_their_types(value: Value, wire: Any) -> None:
    changed = WORDING.changed(sent(), Changes({"p": value}, {}))
    properties = told(changed).application_properties
    assert properties is not None
    assert same(properties["p"], wire)


wire_bodies: st.SearchStrategy[tuple[int, Any]] = st.one_of(
    st.just((NO_BODY, None)),
    values.map(lambda value: (VALUE_BODY, value)),
    st.just((DATA_BODY, [b"a", b"b" * 300])),
    st.just((SEQUENCE_BODY, [[1], []])),
)
names = st.sampled_from(["a", "A", "b", "Bee", "é", "É", "c" * 200])


# An action notes each property under one name, whatever the case of the others.
changed_names = st.sampled_from(["a", "b", "BEE", "É", "c" * 200])


@given(
    st.none() | st.dictionaries(names, scalars | values, max_size=4),
    st.dictionaries(changed_names, scalars | st.just(REMOVED), max_size=4),
    wire_bodies,
    st.none() | st.just({Symbol("f"): 1}),
    st.booleans(),
)
def test_changes_of_user_properties_are_what_the_rule_says(
    properties: dict[str, Any] | None,
    changes: dict[str, Any],
    body: tuple[int, Any],
    footer: Any,
    wants_keys: bool,
) -> None:
    """Against decoding everything and encoding it anew; the body is not touched."""
    message = sent(
        wants_keys=wants_keys,
        application_properties=properties,
        body_kind=body[0],
        body=body[1],
        footer=footer,
    )
    noted = Changes(changes, {})
    changed = WORDING.changed(message, noted)
    naive = decode_message(message.content)
    expected = noted.applied_to(naive.application_properties or {})
    after = decode_message(changed.content)
    assert same(after.application_properties or {}, expected)
    if properties is not None or expected:
        naive_again = AmqpMessage(
            properties=naive.properties,
            application_properties=expected,
            body_kind=naive.body_kind,
            body=naive.body,
            footer=naive.footer,
        )
        assert changed.content == encode_message(naive_again)
    assert body_of(changed) == body_of(message)
    assert changed.size == len(changed.envelope) + len(changed.content)
    reader = WORDING.reader(changed, NOW)
    for name in expected:
        shown: Any = reader.user(name)
        wanted: Any = rule_value(expected[name])
        assert same(shown, wanted) or isinstance(shown, Decimal)
    for name in changes:
        if name not in expected and name.lower() not in [each.lower() for each in expected]:
            assert reader.user(name) is MISSING


texts = st.text(max_size=40)
system_changes = st.fixed_dictionaries(
    {},
    optional={
        **{name: texts | st.just(RESET) for name in (*TEXTS, SESSION_ID, PARTITION_KEY)},
        MESSAGE_ID: st.text(min_size=1, max_size=128),
        TIME_TO_LIVE: st.integers(0, 10**12).map(lambda ms: DurationValue(ms * TICKS))
        | st.just(RESET),
        FORCE_PERSISTENCE: st.booleans(),
    },
)
FIELDS = {
    MESSAGE_ID: "message_id",
    CORRELATION_ID: "correlation_id",
    SESSION_ID: "group_id",
    TO: "to",
    REPLY_TO: "reply_to",
    REPLY_TO_SESSION_ID: "reply_to_group_id",
    LABEL: "subject",
    CONTENT_TYPE: "content_type",
}


@given(
    st.sampled_from(
        [
            None,
            Properties(),
            Properties(message_id=UUID(int=1), group_id="", content_encoding=Symbol("gzip")),
            Properties(message_id="m", user_id=b"u", group_sequence=3, creation_time=NOW, to="x"),
        ]
    ),
    st.none() | st.just({Symbol("x-opt-partition-key"): "p", Symbol("mine"): 1}),
    system_changes,
    st.booleans(),
)
def test_changes_of_system_properties_are_read_again(
    properties: Properties | None, annotations: Any, changes: dict[str, Any], wants_keys: bool
) -> None:
    message = sent(
        wants_keys=wants_keys,
        header=Header(priority=4, ttl=3_000),
        message_annotations=annotations,
        properties=properties,
        application_properties={"kept": Uint(1)},
    )
    changed = WORDING.changed(message, Changes({}, changes))
    before, after = WORDING.reader(message, NOW), WORDING.reader(changed, NOW)
    for name in SYSTEM_PROPERTIES:
        if name in changes:
            wanted = MISSING if changes[name] is RESET else changes[name]
            assert after.system(name) == wanted, name
        elif name != "Size":
            assert after.system(name) == before.system(name), name
    # The facts follow, as they do when they are read from the bytes anew.
    again = WORDING.keyed(bare_keys(changed))
    for fact in ("message_id", "session_id", "partition_key"):
        assert getattr(changed, fact) == getattr(again, fact)
    was, now = decode_message(message.content), decode_message(changed.content)
    assert was.properties is not None
    assert now.properties is not None
    touched = {FIELDS[name] for name in changes if name in FIELDS}
    for field in [each.name for each in fields(Properties)]:
        if field not in touched:
            assert getattr(now.properties, field) == getattr(was.properties, field)
    sections, kept = split(message.content), split(changed.content)
    assert (
        changed.content[kept.application_properties_at :]
        == message.content[sections.application_properties_at :]
    )
    received = told(changed)
    assert received.header is not None
    assert received.header.priority == 4
    durable = changes.get(FORCE_PERSISTENCE)
    assert received.header.durable is (durable if isinstance(durable, bool) else None)
    assert received.message_annotations is not None
    assert received.message_annotations.get("mine") == (None if annotations is None else 1)


def test_an_action_goes_all_the_way() -> None:
    message = sent(application_properties={"Old": Uint(1), "gone": 2}, header=Header(ttl=9))
    changed = acted(
        message,
        "SET old = Old + 1; REMOVE GONE; SET new = newid(); SET sys.Label = 'l' + old;"
        "SET sys.TimeToLive = 'PT2S'; SET sys.SessionId = 7; REMOVE sys.MessageId;"
        "SET sys.ScheduledEnqueueTimeUtc = '2040-01-01T00:00:00Z'",
    )
    after = decode_message(changed.content)
    assert after.application_properties is not None
    assert after.application_properties["Old"] == 2
    assert isinstance(after.application_properties["new"], UUID)
    assert list(after.application_properties) == ["Old", "new"]
    assert after.properties is not None
    assert (after.properties.subject, after.properties.group_id) == ("l2", "7")
    assert len(changed.message_id) == 32
    assert after.properties.message_id == changed.message_id
    assert (changed.session_id, changed.time_to_live_ms) == ("7", 2_000)
    assert changed.scheduled_at == domain.NEVER
    assert body_of(changed) == body_of(message)


def test_what_is_no_property_stays() -> None:
    message = sent(message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW + 5)})
    message.known().hops = 2
    message.known().enqueue_sequence = 8
    message.known().dead_letter_source = "q"
    changed = WORDING.changed(message, Changes({}, {SCHEDULED_ENQUEUE_TIME: InstantValue(1)}))
    assert changed is not message
    assert (changed.scheduled_at, changed.hops) == (NOW + 5, 2)
    assert (changed.enqueue_sequence, changed.dead_letter_source) == (8, "q")
    assert (changed.content, changed.envelope) == (message.content, message.envelope)


@pytest.mark.parametrize(
    ("created", "change", "expiry"),
    [
        (NOW, DurationValue(4_000 * TICKS), NOW + 4_000),
        (None, DurationValue(4_000 * TICKS), None),
        (NOW, RESET, None),
        (NOW, DurationValue(-1), NOW),
        (2**63 - 1, DurationValue(5 * TICKS), 2**63 - 1),
    ],
)
def test_a_new_life_moves_the_end_that_the_message_names(
    created: int | None, change: Any, expiry: int | None
) -> None:
    """Clients believe it more than the header."""
    properties = Properties(
        message_id="m", absolute_expiry_time=NOW + 9_000, creation_time=created, to="t"
    )
    changed = WORDING.changed(sent(properties=properties), Changes({}, {TIME_TO_LIVE: change}))
    after = decode_message(changed.content).properties
    assert after is not None
    assert (after.absolute_expiry_time, after.creation_time, after.to) == (expiry, created, "t")


def test_no_life_is_longer_than_the_longest() -> None:
    endless = Changes({}, {TIME_TO_LIVE: DurationValue(1 << 80)})
    assert WORDING.changed(sent(), endless).time_to_live_ms == 10_675_199 * 86_400_000


def test_a_content_type_is_a_symbol_if_it_can_be() -> None:
    for text, kind in (("a/b", Symbol), ("ä/b", str)):
        changed = WORDING.changed(sent(), Changes({}, {CONTENT_TYPE: text}))
        raw = decode(changed.content)[0].value[6]
        assert raw == text
        assert type(raw) is kind


def test_a_value_without_a_form_is_an_error_of_its_rule() -> None:
    with pytest.raises(FilterError, match="cannot be written"):
        WORDING.changed(sent(), Changes({"p": "\ud800"}, {}))
    with pytest.raises(FilterError, match="cannot be written"):
        WORDING.changed(sent(), Changes({}, {LABEL: "\ud800"}))


def test_messages_as_javascript_and_python_send_them() -> None:
    """Empty sections, and delivery annotations behind everything else."""
    body = b"\x00\x53\x75\xa0\x01\x61"
    javascript = bytes.fromhex("00 53 70 45  00 53 72 d1 00000004 00000000  00 53 73 45") + body
    python = body + encode(Described(Ulong(0x71), {Symbol("d"): 1}))
    for raw in (javascript, python, body):
        changed = acted(incoming(raw, NOW, IDS, True), "SET p = 1; SET sys.Label = 'l'")
        after = decode_message(changed.content)
        assert after.properties is not None
        assert (after.properties.message_id, after.properties.subject) == (changed.message_id, "l")
        assert after.application_properties == {"p": 1}
        assert body_of(changed) == body
        noted = told(changed).delivery_annotations
        assert noted is not None
        assert noted.keys() == (
            {"x-opt-lock-token", "d"} if raw is python else {"x-opt-lock-token"}
        )
