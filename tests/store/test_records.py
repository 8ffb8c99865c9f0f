"""The record codec: what is read is what was written, or it is refused."""

from __future__ import annotations

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.entity.message import Message
from peeklock.entity.records import (
    ABANDONED,
    COMPLETED,
    DEFERRED,
    EXPIRED,
    Activated,
    Carried,
    Changed,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    DeadLettered,
    Deferred,
    Enqueued,
    HandedOut,
    Kept,
    Record,
    Removed,
    Returned,
    Scheduled,
    width,
)
from peeklock.store.records import (
    VERSION,
    chunk_header,
    decode_chunk,
    decode_message,
    decode_messages,
    encode_chunk,
)
from peeklock.store.store import Corrupt
from tests.store.builders import enqueued, message_of, records, shown, told

record_lists = st.lists(records(), min_size=1, max_size=6)
positions = st.integers(0, 1 << 60)


@given(positions, record_lists)
def test_reads_what_was_written(position: int, written: list[Record]) -> None:
    first, read = decode_chunk(encode_chunk(position, written), bodies=True)
    assert first == position
    assert told(read) == told(written)


@given(positions, record_lists)
def test_reads_all_but_the_bodies(position: int, written: list[Record]) -> None:
    chunk = encode_chunk(position, written)
    first, read = decode_chunk(memoryview(chunk), bodies=False)
    assert first == position
    assert told(read, bodies=False) == told(written, bodies=False)
    for record in read:
        if isinstance(record, (Enqueued, Scheduled, Carried)):
            assert all(message.content == b"" for message in record.messages)


@given(positions, record_lists)
def test_tells_its_positions_and_its_instant(position: int, written: list[Record]) -> None:
    header = chunk_header(encode_chunk(position, written))
    assert header.first == position
    assert header.end == position + sum(width(record) for record in written)
    assert header.at == written[-1].at


@given(positions, record_lists)
def test_finds_each_message_by_its_position(position: int, written: list[Record]) -> None:
    chunk = encode_chunk(position, written)
    for record in written:
        if isinstance(record, (Enqueued, Scheduled, Carried)):
            for step, message in enumerate(record.messages):
                assert shown(decode_message(chunk, position + step)) == shown(message)
        else:
            with pytest.raises(Corrupt):
                decode_message(chunk, position)
        position += width(record)


@given(record_lists, st.data())
def test_refuses_a_chunk_that_is_cut_off(written: list[Record], data: st.DataObject) -> None:
    chunk = encode_chunk(7, written)
    cut = chunk[: data.draw(st.integers(0, len(chunk) - 1))]
    with pytest.raises(Corrupt):
        decode_chunk(cut, bodies=data.draw(st.booleans()))
    with pytest.raises(Corrupt):
        decode_chunk(chunk + b"\0", bodies=False)


@given(record_lists, st.data())
def test_refuses_a_flipped_bit(written: list[Record], data: st.DataObject) -> None:
    chunk = flip(encode_chunk(7, written), data)
    with pytest.raises(Corrupt):
        decode_chunk(chunk, bodies=data.draw(st.booleans()))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=8), st.data())
def test_a_flipped_bit_never_gives_another_message(
    contents: list[bytes], data: st.DataObject
) -> None:
    written = [Message(b"e", content) for content in contents]
    chunk = flip(encode_chunk(100, [Enqueued(5, 1, written)]), data)
    for step, message in enumerate(written):
        try:
            read = decode_message(chunk, 100 + step)
        except Corrupt:
            continue
        assert shown(read) == shown(message)


@given(st.binary(max_size=200))
def test_refuses_anything_else(noise: bytes) -> None:
    for bodies in (False, True):
        with pytest.raises(Corrupt):
            decode_chunk(noise, bodies)
    with pytest.raises(Corrupt):
        decode_message(noise, 0)


def flip(chunk: bytes, data: st.DataObject) -> bytes:
    bit = data.draw(st.integers(0, 8 * len(chunk) - 1))
    damaged = bytearray(chunk)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_runs_come_back_as_runs() -> None:
    chunk = encode_chunk(1, [enqueued(5, 1, 3), enqueued(5, 4, 2), enqueued(6, 6, 1)])
    _, read = decode_chunk(chunk, bodies=True)
    assert [(r.first_sequence, len(r.messages)) for r in read if isinstance(r, Enqueued)] == [
        (1, 5),
        (6, 1),
    ]


def test_a_run_ends_where_another_record_lies() -> None:
    removed = Removed(5, 0, COMPLETED, [1, 2, 3])
    chunk = encode_chunk(1, [enqueued(5, 1, 3), removed, enqueued(5, 4, 1)])
    _, read = decode_chunk(chunk, bodies=True)
    assert [type(record) for record in read] == [Enqueued, Removed, Enqueued]


def test_messages_that_skip_numbers_are_no_run() -> None:
    chunk = encode_chunk(1, [enqueued(5, 1, 1), enqueued(5, 3, 1)])
    _, read = decode_chunk(chunk, bodies=True)
    assert [record.first_sequence for record in read if isinstance(record, Enqueued)] == [1, 3]


def test_consecutive_numbers_take_the_room_of_one() -> None:
    few = encode_chunk(1, [HandedOut(5, 0, [1, 2])])
    many = encode_chunk(1, [HandedOut(5, 0, list(range(1, 5000)))])
    assert len(few) == len(many)


def test_several_messages_are_read_in_the_order_asked() -> None:
    chunk = encode_chunk(10, [enqueued(5, 1, 4)])
    read = decode_messages(chunk, [13, 10, 12])
    assert [message.message_id for message in read] == ["id-4", "id-1", "id-3"]


@pytest.mark.parametrize("position", [9, 12])
def test_refuses_a_position_that_lies_elsewhere(position: int) -> None:
    with pytest.raises(Corrupt, match="does not reach"):
        decode_message(encode_chunk(10, [enqueued(5, 1, 2)]), position)


def test_refuses_records_of_another_version() -> None:
    chunk = bytes([VERSION + 1]) + encode_chunk(1, [enqueued(5, 1, 1)])[1:]
    with pytest.raises(Corrupt, match="format version 2"):
        decode_chunk(chunk, bodies=True)
    with pytest.raises(Corrupt, match="format version 2"):
        decode_message(chunk, 1)


@pytest.mark.parametrize("kind", [0, 14, 255])
def test_refuses_a_kind_it_does_not_know(kind: int) -> None:
    """A record from a later release has a fitting checksum, and still is not guessed at."""
    chunk = bytearray(encode_chunk(1, [CheckpointBegun(5, 9)]))
    chunk[36] = kind
    record = bytes(chunk[36:])
    chunk[32:36] = zlib.crc32(record, 1).to_bytes(4, "little")
    table = zlib.crc32(bytes(chunk[28:36]), zlib.crc32(bytes(chunk[:24])))
    chunk[24:28] = table.to_bytes(4, "little")
    with pytest.raises(Corrupt, match="makes no sense"):
        decode_chunk(bytes(chunk), bodies=True)


def test_a_chunk_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_chunk(1, [])


EXPECTED = (
    # header: version, positions, first position, instant
    "010000000200000003000000000000000500000000000000"
    # its checksum
    "bcdd560e"
    # table
    "3a000000873aaae16800000084d8f793"
    # the message
    "0104050000000000000001000000000000000400000008000000090000000000000069642d31656e"
    "76656c6f7065636f6e74656e742031202e2e"
    # the removal
    "04050000000000000000000000000300000000000000010000000000000002000000000000000900"
    "000000000000"
)


def test_the_layout_is_the_one_that_rests_on_disks() -> None:
    """If this fails, data that was written before can no longer be read."""
    message = message_of(1, 12)
    message.expires_at = 9
    chunk = encode_chunk(3, [Enqueued(5, 1, [message]), Removed(5, 0, 0, [1, 2, 9])])
    assert chunk.hex() == EXPECTED


def test_every_kind_is_written_as_ever() -> None:
    """One sum for all kinds, plain and compiled: the bytes may never change."""
    entry = Kept()
    entry.sequence, entry.position, entry.size = 5, 6, 7
    entry.place, entry.enqueued_at, entry.expires_at = DEFERRED, 8, 9
    noted = Kept()
    noted.enqueue_sequence, noted.scheduled_at, noted.time_to_live_ms = 1, 2, 3
    noted.reason, noted.changes = "späte Nachricht", {"name": b"value", "": b""}
    message = Message(b"e", b"c", message_id="ü", time_to_live_ms=0, scheduled_at=4)
    scattered = [9, 7, 5]
    chunk = encode_chunk(
        1 << 40,
        [
            Scheduled(1, 2, [message, message]),
            Carried(2, scattered[:1], [message]),
            Activated(3, 4, scattered, [0, 1, 2]),
            Removed(4, 1, EXPIRED, [1, 2, 3, 7, 8, 9, 20]),
            HandedOut(5, 0, []),
            Returned(6, 0, ABANDONED, scattered, [1, 2, 3]),
            Deferred(7, 0, [65535 << 48], [1]),
            DeadLettered(8, 0, [1, 2], [1, 2], "reason", None),
            Changed(9, 3, {"name": b"value"}),
            CheckpointBegun(10, 11),
            CheckpointSlice(11, 1, [entry, noted]),
            CheckpointEnded(12, 13),
        ],
    )
    assert hashlib.sha256(chunk).hexdigest()[:32] == "f65e8e16edd17c9e33fcd51cda360c2c"
