from contextlib import suppress
from dataclasses import fields
from inspect import Parameter, signature
from operator import attrgetter
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peeklock.amqp.errors import AmqpError, DecodeError
from peeklock.amqp.frames.performatives import Attach, Begin, Close, Detach, Disposition, Flow, Open
from peeklock.amqp.frames.sasl_frames import SaslMechanisms
from peeklock.amqp.frames.states import Accepted, Modified, Rejected, TransactionalState
from peeklock.amqp.frames.termini import Coordinator, Source, Target
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.codec import decode
from peeklock.amqp.values.composites import (
    ACCEPTED,
    ERROR,
    FORMS,
    REJECTED_PLAIN,
    RELEASED,
    decode_composite,
    encode_composite,
    encode_modified,
    encode_rejected,
)
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.forms import Form
from peeklock.amqp.values.types import Array, Char, Described, Int, Symbol, Ubyte, Uint, Ulong
from tests.amqp.forms import composites

every_form = pytest.mark.parametrize("form", FORMS, ids=attrgetter("name"))
# How many fields the specification gives to the frames that a peer reads by position.
FIELD_COUNTS = {
    "open": 10,
    "begin": 8,
    "attach": 14,
    "flow": 11,
    "transfer": 11,
    "disposition": 6,
    "detach": 3,
    "end": 1,
    "close": 1,
    "error": 3,
    "source": 11,
    "target": 7,
    "header": 5,
    "properties": 13,
}


def fields_of(raw: bytes) -> list[Any]:
    value, _ = decode(raw)
    assert isinstance(value, Described)
    assert isinstance(value.value, list)
    return value.value


@every_form
def test_the_class_has_the_attributes_and_defaults_of_its_table(form: Form) -> None:
    parameters = signature(form.value_class).parameters
    names = [row.attribute for row in form.fields]
    assert names == list(parameters) == [each.name for each in fields(form.value_class)]
    for row in form.fields:
        default = parameters[row.attribute].default
        assert default == (Parameter.empty if row.required else row.default)


@every_form
def test_descriptors_are_short_and_their_own(form: Form) -> None:
    assert form.code < 256
    assert [other.name for other in FORMS if other.code == form.code] == [form.name]
    assert len(form.fields) == FIELD_COUNTS.get(form.name, len(form.fields))


@every_form
@settings(max_examples=30)
@given(st.data())
def test_a_composite_is_written_with_every_field_and_read_back(
    form: Form, data: st.DataObject
) -> None:
    value = data.draw(composites(form))
    raw = encode_composite(value)
    assert raw[:3] == bytes((0, 0x53, form.code))
    assert len(fields_of(raw)) == len(form.fields)
    again, position = decode_composite(b"\xff" + raw, 1)
    assert again == value
    assert type(again) is form.value_class
    assert position == len(raw) + 1


@every_form
@settings(max_examples=20)
@given(st.data())
def test_every_spelling_of_a_descriptor_and_missing_last_fields_are_read(
    form: Form, data: st.DataObject
) -> None:
    value = data.draw(composites(form))
    values = fields_of(encode_composite(value))
    while values and values[-1] == form.fields[len(values) - 1].default:
        values.pop()
    wide = bytes((0, 0x80)) + form.code.to_bytes(8, "big") + encode(values)
    for raw in (wide, encode(Described(Symbol(form.symbol), values))):
        assert decode_composite(raw)[0] == value


@every_form
@settings(max_examples=10)
@given(st.data())
def test_a_composite_cut_anywhere_is_a_decode_error(form: Form, data: st.DataObject) -> None:
    raw = encode_composite(data.draw(composites(form)))
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            decode_composite(raw, 0, cut)


@every_form
@settings(max_examples=30)
@given(st.data())
def test_a_changed_byte_gives_a_composite_or_a_decode_error(
    form: Form, data: st.DataObject
) -> None:
    raw = bytearray(encode_composite(data.draw(composites(form))))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        decode_composite(bytes(raw))


@every_form
def test_one_field_too_many_is_refused(form: Form) -> None:
    raw = encode(Described(Ulong(form.code), [None] * (len(form.fields) + 1)))
    with pytest.raises(DecodeError, match=r"fields"):
        decode_composite(raw)


@every_form
def test_a_field_of_the_wrong_type_is_named(form: Form) -> None:
    for index, row in enumerate(form.fields):
        if row.kind is not object:
            values: list[Any] = [None] * index + [Char("x")]
            for before, other in enumerate(form.fields[:index]):
                if other.required:
                    values[before] = _any_value(other.kind)
            raw = encode(Described(Ulong(form.code), values))
            with pytest.raises(DecodeError, match=f"{form.name}.{row.name} has the wrong type"):
                decode_composite(raw)


def _any_value(kind: Any) -> Any:
    return {str: "", bytes: b"", bool: True}.get(kind, kind(0) if kind is not Symbol else kind("a"))


@every_form
def test_a_required_field_that_is_missing_is_named(form: Form) -> None:
    if any(row.required for row in form.fields):
        with pytest.raises(DecodeError, match=f"{form.name} comes without its"):
            decode_composite(encode(Described(Ulong(form.code), [])))


def test_the_outcomes_are_what_the_clients_expect() -> None:
    assert ACCEPTED.hex() == "00532445"
    assert RELEASED.hex() == "00532645"
    assert REJECTED_PLAIN.hex() == "005325c0020140"
    assert decode_composite(ACCEPTED)[0] == Accepted()
    assert decode_composite(REJECTED_PLAIN)[0] == Rejected()
    assert decode_composite(bytes.fromhex("00532545"))[0] == Rejected()


def test_an_error_always_has_three_fields() -> None:
    raw = encode_rejected(AmqpError("amqp:not-found"))
    (error,) = fields_of(raw)
    assert error == Described(Ulong(ERROR.code), [Symbol("amqp:not-found"), None, None])
    assert decode_composite(raw)[0].error == AmqpError("amqp:not-found")


def test_a_modified_outcome_carries_its_annotations() -> None:
    annotations = {Symbol("reason"): "later", "count": Int(3)}
    raw = encode_modified(
        delivery_failed=True, undeliverable_here=False, message_annotations=annotations
    )
    assert decode_composite(raw)[0] == Modified(
        delivery_failed=True, message_annotations=annotations
    )


def test_an_absent_field_has_the_default_of_the_specification() -> None:
    opened = decode_composite(encode(Described(Ulong(0x10), ["c"])))[0]
    assert opened == Open(container_id="c")
    assert (opened.max_frame_size, opened.channel_max) == (4294967295, 65535)
    begun = decode_composite(encode(Described(Ulong(0x11), [None, Uint(0), Uint(1), Uint(2)])))[0]
    assert begun == Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=2)
    assert begun.handle_max == 4294967295


def test_the_settle_modes_of_an_attach_stay_absent_when_they_are() -> None:
    attach = Attach(name="a", handle=0, role=True)
    again = decode_composite(encode_composite(attach))[0]
    assert again.snd_settle_mode is None
    assert again.rcv_settle_mode is None
    assert (
        decode_composite(
            encode_composite(Attach(name="a", handle=0, role=True, rcv_settle_mode=1))
        )[0].rcv_settle_mode
        == 1
    )


def test_composites_nest() -> None:
    attach = Attach(
        name="a",
        handle=1,
        role=False,
        source=Source(address="q", default_outcome=Modified(delivery_failed=True)),
        target=Coordinator(capabilities=["amqp:local-transactions"]),
    )
    assert decode_composite(encode_composite(attach))[0] == attach
    state = TransactionalState(txn_id=b"t", outcome=Rejected(error=AmqpError("amqp:x", "why")))
    disposition = Disposition(role=True, first=1, state=state)
    assert decode_composite(encode_composite(disposition))[0] == disposition


def test_a_described_value_that_is_no_composite_stays_what_it_is() -> None:
    unknown = Described(Symbol("com.example:other"), [Uint(1)])
    source = Source(address="q", default_outcome=unknown, filter={Symbol("f"): unknown})
    assert decode_composite(encode_composite(source))[0] == source


@pytest.mark.parametrize("value", [Symbol("a"), "a", Array(0xA3, [Symbol("a")]), ["a"]])
def test_one_symbol_may_stand_for_many(value: Any) -> None:
    raw = encode(Described(Ulong(0x40), [value]))
    assert decode_composite(raw)[0] == SaslMechanisms(sasl_server_mechanisms=["a"])


def test_many_symbols_are_written_as_an_array_even_when_there_is_one() -> None:
    raw = encode_composite(SaslMechanisms(sasl_server_mechanisms=["ANONYMOUS"]))
    assert fields_of(raw) == [Array(0xA3, [Symbol("ANONYMOUS")])]
    long = "x" * 300
    raw = encode_composite(SaslMechanisms(sasl_server_mechanisms=["a", long]))
    assert fields_of(raw) == [Array(0xB3, [Symbol("a"), Symbol(long)])]


def test_a_string_does_for_a_symbol_and_the_reverse() -> None:
    raw = encode(Described(Ulong(0x73), [None, None, None, Symbol("s"), None, None, "text/plain"]))
    assert decode_composite(raw)[0] == Properties(subject="s", content_type="text/plain")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "plain value"),
        (Described(Ulong(0x99), []), "no composite type"),
        (Described(Symbol("amqp:nothing:list"), []), "no composite type"),
        (Described(Ubyte(0x24), []), "no composite type"),
        (Described(Ulong(0x24), {}), "not a list"),
        (Described(Ulong(0x18), [Described(Ulong(0x24), [])]), "close.error has the wrong type"),
        (Described(Ulong(0x16), [Ulong(1)]), "detach.handle has the wrong type: Ulong"),
    ],
)
def test_what_is_not_a_composite_says_why(value: Any, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_composite(encode(value))


def test_a_required_field_cannot_be_left_out() -> None:
    # A compiled class does not even take it.
    with pytest.raises((TypeError, ValueError)):
        encode_composite(Attach(name=cast(Any, None), handle=0, role=True))


def test_only_composites_are_encoded() -> None:
    with pytest.raises(TypeError, match="not a composite"):
        encode_composite([1])


def test_numbers_come_back_as_plain_ints() -> None:
    flow = Flow(incoming_window=1, next_outgoing_id=2, outgoing_window=3, handle=4)
    assert type(decode_composite(encode_composite(flow))[0].handle) is int
    assert decode_composite(encode_composite(Detach(handle=4)))[0] == Detach(handle=4)
    assert decode_composite(encode_composite(Close()))[0] == Close()
    assert decode_composite(encode_composite(Target()))[0].address is None
