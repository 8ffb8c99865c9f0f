"""What a broker writes around a message: header, delivery annotations, message annotations."""

from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.messages.annotations import (
    enqueue_sequence_item,
    head,
    header,
    locked_around,
    locked_pack,
    locked_until_item,
    state_item,
    unlocked_around,
    unlocked_pack,
    with_symbols,
    with_symbols_in_footer,
)
from peeklock.amqp.messages.message import decode_message
from peeklock.amqp.messages.message_forms import Header
from peeklock.amqp.messages.sections import split
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Int, Symbol, Timestamp, Ulong
from tests.amqp.any_values import ascii_texts, same, scalars
from tests.amqp.messages.test_message import BODY, items, numbers

flags = st.integers(-1, 1)


@given(
    durable=flags,
    priority=st.integers(-1, 255),
    ttl_ms=st.just(-1) | st.integers(0, 2**32 - 1),
    first_acquirer=flags,
    delivery_count=st.integers(0, 300),
)
def test_a_header_says_what_was_said_and_nothing_else(
    durable: int, priority: int, ttl_ms: int, first_acquirer: int, delivery_count: int
) -> None:
    parts = split(header(durable, priority, ttl_ms, first_acquirer, delivery_count) + BODY)
    assert (parts.durable, parts.priority, parts.ttl_ms) == (durable, priority, ttl_ms)
    assert (parts.first_acquirer, parts.delivery_count) == (first_acquirer, delivery_count)


@given(
    sequence=numbers,
    number=st.integers(0, 2**64 - 1),
    enqueued_at=numbers,
    locked_until=numbers,
    noted=st.dictionaries(ascii_texts.map(lambda text: Symbol("d-" + text)), scalars, max_size=4),
    extra=st.dictionaries(ascii_texts.map(lambda text: Symbol("u-" + text)), scalars, max_size=4),
)
def test_a_delivery_begins_with_what_the_clients_read(
    sequence: int,
    number: int,
    enqueued_at: int,
    locked_until: int,
    noted: dict[Any, Any],
    extra: dict[Any, Any],
) -> None:
    begin = header(-1, -1, -1, -1, 3)
    rest = locked_until_item(locked_until) + items(extra)
    around = locked_around(begin, items(noted), len(noted), enqueued_at, rest, 1 + len(extra))
    before, between, behind = around
    locked = locked_pack(*around)(before, sequence, number, between, sequence, behind)
    told = decode_message(locked + BODY)
    known: dict[Any, Any] = {
        Symbol("x-opt-enqueued-time"): Timestamp(enqueued_at),
        Symbol("x-opt-sequence-number"): sequence,
    }
    assert told.header == Header(delivery_count=3)
    token = {Symbol("x-opt-lock-token"): UUID(int=sequence << 64 | number)}
    assert same(told.delivery_annotations, token | noted)
    until = {Symbol("x-opt-locked-until"): Timestamp(locked_until)}
    assert same(told.message_annotations, known | until | extra)
    start, end = unlocked_around(
        begin, items(noted), len(noted), enqueued_at, items(extra), len(extra)
    )
    unlocked = decode_message(unlocked_pack(start, end)(start, sequence, end) + BODY)
    assert same(unlocked.delivery_annotations, noted)
    assert same(unlocked.message_annotations, known | extra)


def test_what_few_messages_have_is_written_in_items() -> None:
    written = head(
        durable=-1,
        priority=-1,
        ttl_ms=-1,
        delivery_count=0,
        annotations=enqueue_sequence_item(7) + state_item(2),
        annotations_count=2,
    )
    expected = {
        Symbol("x-opt-enqueue-sequence-number"): 7,
        Symbol("x-opt-message-state"): Int(2),
    }
    assert same(decode_message(written).message_annotations, expected)


def test_keys_become_symbols_where_they_can() -> None:
    raw = items({"a": "a", Symbol("b"): 1, "\u00e4": 2, "x" * 300: 3, Ulong(5): 4})
    names = decode(encode({}))[0]
    end, at = len(raw), 0
    found = with_symbols(raw)
    assert len(found) == end
    while at < end:
        key, at = decode(found, at, end)
        names[key], at = decode(found, at, end)
    kinds = [type(key) for key in names]
    assert kinds == [Symbol, Symbol, str, Symbol, Ulong]
    assert list(names.values()) == ["a", 1, 2, 3, 4]
    untouched = items({Symbol("b"): "b"})
    assert with_symbols(untouched) is untouched


def test_a_footer_gets_symbols_and_keeps_its_length() -> None:
    bare = BODY + encode(Described(Ulong(0x78), {"k": "v", Symbol("s"): 1}))
    written = with_symbols_in_footer(bare, split(bare).footer_at)
    assert len(written) == len(bare)
    footer = decode_message(written).footer
    assert same(footer, {Symbol("k"): "v", Symbol("s"): 1})
    assert with_symbols_in_footer(written, len(BODY)) is written
