from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.errors import DecodeError
from peeklock.amqp.frames.fast import (
    build_disposition,
    build_flow,
    build_transfer,
    parse_disposition,
    parse_flow,
    parse_transfer,
    performative_code,
)
from peeklock.amqp.frames.performatives import (
    DISPOSITION,
    FLOW,
    TRANSFER,
    Disposition,
    Flow,
    Transfer,
)
from peeklock.amqp.sessions.outgoing import ID_AND_TAG, transfer_frame
from peeklock.amqp.values.composites import (
    ACCEPTED,
    decode_composite,
    described_of,
    encode_composite,
)
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.forms import Form
from peeklock.amqp.values.types import Encoded, Symbol, Ulong
from tests.amqp.any_values import unsigned
from tests.amqp.forms import composites, states

transfers = composites(TRANSFER)
dispositions = composites(DISPOSITION)
flows = composites(FLOW)


def number(value: int | None) -> int:
    return -1 if value is None else value


def raw_state(value: Any) -> bytes | None:
    return None if value is None else encode(described_of(value))


@st.composite
def encodings(draw: st.DrawFn, form: Form, value: Any) -> bytes:
    """Writes a performative as a peer may: wide or narrow, defaults left out or not."""
    fields = []
    for row, field in zip(form.fields, described_of(value).value, strict=True):
        absent = field == row.default and draw(st.booleans())
        fields.append(b"\x40" if absent else _spelling(draw, field))
    while fields and fields[-1] == b"\x40" and draw(st.booleans()):
        fields.pop()
    body = b"".join(fields)
    if len(body) > 200 or draw(st.booleans()):
        sizes = (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big")
        composite = b"\xd0" + sizes + body
    else:
        composite = bytes((0xC0, len(body) + 1, len(fields))) + body
    descriptors = (
        bytes((0, 0x53, form.code)),
        bytes((0, 0x80)) + form.code.to_bytes(8, "big"),
        b"\x00" + encode(Symbol(form.symbol)),
    )
    return draw(st.sampled_from(descriptors)) + composite


def _spelling(draw: st.DrawFn, field: Any) -> bytes:
    spellings = [encode(field)]
    if isinstance(field, bool):
        spellings.append(bytes((0x56, field)))
    elif type(field).__name__ == "Uint":
        spellings.append(b"\x70" + field.to_bytes(4, "big"))
        if field < 256:
            spellings.append(bytes((0x52, field)))
    elif type(field) is bytes:
        spellings.append(b"\xb0" + len(field).to_bytes(4, "big") + field)
    return draw(st.sampled_from(spellings))


def assert_same_transfer(raw: bytes, position: int, end: int, value: Transfer) -> None:
    parsed = parse_transfer(raw, position, end)
    assert parsed.handle == value.handle
    assert parsed.delivery_id == number(value.delivery_id)
    assert parsed.delivery_tag == value.delivery_tag
    assert parsed.message_format == number(value.message_format)
    assert parsed.settled is value.settled
    assert parsed.more is value.more
    assert parsed.rcv_settle_mode == number(value.rcv_settle_mode)
    assert (parsed.state is None) is (value.state is None)
    assert parsed.state == raw_state(value.state)
    assert (parsed.resume, parsed.aborted) == (value.resume, value.aborted)
    assert parsed.batchable is value.batchable


@given(transfers, st.data())
def test_a_transfer_in_any_spelling_is_read_as_its_table_reads_it(
    value: Transfer, data: st.DataObject
) -> None:
    raw = data.draw(encodings(TRANSFER, value))
    assert decode_composite(raw)[0] == value
    frame = b"head" + raw + b"payload"
    assert_same_transfer(frame, 4, len(frame), value)
    assert_same_transfer(frame, 4, len(frame), value)  # the second time from memory
    assert parse_transfer(frame, 4, len(frame)).payload_at == 4 + len(raw)
    assert performative_code(frame, 4, len(frame)) == TRANSFER.code


@given(dispositions, st.data())
def test_a_disposition_in_any_spelling_is_read_as_its_table_reads_it(
    value: Disposition, data: st.DataObject
) -> None:
    raw = data.draw(encodings(DISPOSITION, value))
    assert decode_composite(raw)[0] == value
    for _ in range(2):
        parsed = parse_disposition(b"head" + raw, 4, 4 + len(raw))
        assert parsed.role is value.role
        assert parsed.first == value.first
        assert parsed.last == (value.first if value.last is None else value.last)
        assert parsed.settled is value.settled
        assert parsed.state == (raw_state(value.state) or b"")
        assert parsed.batchable is value.batchable


@given(flows, st.data())
def test_a_flow_in_any_spelling_is_read_as_its_table_reads_it(
    value: Flow, data: st.DataObject
) -> None:
    raw = data.draw(encodings(FLOW, value))
    assert decode_composite(raw)[0] == value
    parsed = parse_flow(b"head" + raw, 4, 4 + len(raw))
    for row in FLOW.fields[:8]:
        assert getattr(parsed, row.attribute) == number(getattr(value, row.attribute))
    assert (parsed.drain, parsed.echo) == (value.drain, value.echo)


@given(transfers)
def test_a_transfer_is_written_byte_for_byte_as_its_table_writes_it(value: Transfer) -> None:
    raw = build_transfer(
        value.handle,
        number(value.delivery_id),
        value.delivery_tag,
        number(value.message_format),
        value.settled,
        value.more,
        rcv_settle_mode=number(value.rcv_settle_mode),
        state=raw_state(value.state),
        resume=value.resume,
        aborted=value.aborted,
        batchable=value.batchable,
    )
    assert raw == encode_composite(value)


@given(
    unsigned(32),
    unsigned(32),
    st.none() | st.binary(max_size=32),
    unsigned(32),
    st.none() | st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_a_plain_transfer_is_written_as_its_table_writes_it(
    handle: int,
    delivery_id: int,
    tag: bytes | None,
    message_format: int,
    settled: bool | None,
    more: bool,
    batchable: bool,
) -> None:
    value = Transfer(
        handle=handle,
        delivery_id=delivery_id,
        delivery_tag=tag,
        message_format=message_format,
        settled=settled,
        more=more,
        batchable=batchable,
    )
    raw = build_transfer(
        handle, delivery_id, tag, message_format, settled, more, batchable=batchable
    )
    assert raw == encode_composite(value)


@given(st.booleans(), unsigned(32), unsigned(32), st.booleans(), st.none() | states, st.booleans())
def test_a_disposition_is_written_byte_for_byte_as_its_table_writes_it(
    role: bool, first: int, last: int, settled: bool, state: Any, batchable: bool
) -> None:
    value = Disposition(
        role=role, first=first, last=last, settled=settled, state=state, batchable=batchable
    )
    raw = build_disposition(role, first, last, settled, raw_state(state) or b"", batchable)
    assert raw == encode_composite(value)


def test_a_disposition_with_a_long_state_is_written_wide() -> None:
    state = encode(["x" * 300])
    raw = build_disposition(True, 1, 2, True, state)
    table = Disposition(role=True, first=1, last=2, settled=True, state=Encoded(state))
    assert raw == encode_composite(table)
    assert parse_disposition(raw, 0, len(raw)).state == state


@given(flows)
def test_a_flow_is_written_byte_for_byte_as_its_table_writes_it(value: Flow) -> None:
    given_numbers = {
        row.attribute: number(getattr(value, row.attribute)) for row in FLOW.fields[:8]
    }
    raw = build_flow(**given_numbers, drain=value.drain, echo=value.echo)
    without_properties = {row.attribute: getattr(value, row.attribute) for row in FLOW.fields[:10]}
    assert raw == encode_composite(Flow(**without_properties))


PARSERS = {0x13: parse_flow, 0x14: parse_transfer, 0x15: parse_disposition}
any_performative = st.one_of(
    transfers.flatmap(lambda value: encodings(TRANSFER, value)),
    dispositions.flatmap(lambda value: encodings(DISPOSITION, value)),
    flows.flatmap(lambda value: encodings(FLOW, value)),
)


@given(any_performative)
def test_a_performative_cut_at_any_byte_is_a_decode_error(raw: bytes) -> None:
    parse: Any = PARSERS[performative_code(raw, 0, len(raw))]
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            parse(raw[:cut], 0, cut)
        with pytest.raises(DecodeError):
            parse(raw, 0, cut)


@given(any_performative, st.data())
def test_a_changed_byte_is_read_as_the_table_reads_it_or_refused(
    raw: bytes, data: st.DataObject
) -> None:
    code = performative_code(raw, 0, len(raw))
    changed = bytearray(raw)
    changed[data.draw(st.integers(3, len(raw) - 1))] = data.draw(st.integers(0, 255))
    parse: Any = PARSERS[code]
    try:
        parsed = parse(bytes(changed), 0, len(changed))
    except DecodeError:
        return
    try:
        value, _ = decode_composite(bytes(changed))
    except DecodeError:
        return  # the table looks into states and properties, the fast form walks over them
    if code == 0x14:
        assert parsed.handle == value.handle
        assert parsed.delivery_tag == value.delivery_tag
        assert parsed.more is value.more
    elif code == 0x15:
        assert parsed.first == value.first
        assert parsed.settled is value.settled
    else:
        assert parsed.link_credit == number(value.link_credit)


@given(st.sampled_from([0x13, 0x14, 0x15]), st.binary(max_size=40))
def test_arbitrary_bytes_are_a_performative_or_a_decode_error(code: int, raw: bytes) -> None:
    frame = bytes((0, 0x53, code)) + raw
    parse: Any = PARSERS[code]
    with suppress(DecodeError):
        parse(frame, 0, len(frame))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("00 53 14 45", "handle"),
        ("00 53 14 40", "not a list"),
        ("00 53 14 c0 02 01 40", "fields"),
        ("00 53 14 c0 02 01 41", "transfer.handle is not a uint"),
        ("00 53 14 c0 05 04 40 40 40 40", "fields"),
        ("00 53 14 c0 05 04 43 41 40 40", "transfer.delivery-id is not a uint"),
        ("00 53 14 c0 05 04 43 40 41 40", "transfer.delivery-tag is not binary"),
        ("00 53 14 c0 05 04 43 40 40 41", "transfer.message-format is not a uint"),
        ("00 53 14 c0 06 05 43 40 40 40 43", "transfer.settled is not a boolean"),
        ("00 53 14 c0 07 05 43 40 40 40 56 02", "transfer.settled is not a boolean"),
        ("00 53 14 c0 08 07 43 40 40 40 40 40 41", "rcv-settle-mode is not a ubyte"),
        ("00 53 14 c0 0d 0c 43 40 40 40 40 40 40 40 40 40 40 40", "more fields"),
        ("00 53 14 c0 06 04 43 40 40 40 40", "fields"),
        ("00 53 15 45", "role"),
        ("00 53 15 c0 03 02 40 43", "role"),
        ("00 53 15 c0 03 02 41 40", "first"),
        ("00 53 15 c0 03 02 43 43", "disposition.role is not a boolean"),
        ("00 53 15 c0 08 07 41 43 40 40 40 40 40", "more fields"),
        ("00 53 13 45", "windows"),
        ("00 53 13 c0 0d 0c 40 43 43 43 40 40 40 40 40 40 40 40", "fields"),
        ("00 53 13 c0 06 04 43 43 43 43 40", "fields"),
        ("00 53 13 c0 0a 09 43 43 43 43 40 40 40 40 43", "flow.drain is not a boolean"),
    ],
)
def test_what_is_malformed_says_why(raw: str, reason: str) -> None:
    frame = bytes.fromhex(raw)
    parse: Any = PARSERS[frame[2]]
    with pytest.raises(DecodeError, match=reason):
        parse(frame, 0, len(frame))


@pytest.mark.parametrize("raw", ["", "40", "00", "00 53", "00 80", "00 a3 01 61 45"])
def test_a_frame_without_a_performative_is_refused(raw: str) -> None:
    frame = bytes.fromhex(raw)
    with pytest.raises(DecodeError):
        performative_code(frame, 0, len(frame))


@pytest.mark.parametrize(
    ("raw", "delivery_id", "tag"),
    [
        ("00 53 14 c0 03 01 52 07", -1, None),
        ("00 53 14 c0 04 02 52 07 43", 0, None),
        ("00 53 14 c0 07 03 52 07 43 a0 01 61", 0, b"a"),
        ("00 53 14 c0 0a 03 52 07 43 b0 00000001 61", 0, b"a"),
        ("00 53 14 c0 05 03 52 07 40 40", -1, None),
    ],
)
def test_a_continuation_may_leave_out_nearly_everything(
    raw: str, delivery_id: int, tag: bytes | None
) -> None:
    frame = bytes.fromhex(raw)
    parsed = parse_transfer(frame, 0, len(frame))
    assert (parsed.handle, parsed.delivery_id, parsed.delivery_tag) == (7, delivery_id, tag)
    assert (parsed.message_format, parsed.settled, parsed.more) == (-1, None, False)
    assert parsed.payload_at == len(frame)
    assert_same_transfer(frame, 0, len(frame), decode_composite(frame)[0])


def test_what_is_remembered_does_not_outlive_its_field_count() -> None:
    honest = bytes.fromhex("00 53 14 c0 07 06 43 43 40 43 42 42")
    assert parse_transfer(honest, 0, len(honest)).settled is False
    liar = bytes.fromhex("00 53 14 c0 07 05 43 43 40 43 42 42")
    with pytest.raises(DecodeError):
        parse_transfer(liar, 0, len(liar))


def test_memory_for_tails_is_bounded_and_a_full_one_starts_again() -> None:
    for step in range(1200):
        state = encode(Ulong(1000 + step))
        sent = build_transfer(1, 2, b"t", 0, False, False, state=state)
        assert parse_transfer(sent, 0, len(sent)).state == state
        settled = build_disposition(True, 1, 1, True, state)
        assert parse_disposition(settled, 0, len(settled)).state == state
    settled = build_disposition(True, 1, 1, True, ACCEPTED)
    assert parse_disposition(settled, 0, len(settled)).state == ACCEPTED


def test_a_transfer_as_pyamqp_writes_it() -> None:
    # Octet booleans, and the delivery-id repeated in a continuation.
    raw = bytes.fromhex("00 53 14 c0 14 0b 52 01 43 a0 04 00000001 43 56 00 56 01 40 40 40 40 40")
    parsed = parse_transfer(raw, 0, len(raw))
    assert (parsed.handle, parsed.delivery_id, parsed.delivery_tag) == (1, 0, b"\0\0\0\x01")
    assert (parsed.settled, parsed.more, parsed.batchable) == (False, True, False)


@given(
    handle=st.sampled_from([0, 1, 255, 256, 70_000]),
    delivery_id=st.integers(256, 0xFFFFFFFF),
    tag=st.binary(min_size=16, max_size=16),
    settled=st.booleans(),
)
def test_the_frame_of_a_locked_message_is_the_one_of_the_tables(
    handle: int, delivery_id: int, tag: bytes, settled: bool
) -> None:
    before, after = transfer_frame(handle, settled)
    written = before + ID_AND_TAG(delivery_id, 0xA010, tag) + after
    assert written == build_transfer(handle, delivery_id, tag, 0, settled, False, batchable=True)
