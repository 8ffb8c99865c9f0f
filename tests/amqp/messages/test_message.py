import itertools
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.messages.annotations import drop_annotations, find_annotation, head
from peeklock.amqp.messages.message import (
    DATA_BODY,
    NO_BODY,
    SEQUENCE_BODY,
    VALUE_BODY,
    AmqpMessage,
    decode_message,
    encode_message,
)
from peeklock.amqp.messages.message_forms import HEADER, PROPERTIES, Header, Properties
from peeklock.amqp.messages.properties import (
    HAS_EXPIRY,
    HAS_GROUP_ID,
    HAS_MESSAGE_ID,
    merge_application_properties,
    peek_properties,
    read_application_properties,
    read_properties,
    with_message_id,
)
from peeklock.amqp.messages.sections import Sections, section_at, split
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Encoded, Int, Symbol, Timestamp, Uint, Ulong
from tests.amqp.any_values import ascii_texts, same, scalars, texts, values
from tests.amqp.batches import batch_messages
from tests.amqp.forms import composites

dictionaries = st.none() | st.dictionaries(ascii_texts.map(Symbol), scalars, max_size=4)
bodies: st.SearchStrategy[tuple[int, Any]] = st.one_of(
    st.just((NO_BODY, None)),
    values.map(lambda value: (VALUE_BODY, value)),
    st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(lambda data: (DATA_BODY, data)),
    st.lists(st.lists(scalars, max_size=3), min_size=1, max_size=3).map(
        lambda lists: (SEQUENCE_BODY, lists)
    ),
)
messages = st.builds(
    lambda header, first, second, properties, application, body, footer: AmqpMessage(
        header=header,
        delivery_annotations=first,
        message_annotations=second,
        properties=properties,
        application_properties=application,
        body_kind=body[0],
        body=body[1],
        footer=footer,
    ),
    st.none() | composites(HEADER),
    dictionaries,
    dictionaries,
    st.none() | composites(PROPERTIES),
    st.none() | st.dictionaries(texts, scalars, max_size=4),
    bodies,
    dictionaries,
)
BODY = encode(Described(Ulong(0x75), b"hello"))
EMPTY = Sections(-1, -1, -1, -1, 0, b"", 0, b"", 0, b"", -1, -1, 0, -1)


def items(pairs: dict[Any, Any]) -> bytes:
    return b"".join(encode(side) for pair in pairs.items() for side in pair)


def sections_of(payload: bytes) -> list[bytes]:
    cuts = [0]
    while cuts[-1] < len(payload):
        cuts.append(section_at(payload, cuts[-1], len(payload))[2])
    return [payload[one:two] for one, two in itertools.pairwise(cuts)]


def pairs_of(pairs: dict[Any, Any] | None) -> tuple[bytes, int]:
    return (b"", 0) if pairs is None else (items(pairs), len(pairs))


@given(messages)
def test_a_whole_message_comes_back(message: AmqpMessage) -> None:
    payload = encode_message(message)
    again = decode_message(payload)
    assert encode_message(again) == payload
    assert (again.header, again.properties) == (message.header, message.properties)
    assert same(again.application_properties, message.application_properties)
    assert again.body_kind == message.body_kind
    assert same(again.body, message.body)


@given(messages)
def test_splitting_keeps_the_bare_message_byte_by_byte(message: AmqpMessage) -> None:
    payload = encode_message(message)
    parts = split(payload)
    header = message.header or Header()
    assert parts.durable == (-1 if header.durable is None else int(header.durable))
    assert parts.priority == (-1 if header.priority is None else header.priority)
    assert parts.ttl_ms == (-1 if header.ttl is None else header.ttl)
    assert parts.delivery_count == (header.delivery_count or 0)
    front = (parts.delivery_annotations, parts.delivery_annotations_count)
    assert front == pairs_of(message.delivery_annotations)
    own = (parts.annotations, parts.annotations_count)
    assert own == pairs_of(message.message_annotations)
    bare = [section for section in sections_of(payload) if section[2] >= 0x73]
    assert parts.bare == b"".join(bare)
    assert (parts.properties_at < 0) is (message.properties is None)
    assert (parts.application_properties_at < 0) is (message.application_properties is None)
    for at, code in (
        (parts.properties_at, 0x73),
        (parts.application_properties_at, 0x74),
        (parts.body_at, message.body_kind),
    ):
        if at >= 0 and code != NO_BODY:
            assert parts.bare[at : at + 3] == bytes((0, 0x53, code))


@given(messages, st.randoms())
def test_sections_in_any_order_are_found_and_the_bare_ones_keep_theirs(
    message: AmqpMessage, random: Any
) -> None:
    sections = sections_of(encode_message(message))
    random.shuffle(sections)
    parts = split(b"".join(sections))
    assert parts.bare == b"".join(section for section in sections if section[2] >= 0x73)
    assert parts.annotations == pairs_of(message.message_annotations)[0]
    if parts.properties_at >= 0:
        assert parts.bare[parts.properties_at + 2] == 0x73


def test_delivery_annotations_may_come_last() -> None:
    properties = encode_message(
        AmqpMessage(properties=Properties(message_id="m"), body_kind=NO_BODY)
    )
    last = encode(Described(Ulong(0x71), {Symbol("x"): "y"}))
    parts = split(properties + BODY + last)
    assert parts.bare == properties + BODY
    assert (parts.properties_at, parts.body_at) == (0, len(properties))
    assert parts.delivery_annotations == items({Symbol("x"): "y"})


def test_a_message_as_rhea_writes_it() -> None:
    payload = bytes.fromhex(
        "00 53 70 45  00 53 72 d1 00000004 00000000  00 53 73 45  00 53 75 a0 01 61"
    )
    parts = split(payload)
    assert parts.bare == bytes.fromhex("00 53 73 45 00 53 75 a0 01 61")
    assert (parts.properties_at, parts.body_at, parts.annotations_count) == (0, 4, 0)
    assert peek_properties(parts.bare, parts.properties_at) == 0


@pytest.mark.parametrize(
    "descriptor", [b"\x80" + b"\0" * 7 + b"\x75", encode(Symbol("amqp:data:binary"))]
)
def test_a_long_descriptor_is_handed_on_in_its_short_form(descriptor: bytes) -> None:
    properties = encode(Described(Ulong(0x73), ["m"]))
    parts = split(properties + b"\x00" + descriptor + b"\xa0\x05hello")
    assert parts.bare == properties + BODY
    assert parts.body_at == len(properties)


def test_a_message_without_a_body_says_where_it_would_be() -> None:
    assert split(b"") == EMPTY
    footer = encode(Described(Ulong(0x78), {}))
    properties = encode(Described(Ulong(0x73), ["m"]))
    assert split(properties).body_at == len(properties)
    assert split(properties + footer).body_at == len(properties)


@given(messages, st.data())
def test_a_message_cut_within_a_section_is_a_decode_error(
    message: AmqpMessage, data: st.DataObject
) -> None:
    payload = encode_message(message)
    whole = {0}
    for section in sections_of(payload):
        whole.add(max(whole) + len(section))
    for cut in range(len(payload)):
        if cut not in whole:
            with pytest.raises(DecodeError):
                split(payload[:cut])
            with pytest.raises(DecodeError):
                decode_message(payload[:cut])


def use_everything(payload: bytes) -> None:
    parts = split(payload)
    find_annotation(parts.annotations, b"x")
    drop_annotations(parts.annotations, frozenset({b"x"}))
    found = peek_properties(parts.bare, parts.properties_at)
    properties = read_properties(parts.bare, parts.properties_at)
    assert bool(found & HAS_MESSAGE_ID) is bool(properties.raw(0))
    with_message_id(parts.bare, parts.properties_at, b"m")
    for name in ACCESSORS:
        with suppress(DecodeError):
            getattr(properties, name)
    with suppress(DecodeError):
        merge_application_properties(
            parts.bare, parts.application_properties_at, parts.body_at, {"a": b"\x40"}
        )
    with suppress(DecodeError):
        read_application_properties(parts.bare, parts.application_properties_at)
    decode_message(payload)


ACCESSORS = [
    *("message_id", "correlation_id", "user_id", "to", "subject", "reply_to", "content_type"),
    *("content_encoding", "absolute_expiry", "creation_time", "group_id", "group_sequence"),
    "reply_to_group_id",
]


@given(messages, st.data())
def test_a_changed_byte_gives_a_message_or_a_decode_error(
    message: AmqpMessage, data: st.DataObject
) -> None:
    payload = bytearray(encode_message(message)) or bytearray(BODY)
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        use_everything(bytes(payload))
    with suppress(DecodeError):
        batch_messages(bytes(payload))


@given(st.integers(0x6F, 0x79), st.binary(max_size=40))
def test_arbitrary_bytes_are_a_message_or_a_decode_error(code: int, raw: bytes) -> None:
    with suppress(DecodeError):
        use_everything(bytes((0, 0x53, code)) + raw)
    with suppress(DecodeError):
        use_everything(raw)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("40", "without a descriptor"),
        ("00 53 6f 45", "no section"),
        ("00 53 79 45", "no section"),
        ("00 80 00000000 00000173 45", "no section"),
        ("00 a3 01 61 45", "no section"),
        ("00 53 70 c1 01 00", "wrong value"),
        ("00 53 72 45", "wrong value"),
        ("00 53 75 a1 00", "wrong value"),
        ("00 53 70 45 00 53 70 45", "twice"),
        ("00 53 77 40 00 53 77 40", "twice"),
        ("00 53 77 40 00 53 75 a0 00", "two kinds"),
        ("00 53 70 c0 07 06 40 40 40 40 40 40", "more fields"),
        ("00 53 70 c0 02 01 43", "header.durable"),
        ("00 53 70 c0 03 02 40 43", "header.priority"),
        ("00 53 70 c0 04 03 40 40 41", "header.ttl"),
        ("00 53 70 c0 05 04 40 40 40 43", "header.first-acquirer"),
        ("00 53 70 c0 06 05 40 40 40 40 41", "header.delivery-count"),
        ("00 53 70 c0 02 00 40", "do not end"),
        ("00 53 70 c0 02 09 40", "do not end"),
        ("00 53 70 c0 00", "do not end"),
        ("00 53 72 c1 00", "do not end"),
        ("00 53 72 c1 02 01 40", "no value"),
        ("00 53 72 c1 02 04 40", "no value"),
        ("00 53 72 c1 04 02 40 40 40", "do not end"),
    ],
)
def test_what_is_malformed_says_why(payload: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        split(bytes.fromhex(payload))


def test_memory_for_headers_is_bounded_and_a_full_one_starts_again() -> None:
    for ttl in range(1200):
        assert split(head(durable=1, priority=-1, ttl_ms=ttl, delivery_count=0)).ttl_ms == ttl


def test_a_header_in_the_wide_form_is_read_all_the_same() -> None:
    wide = b"\xd0\x00\x00\x00\x06\x00\x00\x00\x02\x41\x40"
    assert split(b"\x00\x53\x70" + wide).durable == 1
    first_acquirer = encode(Described(Ulong(0x70), [True, None, None, True, Uint(3)]))
    assert split(first_acquirer).delivery_count == 3


@given(composites(PROPERTIES))
def test_a_peek_sees_what_reading_finds(value: Properties) -> None:
    for bare in (
        encode_message(AmqpMessage(properties=value, body_kind=NO_BODY)) + BODY,
        b"\x00\x53\x73" + _wide(value) + BODY,
    ):
        found = peek_properties(bare, 0)
        assert bool(found & HAS_MESSAGE_ID) is (value.message_id is not None)
        assert bool(found & HAS_GROUP_ID) is (value.group_id is not None)
        assert bool(found & HAS_EXPIRY) is (value.absolute_expiry_time is not None)
        properties = read_properties(bare, 0)
        for name in ("subject", "content_type", "content_encoding", "group_id", "user_id"):
            assert getattr(properties, name) == getattr(value, name)
        assert properties.reply_to_group_id == value.reply_to_group_id
        for ours, theirs in (
            (properties.absolute_expiry, value.absolute_expiry_time),
            (properties.creation_time, value.creation_time),
            (properties.group_sequence, value.group_sequence),
        ):
            assert ours == (-1 if theirs is None else theirs)


def _wide(value: Properties) -> bytes:
    fields = [encode(Encoded(raw) if raw else None) for raw in _raw(value)]
    body = b"".join(fields)
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + (13).to_bytes(4, "big") + body


def _raw(value: Properties) -> list[bytes]:
    bare = encode_message(AmqpMessage(properties=value, body_kind=NO_BODY))
    properties = read_properties(bare, 0)
    return [properties.raw(field) for field in range(13)]


def test_a_message_without_properties_has_none() -> None:
    assert peek_properties(BODY, -1) == 0
    properties = read_properties(BODY, -1)
    assert properties.raw(0) == properties.raw(5) == b""
    assert properties.message_id is None
    assert properties.absolute_expiry == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (Ulong(2**64 - 1), "18446744073709551615"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\xff\x00", "ff00"),
        (None, None),
    ],
)
def test_an_id_of_any_type_is_given_as_text(value: Any, text: str | None) -> None:
    properties = Properties(message_id=value, correlation_id=value, to="t", reply_to="r")
    bare = encode_message(AmqpMessage(properties=properties))
    read = read_properties(bare, 0)
    assert read.message_id == read.correlation_id == text
    assert read.raw(0) == read.raw(5) == (encode(value) if text else b"")
    assert (read.to, read.reply_to) == ("t", "r")


@pytest.mark.parametrize("name", [name for name in ACCESSORS if not name.endswith("_raw")])
def test_a_property_of_the_wrong_type_is_named(name: str) -> None:
    bare = encode(Described(Ulong(0x73), [[True]] * 13))
    with pytest.raises(DecodeError, match=name.replace("_", "-")):
        getattr(read_properties(bare, 0), name)


@pytest.mark.parametrize(
    "bare",
    [
        "00 53 73 c0 02 0e 40",
        "00 53 73 c0 0f 0e" + "40" * 14,
        "00 53 73 c0 01 01",
        "00 53 73 c0 03 03 40 40",
        "00 53 73 c0 03 01 40 40",
        "00 53 73 c0 04 02 40 a1 05",
        "00 53 73 c0 03 02 40 a1",
        "00 53 73 d0 00000000",
        "00 53 73 d0 00000004 0000000e",
    ],
)
def test_properties_that_do_not_end_where_they_should_are_refused(bare: str) -> None:
    with pytest.raises(DecodeError):
        peek_properties(bytes.fromhex(bare), 0)
    with pytest.raises(DecodeError):
        read_properties(bytes.fromhex(bare), 0)


@pytest.mark.parametrize("empty", ["45", "c0 01 00", "d0 00000004 00000000"])
def test_empty_properties_in_any_form_are_empty(empty: str) -> None:
    bare = bytes.fromhex("00 53 73" + empty)
    assert peek_properties(bare, 0) == 0
    assert with_message_id(bare, 0, b"m") == bytes.fromhex("00 53 73 c0 04 01 a1 01 6d")


@given(messages, texts)
def test_a_message_id_is_set_and_nothing_else_changes(message: AmqpMessage, text: str) -> None:
    parts = split(encode_message(message))
    bare = with_message_id(parts.bare, parts.properties_at, text.encode())
    after = split(bare)
    at = after.properties_at
    assert read_properties(after.bare, at).message_id == text
    if parts.properties_at < 0:
        assert bare.endswith(parts.bare)
        return
    before = read_properties(parts.bare, parts.properties_at)
    now = read_properties(after.bare, at)
    assert [now.raw(field) for field in range(1, 13)] == [
        before.raw(field) for field in range(1, 13)
    ]
    others = [section for section in sections_of(parts.bare) if section[2] != 0x73]
    assert [section for section in sections_of(bare) if section[2] != 0x73] == others


@given(messages, st.dictionaries(texts, scalars, max_size=4))
def test_application_properties_are_merged_and_the_others_keep_their_bytes(
    message: AmqpMessage, changes: dict[str, Any]
) -> None:
    parts = split(encode_message(message))
    encoded = {key: encode(value) for key, value in changes.items()}
    bare = merge_application_properties(
        parts.bare, parts.application_properties_at, parts.body_at, encoded
    )
    expected = dict(message.application_properties or {}) | changes
    after = split(bare)
    assert same(read_application_properties(after.bare, after.application_properties_at), expected)
    others = [section for section in sections_of(parts.bare) if section[2] != 0x74]
    assert [section for section in sections_of(bare) if section[2] != 0x74] == others
    if not changes:
        assert bare == parts.bare
    elif parts.application_properties_at < 0 and parts.properties_at >= 0:
        assert after.application_properties_at > after.properties_at


def test_a_section_that_grows_beyond_the_narrow_form_is_written_wide() -> None:
    long = "x" * 250
    bare = (
        encode_message(AmqpMessage(properties=Properties(subject=long), body_kind=NO_BODY)) + BODY
    )
    after = with_message_id(bare, 0, b"m")
    assert after[3] == 0xD0
    assert decode_message(after).properties == Properties(message_id="m", subject=long)
    merged = merge_application_properties(BODY, -1, 0, {"k": encode(long * 2)})
    assert merged[3] == 0xD1
    assert read_application_properties(merged, 0) == {"k": long * 2}


def test_untouched_application_properties_keep_even_an_odd_encoding() -> None:
    kept = b"\xb1\x00\x00\x00\x01k" + b"\x71\x00\x00\x00\x01"
    changed = b"\xa3\x01c" + b"\x43"
    bare = bytes((0, 0x53, 0x74, 0xC1, len(kept + changed) + 1, 4)) + kept + changed + BODY
    merged = merge_application_properties(bare, 0, len(bare) - len(BODY), {"c": b"\x41"})
    expected = kept + b"\xa3\x01c\x41"
    assert merged == bytes((0, 0x53, 0x74, 0xC1, len(expected) + 1, 4)) + expected + BODY


def test_application_properties_with_other_names_than_texts_are_refused() -> None:
    bare = encode(Described(Ulong(0x74), {Int(1): 2}))
    with pytest.raises(DecodeError, match="name"):
        read_application_properties(bare, 0)
    with pytest.raises(DecodeError, match="name"):
        merge_application_properties(bare, 0, len(bare), {"a": b"\x40"})
    with pytest.raises(DecodeError, match="application-properties"):
        read_application_properties(b"\x00\x53\x74\x40", 0)


def test_annotations_are_found_by_symbol_and_by_string() -> None:
    pairs = {Symbol("x-opt-a"): Timestamp(5), "x-opt-b": "v", Ulong(3): "x-opt-c"}
    wide = b"\xb3\x00\x00\x00\x07x-opt-d\x41" + b"\xb1\x00\x00\x00\x07x-opt-e\x42"
    encoded = items(pairs) + wide
    assert same(find_annotation(encoded, b"x-opt-a"), Timestamp(5))
    assert find_annotation(encoded, b"x-opt-b") == "v"
    assert find_annotation(encoded, b"x-opt-c") is None
    assert find_annotation(encoded, b"x-opt-d") is True
    assert find_annotation(encoded, b"x-opt-e") is False
    assert find_annotation(encoded, b"absent") is None
    assert find_annotation(b"", b"x-opt-a") is None


def test_dropped_annotations_leave_the_others_byte_by_byte() -> None:
    pairs = {Symbol("a"): 1, "b": 2, Ulong(3): 3}
    left, count = drop_annotations(items(pairs), frozenset({b"a", b"absent"}))
    assert (left, count) == (items({"b": 2, Ulong(3): 3}), 2)
    assert drop_annotations(b"", frozenset({b"a"})) == (b"", 0)


def test_a_batch_is_its_data_sections() -> None:
    small, large = BODY, encode(Described(Ulong(0x75), b"x" * 300))
    envelope = AmqpMessage(
        properties=Properties(message_id="first"), body_kind=DATA_BODY, body=[small, large]
    )
    assert batch_messages(encode_message(envelope)) == [small, large]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [("", "without messages"), ("00 53 77 40", "not data"), ("00 53 76 45", "not data")],
)
def test_a_batch_without_data_is_refused(payload: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        batch_messages(bytes.fromhex(payload))


numbers = st.integers(0, 2**63 - 1)


@given(messages)
def test_a_head_gives_back_what_was_split_off(message: AmqpMessage) -> None:
    payload = encode_message(message)
    parts = split(payload)
    again = head(
        durable=parts.durable,
        priority=parts.priority,
        ttl_ms=parts.ttl_ms,
        first_acquirer=parts.first_acquirer,
        delivery_count=parts.delivery_count,
        annotations=parts.annotations,
        annotations_count=parts.annotations_count,
    )
    found = split(again + parts.bare)
    assert (found.annotations, found.annotations_count, found.bare) == (
        parts.annotations,
        parts.annotations_count,
        parts.bare,
    )
    assert (found.durable, found.ttl_ms, found.delivery_count) == (
        parts.durable,
        parts.ttl_ms,
        parts.delivery_count,
    )


def test_a_long_map_of_annotations_is_written_wide() -> None:
    many = {Symbol(f"k{index}"): None for index in range(200)}
    written = head(
        durable=-1,
        priority=-1,
        ttl_ms=-1,
        delivery_count=0,
        annotations=items(many),
        annotations_count=len(many),
    )
    assert decode_message(written).message_annotations == many


def test_an_id_can_be_written_as_it_came() -> None:
    raw = b"\x80" + (5).to_bytes(8, "big")
    answer = AmqpMessage(properties=Properties(correlation_id=Encoded(raw)), body={"a": Int(1)})
    payload = encode_message(answer)
    assert read_properties(split(payload).bare, 0).raw(5) == raw
    assert decode(payload, section_at(payload, 0, len(payload))[2])[0].value == {"a": Int(1)}
