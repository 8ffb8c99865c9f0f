"""The keys of a message, and properties that are set or taken apart where they lie."""

from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.messages.message import NO_BODY, AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.messages.properties import (
    application_pairs,
    peek_properties,
    read_keys,
    read_properties,
    with_application_pairs,
    with_fields,
)
from peeklock.amqp.messages.sections import split
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Ulong
from tests.amqp.any_values import scalars
from tests.amqp.messages.test_message import BODY, messages, sections_of

ids = st.one_of(st.none(), st.text(), st.uuids(), st.binary(), st.integers(0, 2**64 - 1).map(Ulong))


@given(
    st.none()
    | st.builds(
        Properties,
        message_id=ids,
        user_id=st.none() | st.binary(),
        to=st.none() | st.text(),
        creation_time=st.none() | st.integers(0, 2**63 - 1),
        group_id=st.none() | st.text(),
        reply_to_group_id=st.none() | st.text(),
    ),
    st.booleans(),
)
def test_keys_are_read_like_any_property(properties: Properties | None, wide: bool) -> None:
    bare = encode_message(AmqpMessage(properties=properties, body_kind=NO_BODY))
    if wide and properties is not None and bare[3] == 0xC0:
        bare = b"\x00\x53\x73" + _widened(bare[3:])
    at = -1 if properties is None else 0
    read = read_properties(bare + BODY, at)
    assert read_keys(bare + BODY, at, peek_properties(bare + BODY, at)) == (
        read.message_id,
        read.group_id,
    )


def _widened(value: bytes) -> bytes:
    return b"\xd0" + (value[1] + 3).to_bytes(4, "big") + value[2].to_bytes(4, "big") + value[3:]


@given(messages, st.dictionaries(st.integers(0, 12), st.just(b"") | scalars.map(encode)))
def test_fields_are_set_and_the_others_stay(message: AmqpMessage, fields: dict[int, bytes]) -> None:
    parts = split(encode_message(message))
    before = read_properties(parts.bare, parts.properties_at)
    after_bare = with_fields(parts.bare, parts.properties_at, fields)
    after_parts = split(after_bare)
    assert after_parts.bare == after_bare
    after = read_properties(after_bare, after_parts.properties_at)
    for field in range(13):
        expected = fields.get(field, before.raw(field))
        assert after.raw(field) == (b"" if expected == b"\x40" else expected)
    kept = [section for section in sections_of(parts.bare) if section[2] != 0x73]
    assert kept == [section for section in sections_of(after_bare) if section[2] != 0x73]


@given(messages)
def test_application_properties_are_cut_and_put_together_again(message: AmqpMessage) -> None:
    bare = split(encode_message(message)).bare
    parts = split(bare)
    pairs = application_pairs(bare, parts.application_properties_at)
    assert pairs == [
        (encode(name), encode(value))
        for name, value in (message.application_properties or {}).items()
    ]
    again = with_application_pairs(bare, parts.application_properties_at, parts.body_at, pairs)
    if message.application_properties is not None:
        assert again == bare
    else:
        assert decode_message(again).application_properties == {}
