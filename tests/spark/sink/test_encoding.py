"""Rows become messages that say what the rows say, in parcels that fit."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.messages.message import AmqpMessage, decode_message
from peeklock.amqp.values.types import Int, Timestamp
from peeklock.spark.properties import to_json
from peeklock.spark.sink.encoding import bodies, durations, entries_of, messages_of, milliseconds
from peeklock.spark.sink.ids import digests, ids_of, places
from peeklock.spark.sink.pace import Pace
from peeklock.spark.sink.parcels import ParcelLimits, TooLarge, in_order_of_keys, parcels
from tests.amqp.batches import batch_messages

TEXT_COLUMNS = {
    "message_id": "message_id",
    "to": "to",
    "subject": "subject",
    "reply_to": "reply_to",
    "correlation_id": "correlation_id",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
}
NOW = 1_700_000_000_000
MAP = pa.map_(pa.string(), pa.string())

texts = st.none() | st.text(max_size=20) | st.text(min_size=250, max_size=300)
rows_of_texts = st.lists(
    st.fixed_dictionaries(dict.fromkeys(TEXT_COLUMNS, texts)), min_size=1, max_size=5
)


def decoded(**columns: Any) -> list[AmqpMessage]:
    rows = len(next(iter(columns.values())))
    columns.setdefault("message_id", pa.array(["id"] * rows))
    columns.setdefault("body", pa.array([b""] * rows))
    return [decode_message(one) for one in messages_of(columns, NOW).to_pylist()]


@given(rows_of_texts)
def test_every_text_is_where_it_belongs(rows: list[dict[str, str | None]]) -> None:
    columns = {name: pa.array([row[name] for row in rows], pa.string()) for name in TEXT_COLUMNS}
    for row, message in zip(rows, decoded(**columns), strict=True):
        assert message.properties is not None
        found = {name: getattr(message.properties, TEXT_COLUMNS[name]) for name in row}
        assert found == row


@given(st.lists(st.none() | st.dictionaries(st.text(max_size=5), texts, max_size=4), max_size=6))
def test_maps_are_application_properties(rows: list[dict[str, str | None] | None]) -> None:
    # A slice of a longer array, as Spark's are: what is before and behind it must not be seen.
    padded = [{"no": "no"}, *rows, {"no": "no"}]
    maps = pa.array([None if row is None else list(row.items()) for row in padded], MAP)
    column = maps.slice(1, len(rows))
    if rows:
        found = [one.application_properties for one in decoded(application_properties=column)]
        assert found == [row or None for row in rows]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.int64(), 1 << 40, 1 << 40),
        (pa.int32(), -7, Int(-7)),
        (pa.float64(), 2.5, 2.5),
        (pa.bool_(), True, True),
        (pa.binary(), b"\x00\xff", b"\x00\xff"),
        (pa.timestamp("us", tz="UTC"), datetime(2030, 1, 1, tzinfo=UTC), Timestamp(1893456000000)),
    ],
)
def test_maps_of_other_types_keep_them(kind: pa.DataType, value: Any, wanted: Any) -> None:
    column = pa.array([[("a", value), ("b", None)]], pa.map_(pa.string(), kind))
    (message,) = decoded(application_properties=column)
    found = message.application_properties
    assert found == {"a": wanted, "b": None}
    assert type(found["a"]) is type(wanted)


def test_types_that_json_has_kept_are_written_again() -> None:
    before = {"count": Int(3), "when": Timestamp(5), "text": "a", "gone": 1}
    typed = pa.array([to_json(before), None, "{}"])
    (first, second, third) = decoded(properties_json=typed)
    assert first.application_properties == before
    assert type(first.application_properties["count"]) is Int
    assert second.application_properties is None
    assert third.application_properties is None


def test_the_map_says_which_properties_there_are_and_json_of_which_type() -> None:
    typed = pa.array([to_json({"count": Int(3), "kept": Int(4), "gone": 1})])
    plain = pa.array([[("count", "9"), ("kept", "4"), ("new", "x")]], MAP)
    (message,) = decoded(properties_json=typed, application_properties=plain)
    assert message.application_properties == {"count": "9", "kept": Int(4), "new": "x"}


def test_times_and_keys_are_annotations() -> None:
    at = pa.array([datetime(2030, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC"))
    keys = pa.array(["key", None])
    first, second = decoded(partition_key=keys, scheduled_enqueue_time=milliseconds(at))
    assert first.message_annotations == {
        "x-opt-partition-key": "key",
        "x-opt-scheduled-enqueue-time": Timestamp(1893456000000),
    }
    assert second.message_annotations is None


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", None])
def test_instants_are_the_same_in_every_zone(zone: str | None) -> None:
    at = pa.array([1_893_456_000_123_456], pa.int64()).cast(pa.timestamp("us", tz=zone))
    assert milliseconds(at).to_pylist() == [1_893_456_000_123]


def test_time_to_live_is_in_the_header_and_beyond_seven_weeks_in_the_expiry() -> None:
    lives = durations(pa.array([5_000, None, 1 << 40], pa.int64()))
    short, none, long = decoded(time_to_live=lives)
    assert short.header is not None
    assert short.header.ttl == 5_000
    assert none.header is None
    assert long.header is not None
    assert long.header.ttl == 0xFFFF_FFFF
    assert long.properties is not None
    assert long.properties.absolute_expiry_time == NOW + (1 << 40)
    assert durations(pa.array([1_500_000], pa.duration("us"))).to_pylist() == [1_500]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([b"\xff", None]), [b"\xff", b""]),
        (pa.array(["grün", ""]), ["grün".encode(), b""]),
        (pa.array([{"a": 1, "b": ["x"]}, None]), [b'{"a": 1, "b": ["x"]}', b""]),
        (pa.array([7, 8]), [b"7", b"8"]),
    ],
)
def test_bodies_are_bytes_texts_or_json(column: Any, wanted: list[bytes]) -> None:
    assert [one.body for one in decoded(body=bodies(column))] == [[body] for body in wanted]


# --- parcels


def letters(*sizes: int) -> pa.BinaryArray:
    """Messages of these sizes, and nothing in them but content."""
    heads = [b"\x00\x53\x75\xb0" + (size - 8).to_bytes(4, "big") for size in sizes]
    return pa.array([head + b"A" * (size - 8) for head, size in zip(heads, sizes, strict=True)])


def cut(sizes: list[int], room: ParcelLimits, **keys: Any) -> list[tuple[int, bool]]:
    found = list(parcels(letters(*sizes), room, keys.get("sessions"), keys.get("keys")))
    for parcel in found:
        assert len(parcel.payload) <= room.size_max
    return [(parcel.count, parcel.is_batch) for parcel in found]


@given(st.lists(st.binary(min_size=1, max_size=3000), min_size=1, max_size=40))
def test_parcels_hold_all_messages_in_order(payloads: list[bytes]) -> None:
    columns = {"message_id": pa.array(["m"] * len(payloads)), "body": pa.array(payloads)}
    messages = messages_of(columns, NOW)
    found: list[bytes] = []
    for parcel in parcels(messages, ParcelLimits(8_000), None, None):
        assert len(parcel.payload) <= 8_000
        found += batch_messages(parcel.payload) if parcel.is_batch else [parcel.payload]
    assert found == messages.to_pylist()


def test_parcels_are_filled_by_bytes() -> None:
    assert cut([1_000] * 10, ParcelLimits(6_000)) == [(4, True), (4, True), (2, True)]
    assert cut([4_500, 10, 10], ParcelLimits(5_000)) == [(1, False), (2, True)]
    assert cut([1_000] * 5, ParcelLimits(6_000, count_max=2)) == [(2, True), (2, True), (1, False)]


def test_what_is_too_large_for_any_parcel_is_named() -> None:
    with pytest.raises(TooLarge, match="9,000 bytes, and the entity takes 5,000") as caught:
        cut([10, 9_000], ParcelLimits(5_000))
    assert caught.value.row == 1


def test_a_parcel_has_one_key_where_that_is_asked_for() -> None:
    keys = ["a", "a", "b", None, None]
    assert cut([10] * 5, ParcelLimits(5_000, is_one_key=True), keys=keys) == [
        (2, True),
        (1, False),
        (2, True),
    ]


def test_a_parcel_knows_its_sessions() -> None:
    found = parcels(letters(*[2_000] * 4), ParcelLimits(6_000), ["a", "b", None, "b"], None)
    assert [sorted(parcel.sessions) for parcel in found] == [["a", "b"], ["b"]]


@given(st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from(["1", "2"]))))
def test_rows_of_the_same_keys_stand_together_in_their_order(rows: list[Any]) -> None:
    keys = [pa.array([row[at] for row in rows], pa.string()) for at in (0, 1)]
    order = in_order_of_keys(keys).to_pylist() if rows else []
    found = [(rows[at], at) for at in order]
    assert sorted(order) == list(range(len(rows)))
    groups = [row for at, (row, _) in enumerate(found) if at == 0 or found[at - 1][0] != row]
    assert len(groups) == len(set(groups))
    for group in groups:
        places = [at for row, at in found if row == group]
        assert places == sorted(places)


def test_entries_lie_one_behind_the_other() -> None:
    entries = entries_of(pa.array([b"ab", b"c"], pa.binary()))
    assert entries.to_pylist() == [
        b"\x00\x53\x75\xb0\x00\x00\x00\x02ab",
        b"\x00\x53\x75\xb0\x00\x00\x00\x01c",
    ]


# --- ids


def test_ids_are_the_rows_own_or_made_of_columns_or_places() -> None:
    own = pa.array(["mine", None])
    chosen = [pa.array([1, 2]), pa.array(["a", None])]
    assert ids_of(own, [], "q/1/0", 5, 2).to_pylist() == ["mine", "q/1/0/6"]
    assert ids_of(None, [], "q/1/0", 0, 2).to_pylist() == ["q/1/0/0", "q/1/0/1"]
    made = ids_of(None, chosen, "q", 0, 2).to_pylist()
    assert made == digests(chosen).to_pylist()
    assert len(set(made)) == 2
    assert ids_of(own, chosen, "q", 0, 2).to_pylist() == ["mine", made[1]]
    assert places("p", 3, 0).to_pylist() == []


def test_digests_are_the_same_everywhere_and_tell_rows_apart() -> None:
    # The figure must never change: a query that is restarted with a newer version depends on it.
    columns = [pa.array(["a"]), pa.array([7]), pa.array([b"\xff"]), pa.array([None], pa.string())]
    assert digests(columns).to_pylist() == ["370dd01a6ad5d933aa9b7ca8cf12ab4e"]
    split = digests([pa.array(["ab", "a"]), pa.array(["c", "bc"])]).to_pylist()
    assert len(set(split)) == 2


# --- pace


@given(
    st.integers(1, 5_000),
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 0.5)), max_size=60),
)
def test_no_second_has_more_than_its_share(per_second: int, sends: list[Any]) -> None:
    pace = Pace(per_second)
    now = 100.0
    left: list[tuple[float, int]] = []
    for count, idle in sends:
        now += idle
        part = min(count, pace.count_max)
        now += pace.wait_s(part, now)
        left.append((now, part))
    for start, _ in left:
        within = sum(part for at, part in left if start <= at < start + 1.0)
        # What leaves at the very beginning was paid for before the second began.
        assert within <= per_second + pace.count_max + 1


def test_what_was_not_sent_is_not_saved_up() -> None:
    pace = Pace(10)
    assert pace.count_max == 1
    assert pace.wait_s(1, 0.0) == 0.0
    assert pace.wait_s(1, 50.0) == 0.0
    assert pace.wait_s(1, 50.0) == pytest.approx(0.1)
