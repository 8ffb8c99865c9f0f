from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.errors import DECODE_ERROR, DecodeError
from peeklock.amqp.values.codec import (
    ELEMENTS_FREE,
    ELEMENTS_MAX,
    NESTING_MAX,
    ElementBudget,
    budget_for,
    decode,
    skip,
)
from peeklock.amqp.values.encoder import encode, encode_into
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
from tests.amqp.any_values import same, values


@dataclass
class Case:
    name: str
    raw: bytes
    value: Any
    smallest: bool = True


def case(name: str, raw: str, value: Any, *, smallest: bool = True) -> Case:
    return Case(name, bytes.fromhex(raw), value, smallest)


A_UUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
CASES = [
    case("null", "40", None),
    case("true", "41", True),
    case("false", "42", False),
    case("true-as-octet", "56 01", True, smallest=False),
    case("false-as-octet", "56 00", False, smallest=False),
    case("ubyte", "50 ff", Ubyte(255)),
    case("ushort", "60 0102", Ushort(258)),
    case("uint0", "43", Uint(0)),
    case("uint-small", "52 07", Uint(7)),
    case("uint", "70 80013700", Uint(0x80013700)),
    case("uint-large-form-of-small", "70 00000007", Uint(7), smallest=False),
    case("ulong0", "44", Ulong(0)),
    case("ulong-small", "53 24", Ulong(0x24)),
    case("ulong", "80 0000000000000100", Ulong(256)),
    case("ulong-large-form-of-small", "80 0000000000000024", Ulong(0x24), smallest=False),
    case("byte", "51 ff", Byte(-1)),
    case("short", "61 fffe", Short(-2)),
    case("int-small", "54 ff", Int(-1)),
    case("int", "71 00000080", Int(128)),
    case("int-large-form-of-small", "71 00000001", Int(1), smallest=False),
    case("long-small", "55 80", -128),
    case("long", "81 ffffffffffffff7f", -129),
    case("long-large-form-of-small", "81 0000000000000001", 1, smallest=False),
    case("float", "72 3fc00000", Float(1.5)),
    case("double", "82 4004000000000000", 2.5),
    case("char", "73 0001f600", Char("\U0001f600")),
    case("timestamp", "83 0000018bcfe56800", Timestamp(1_700_000_000_000)),
    case("timestamp-before-1970", "83 ffffffffffffffff", Timestamp(-1)),
    case("uuid", "98 00112233445566778899aabbccddeeff", A_UUID),
    case("binary", "a0 02 00ff", b"\x00\xff"),
    case("binary-wide", "b0 00000001 61", b"a", smallest=False),
    case("string", "a1 03 68c3a9", "hé"),
    case("string-wide", "b1 00000001 61", "a", smallest=False),
    case("string-empty", "a1 00", ""),
    case("symbol", "a3 03 616263", Symbol("abc")),
    case("symbol-wide", "b3 00000001 61", Symbol("a"), smallest=False),
    case("decimal32", "74 00000001", Decimal32(b"\x00\x00\x00\x01")),
    case("decimal64", "84 0000000000000001", Decimal64(b"\x00" * 7 + b"\x01")),
    case("decimal128", "94" + "00" * 15 + "01", Decimal128(b"\x00" * 15 + b"\x01")),
    case("list0", "45", []),
    case("list-empty-narrow", "c0 01 00", [], smallest=False),
    case("list-narrow", "c0 04 02 41 54 01", [True, Int(1)]),
    case("list-wide", "d0 00000005 00000001 40", [None], smallest=False),
    case("map-empty", "c1 01 00", {}),
    case("map-narrow", "c1 05 02 a3 01 61 43", {Symbol("a"): Uint(0)}),
    case("map-wide", "d1 00000006 00000002 43 41", {Uint(0): True}, smallest=False),
    case("array-of-symbols", "e0 06 02 a3 01 61 01 62", Array(0xA3, [Symbol("a"), Symbol("b")])),
    case("array-empty", "e0 02 00 a3", Array(0xA3, [])),
    case("array-of-nulls", "e0 02 03 40", Array(0x40, [None, None, None])),
    case("array-of-trues", "e0 02 02 41", Array(0x41, [True, True])),
    case("array-of-list0", "e0 02 02 45", Array(0x45, [[], []])),
    case("array-wide", "f0 00000006 00000001 50 07", Array(0x50, [Ubyte(7)]), smallest=False),
    case("array-described", "e0 06 01 00 53 05 50 07", Array(0x50, [Ubyte(7)], Ulong(5))),
    case("described", "00 53 24 45", Described(Ulong(0x24), [])),
    case("described-by-symbol", "00 a3 01 61 40", Described(Symbol("a"), None)),
]
any_case = pytest.mark.parametrize("case", CASES, ids=attrgetter("name"))


@any_case
def test_named_bytes_are_read_as_their_value_and_type(case: Case) -> None:
    value, position = decode(case.raw)
    assert same(value, case.value)
    assert position == len(case.raw) == skip(case.raw, 0, len(case.raw))


@any_case
def test_a_value_is_written_in_its_smallest_form(case: Case) -> None:
    raw = encode(case.value)
    assert (raw == case.raw) is case.smallest
    assert len(raw) <= len(case.raw)


@any_case
def test_a_value_in_the_middle_of_others_is_found_and_left(case: Case) -> None:
    buffer = b"\xff" + case.raw + b"\xff"
    value, position = decode(buffer, 1)
    assert same(value, case.value)
    assert position == len(buffer) - 1 == skip(buffer, 1, len(buffer))


@any_case
def test_a_value_cut_at_any_byte_is_a_decode_error(case: Case) -> None:
    for cut in range(len(case.raw)):
        with pytest.raises(DecodeError):
            decode(case.raw[:cut])
        with pytest.raises(DecodeError):
            decode(case.raw, 0, cut)
        with pytest.raises(DecodeError):
            skip(case.raw, 0, cut)


@given(values)
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    raw = encode(value)
    again, position = decode(raw)
    assert same(again, value)
    assert position == len(raw) == skip(raw, 0, len(raw))
    assert encode(again) == raw


@given(values, st.data())
def test_every_value_cut_anywhere_is_a_decode_error(value: Any, data: st.DataObject) -> None:
    raw = encode(value)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(DecodeError):
        decode(raw[:cut])
    with pytest.raises(DecodeError):
        skip(raw[:cut], 0, cut)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_value_or_a_decode_error(raw: bytes) -> None:
    try:
        value, position = decode(raw)
    except DecodeError:
        return
    assert position <= len(raw)
    assert skip(raw, 0, len(raw)) == position
    assert same(decode(encode(value))[0], value)


@given(values, st.data())
def test_a_changed_byte_is_another_value_or_a_decode_error(value: Any, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        decode(bytes(raw))


def test_a_decode_error_has_a_condition_and_a_text() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(b"")
    assert caught.value.condition == DECODE_ERROR
    assert caught.value.text == str(caught.value)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("56 02", "boolean"),
        ("4f", "unknown constructor"),
        ("e0 02 00 4f", "unknown constructor"),
        ("c1 04 01 a1 01 61", "key and no value"),
        ("c1 07 04 54 01 40 54 01 40", "twice"),
        ("c1 03 02 45 40", "compound"),
        ("c1 06 02 00 53 01 40 40", "compound"),
        ("a1 01 ff", "UTF-8"),
        ("a3 01 ff", "ASCII"),
        ("73 00110000", "Unicode"),
        ("c0 02 00 40", "longer"),
        ("c1 02 00 40", "longer"),
        ("e0 03 00 40 40", "longer"),
        ("c0 02 05 40", "ends before"),
        ("c1 02 04 40", "ends before"),
        ("e0 03 05 50 01", "ends before"),
        ("d0 00000003 000000", "ends before"),
        ("c0 00", "ends before"),
        ("e0 01 00", "ends before"),
        ("e0 04 00 00 53 01", "ends before"),
        ("e0 03 00 00 40 40", "ends before|descriptor"),
        ("e0 04 00 00 40 40", "descriptor"),
        ("e0 06 00 00 53 01 00 40", "descriptor"),
    ],
)
def test_what_is_malformed_says_why(raw: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode(bytes.fromhex(raw))


@pytest.mark.parametrize(("position", "end"), [(-1, 1), (2, 1), (0, 9), (9, None)])
def test_a_place_outside_the_buffer_is_refused(position: int, end: int | None) -> None:
    with pytest.raises(DecodeError):
        decode(b"\x40", position, end)


def test_skip_never_looks_beyond_its_buffer() -> None:
    with pytest.raises(DecodeError):
        skip(b"\x40", 0, 9)


def test_an_unknown_constructor_cannot_be_skipped() -> None:
    with pytest.raises(DecodeError, match="unknown constructor"):
        skip(b"\x4f", 0, 1)


@pytest.mark.parametrize("code", ["40", "41", "42", "43", "44", "45"])
def test_elements_without_bytes_are_paid_for(code: str) -> None:
    bomb = bytes.fromhex("f0 00000005 ffffffff" + code)
    with pytest.raises(DecodeError, match="elements"):
        decode(bomb)


def test_many_small_arrays_share_one_budget() -> None:
    arrays = b"\xe0\x02\x40\x40" * 50
    frame = b"\xd0" + (len(arrays) + 4).to_bytes(4, "big") + (50).to_bytes(4, "big") + arrays
    with pytest.raises(DecodeError, match="elements"):
        decode(frame)


def test_a_budget_is_one_element_per_byte_and_never_more_than_the_most() -> None:
    assert budget_for(100).left == 100 + ELEMENTS_FREE
    assert budget_for(10**9).left == ELEMENTS_MAX


def test_two_values_of_one_frame_can_share_a_budget() -> None:
    raw = encode([1, 2, 3])
    budget = ElementBudget(5)
    decode(raw, 0, None, budget)
    assert budget.left == 2
    with pytest.raises(DecodeError, match="elements"):
        decode(raw, 0, None, budget)


def test_more_elements_than_the_most_are_refused() -> None:
    with pytest.raises(DecodeError, match="elements"):
        decode(encode([None] * (ELEMENTS_MAX + 1)))


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_nesting_ends_at_its_limit() -> None:
    deepest = encode(nested(NESTING_MAX))
    assert decode(deepest)[0] == nested(NESTING_MAX)
    with pytest.raises(DecodeError, match="deeper"):
        decode(encode([[nested(NESTING_MAX)]]))
    with pytest.raises(DecodeError, match="deeper"):
        decode(b"\x00" * 5000 + b"\x40")


def test_skip_walks_over_any_nesting() -> None:
    raw = b"\x00" * 5000 + b"\x40" * 5001
    assert skip(raw, 0, len(raw)) == len(raw)


def test_a_wide_compound_is_chosen_when_the_narrow_is_too_small() -> None:
    assert encode(["x" * 250])[0] == 0xC0
    assert encode(["x" * 253])[0] == 0xD0
    assert encode([None] * 255)[0] == 0xD0
    assert encode({"k": "x" * 253})[0] == 0xD1
    assert encode(Array(0x40, [None] * 255))[0] == 0xE0
    assert encode(Array(0x40, [None] * 256))[0] == 0xF0


def test_what_is_encoded_already_is_written_as_it_is() -> None:
    out = bytearray(b"\x01")
    encode_into(out, [Encoded(b"\x70\x00\x00\x00\x01")])
    assert bytes(out) == bytes.fromhex("01 c0 06 01 70 00000001")


@pytest.mark.parametrize("value", [object(), (1, 2), {1}, bytearray(b"a"), 1j])
def test_a_value_without_an_amqp_type_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="no AMQP type"):
        encode(value)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        Uint(-1),
        Uint(2**32),
        Ulong(2**64),
        Ubyte(256),
        Byte(128),
        Int(2**31),
        Symbol("é"),
        "\ud800",
        Decimal32(b"abc"),
        Array(0x43, [Uint(1)]),
        Array(0xA1, ["x" * 256]),
        Array(0xC0, [[b"x" * 300]]),
    ],
)
def test_a_value_that_does_not_fit_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError, match=r"fit|encode|cannot|not what"):
        encode(value)


def test_an_element_of_another_type_than_its_array_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="element"):
        encode(Array(0x70, [1]))


@pytest.mark.parametrize(("code", "width"), [(0x71, 4), (0x81, 8)])
def test_arrays_of_numbers_need_no_budget(code: int, width: int) -> None:
    """R-D1: they are as many as their bytes allow, and a claim has a hundred thousand."""
    count = ELEMENTS_MAX + 1
    raw = encode(Array(code, list(range(count))))
    assert len(raw) == 10 + width * count
    found, end = decode(raw)
    assert (found.code, end) == (code, len(raw))
    assert found.items == list(range(count))
    assert isinstance(found.items[0], Int) == (code == 0x71)


@pytest.mark.parametrize("lowest", [-(2**63), -1])
def test_numbers_of_an_array_have_signs(lowest: int) -> None:
    array = Array(0x81, [lowest, 0, 2**63 - 1])
    assert decode(encode(array))[0] == array


@pytest.mark.parametrize("array", [Array(0x81, [2**63]), Array(0x71, [Int(1), Int(2**31)])])
def test_a_number_that_does_not_fit_its_array_is_a_value_error(array: Array) -> None:
    with pytest.raises(ValueError, match="fit"):
        encode(array)


@pytest.mark.parametrize("array", [Array(0x81, [True]), Array(0x81, [Int(1)]), Array(0x71, ["1"])])
def test_what_is_no_number_is_not_written_as_one(array: Array) -> None:
    with pytest.raises(TypeError, match="element"):
        encode(array)


@pytest.mark.parametrize(
    "raw",
    [
        "e0 09 02 81 0000000000000001",  # one number where two are told
        "e0 0b 01 81 0000000000000001 00",  # a byte more than the number
        "e0 06 01 81 00000001",  # half a number
        "f0 00000009 00ffffff 71 00000001",
    ],
)
def test_an_array_of_numbers_has_the_bytes_it_tells_of(raw: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(raw))
