"""The record codec: what is read is what was written, or it is refused."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.entity.message import Message, Traits
from peeklock.entity.records import (
    ABANDONED,
    COMPLETED,
    DEFERRED,
    EXPIRED,
    Activated,
    Changed,
    CheckpointBegun,
    CheckpointEnded,
    CheckpointSlice,
    DeadLettered,
    Deferred,
    DuplicatesDropped,
    Enqueued,
    Kept,
    Record,
    Relocated,
    RelocatedCopies,
    Remembered,
    Removed,
    Reserved,
    Returned,
    Scheduled,
    width,
)
from peeklock.entity.sessions.records import SessionStateSet
from peeklock.entity.stages.records import Staged
from peeklock.entity.topics.records import LaneDropped, Published
from peeklock.entity.transfers.records import TakenOver, Transferring
from peeklock.entity.upkeep.journal_facts import UNKNOWN_COUNT, HandedTo
from peeklock.store.codec.facts import decode_fact
from peeklock.store.codec.records import (
    VERSION,
    chunk_header,
    decode_chunk,
    decode_message,
    decode_messages,
    encode_chunk,
)
from peeklock.store.store import Corrupt
from tests.store.builders import (
    enqueued,
    first_form,
    message_of,
    messages,
    messages_in,
    published,
    records,
    shown,
    told,
)

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
        assert all(message.content == b"" for message in messages_in(record))


@given(positions, record_lists)
def test_tells_its_positions_and_its_instant(position: int, written: list[Record]) -> None:
    header = chunk_header(encode_chunk(position, written))
    assert header.first == position
    assert header.end == position + sum(width(record) for record in written)
    assert header.at == max(record.at for record in written)


@given(positions, record_lists)
def test_finds_each_message_by_its_position(position: int, written: list[Record]) -> None:
    chunk = encode_chunk(position, written)
    for record in written:
        contained = messages_in(record)
        for step, message in enumerate(contained):
            assert shown(decode_message(chunk, position + step)) == shown(message)
        if not contained:
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


@given(positions, record_lists)
def test_reads_what_version_1_wrote(position: int, written: list[Record]) -> None:
    chunk = first_form(encode_chunk(position, written))
    header = chunk_header(chunk)
    for bodies in (False, True):
        first, read = decode_chunk(chunk, bodies)
        assert (first, header.first) == (position, position)
        assert told(read, bodies=bodies) == told(written, bodies=bodies)
    for record in written:
        for step, message in enumerate(messages_in(record)):
            assert shown(decode_message(chunk, position + step)) == shown(message)
        position += width(record)


@given(record_lists, st.booleans(), st.data())
def test_refuses_a_flipped_bit(written: list[Record], is_old: bool, data: st.DataObject) -> None:
    whole = encode_chunk(7, written)
    chunk = flip(first_form(whole) if is_old else whole, data)
    with pytest.raises(Corrupt):
        decode_chunk(chunk, bodies=True)
    try:
        read = decode_chunk(chunk, bodies=False)
    except Corrupt:
        return
    # It lies in a body, which replay does not need: all else is as it was.
    assert not is_old
    assert told(read[1], bodies=False) == told(written, bodies=False)


@given(messages(), messages(), st.sampled_from([Enqueued, Scheduled, Relocated, "lanes", "stage"]))
def test_a_body_can_be_damaged_by_itself(damaged: Message, other: Message, kind: Any) -> None:
    """Replay goes on, the other message is whole, and nobody gets the damaged one."""
    damaged = Message(damaged.envelope, damaged.content + b"x", damaged.traits)
    record: Record
    if kind == "lanes":
        record = Published(5, 1, damaged, [4, 6], [0, 9], 1)
    elif kind == "stage":
        record = Staged(5, 1, [damaged], "s")
    elif kind is Relocated:
        record = Relocated(5, [1], [damaged])
    else:
        record = kind(5, 1, [damaged])
    written: list[Record] = [record, Transferring(5, 1, other, "orders")]
    raw = bytearray(encode_chunk(100, written))
    end = 28 + 2 * 12 + int.from_bytes(raw[28:32], "little")
    raw[end - 1] ^= 1
    chunk = bytes(raw)
    _, read = decode_chunk(chunk, bodies=False)
    assert told(read, bodies=False) == told(written, bodies=False)
    with pytest.raises(Corrupt, match="position 100"):
        decode_message(chunk, 100)
    with pytest.raises(Corrupt, match="position 100"):
        decode_chunk(chunk, bodies=True)
    assert shown(decode_message(chunk, 101)) == shown(other)


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


@given(published(), messages(), st.data())
def test_a_flipped_bit_never_gives_another_addressed_message(
    written: Published, message: Message, data: st.DataObject
) -> None:
    chunk = flip(encode_chunk(100, [written, Transferring(5, 1, message, "orders")]), data)
    for position, expected in ((100, written.message), (101, message)):
        try:
            read = decode_message(chunk, position)
        except Corrupt:
            continue
        assert shown(read) == shown(expected)


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
    few = encode_chunk(1, [HandedTo(5, 0, "", [1, 2], [])])
    many = encode_chunk(1, [HandedTo(5, 0, "", list(range(1, 5000)), [])])
    assert len(few) == len(many)


def published_to(lanes: list[int], expirations: list[int]) -> Published:
    return Published(5, 1, message_of(1, 10), lanes, expirations, 1)


def room_of(record: Published) -> int:
    """How many bytes the copies take, compared with the message alone."""
    alone = len(encode_chunk(1, [Enqueued(5, 1, [record.message])]))
    return len(encode_chunk(1, [record])) - alone


@pytest.mark.parametrize(
    ("lanes", "expirations", "room"),
    [
        ([4], [0], 23),
        ([4, 6, 8], [0, 0, 0], 25),
        (list(range(4, 4004, 2)), [0] * 2000, 35),
        (list(range(4, 4004, 2)), [77] * 2000, 43),
        # All but two of them.
        ([*range(4, 1004, 2), *range(1006, 3004, 2), *range(3006, 4004, 2)], [0] * 1998, 59),
        # Every second pair: a byte for each.
        ([lane for lane in range(4, 4004, 2) if lane % 8 < 4], [0] * 1000, 1022),
        # Lives of two lengths: a byte for each.
        (list(range(4, 4004, 2)), [77, 99] * 1000, 2051),
    ],
)
def test_a_body_for_many_lanes_stays_small(
    lanes: list[int], expirations: list[int], room: int
) -> None:
    record = published_to(lanes, expirations)
    assert room_of(record) == room
    assert told(decode_chunk(encode_chunk(1, [record]), bodies=True)[1]) == told([record])


@pytest.mark.parametrize("different", [1, 2, 255, 256, 257, 400])
def test_expirations_may_differ_as_much_as_they_like(different: int) -> None:
    lanes = list(range(4, 4004, 2))
    record = published_to(lanes, [1 + at % different for at in range(len(lanes))])
    assert told(decode_chunk(encode_chunk(1, [record]), bodies=True)[1]) == told([record])


def test_lanes_may_lie_far_apart_and_in_any_order() -> None:
    for lanes in ([], [65534], [4, 65534], [65534, 4], [4, 300, 1000, 6], [6, 6, 6]):
        record = published_to(lanes, list(range(len(lanes))))
        assert told(decode_chunk(encode_chunk(1, [record]), bodies=True)[1]) == told([record])


def test_the_empty_session_is_not_the_missing_one() -> None:
    written = [Message(b"", b"", Traits(session_id=name)) for name in (None, "", "one")]
    _, read = decode_chunk(encode_chunk(1, [Enqueued(5, 1, written)]), bodies=True)
    assert [message.session_id for message in messages_in(read[0])] == [None, "", "one"]


def test_what_a_message_does_not_have_takes_no_room() -> None:
    plain = len(encode_chunk(1, [Enqueued(5, 1, [Message(b"", b"")])]))
    assert (
        len(encode_chunk(1, [Enqueued(5, 1, [Message(b"", b"", Traits(session_id=""))])]))
        == plain + 4
    )
    assert plain == 28 + 12 + 26


def test_several_messages_are_read_in_the_order_asked() -> None:
    chunk = encode_chunk(10, [enqueued(5, 1, 4)])
    read = decode_messages(chunk, [13, 10, 12])
    assert [shown(each) for each in read] == [shown(message_of(at)) for at in (4, 1, 3)]


@pytest.mark.parametrize("position", [9, 12])
def test_refuses_a_position_that_lies_elsewhere(position: int) -> None:
    with pytest.raises(Corrupt, match="does not reach"):
        decode_message(encode_chunk(10, [enqueued(5, 1, 2)]), position)


def test_refuses_records_of_another_version() -> None:
    chunk = bytes([VERSION + 1]) + encode_chunk(1, [enqueued(5, 1, 1)])[1:]
    with pytest.raises(Corrupt, match="format version 3"):
        decode_chunk(chunk, bodies=True)
    with pytest.raises(Corrupt, match="format version 3"):
        decode_message(chunk, 1)


@pytest.mark.parametrize("kind", [0, 23, 255])
def test_refuses_a_kind_it_does_not_know(kind: int) -> None:
    """A record from a later release has a fitting checksum, and still is not guessed at."""
    chunk = bytearray(encode_chunk(1, [CheckpointBegun(5, 9)]))
    chunk[40] = kind
    record = bytes(chunk[40:])
    chunk[36:40] = zlib.crc32(record, 1).to_bytes(4, "little")
    table = zlib.crc32(bytes(chunk[28:40]), zlib.crc32(bytes(chunk[:24])))
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


TODAY = (
    "020000000200000003000000000000000500000000000000"
    "72fc745b"
    # table: end, crc of the head, crc
    "3a000000b18e0c42873aaae16800000084d8f79384d8f793"
) + EXPECTED[88:]


def test_the_layout_is_the_one_that_rests_on_disks() -> None:
    """If this fails, data that was written before can no longer be read."""
    message = message_of(1, 12)
    message.known().expires_at = 9
    chunk = encode_chunk(3, [Enqueued(5, 1, [message]), Removed(5, 0, 0, [1, 2, 9])])
    assert first_form(chunk).hex() == EXPECTED
    assert chunk.hex() == TODAY


def test_every_kind_is_written_as_ever() -> None:
    """One sum for all kinds, plain and compiled: the bytes may never change."""
    entry = Kept()
    entry.sequence, entry.position, entry.size = 5, 6, 7
    entry.place, entry.enqueued_at, entry.expires_at = DEFERRED, 8, 9
    noted = Kept()
    noted.enqueue_sequence, noted.scheduled_at, noted.time_to_live_ms = 1, 2, 3
    noted.reason, noted.changes = "späte Nachricht", {"name": b"value", "": b""}
    message = Message(b"e", b"c", Traits(message_id="ü", time_to_live_ms=0, scheduled_at=4))
    scattered = [9, 7, 5]
    chunk = encode_chunk(
        1 << 40,
        [
            Scheduled(1, 2, [message, message]),
            Relocated(2, scattered[:1], [message]),
            Activated(3, 4, scattered, [0, 1, 2]),
            Removed(4, 1, EXPIRED, [1, 2, 3, 7, 8, 9, 20]),
            Returned(6, 0, ABANDONED, scattered, [1, 2, 3]),
            Deferred(7, 0, [65535 << 48], [1]),
            DeadLettered(8, 0, [1, 2], [1, 2], "reason", None),
            Changed(9, 3, {"name": b"value"}),
            CheckpointBegun(10, 11),
            CheckpointSlice(11, 1, [entry, noted]),
            CheckpointEnded(12, 13),
        ],
    )
    assert hashlib.sha256(first_form(chunk)).hexdigest()[:32] == "7983451ff0117c73fee3b1fe21af365c"


def test_deliveries_of_the_first_form_are_read_as_todays() -> None:
    """Nothing writes them any more, but they rest in the journals of old directories."""
    numbers = "07000000000000000800000000000000" + "0b00000000000000"
    record = memoryview(bytes.fromhex("05050000000000000002000000000300000000000000" + numbers))
    counts = [UNKNOWN_COUNT] * 3
    assert decode_fact(record, record[0]) == HandedTo(5, 2, "", [7, 8, 11], counts)


LATER = (
    # header, its checksum, table
    "010000000200000003000000000000000500000000000000dcc75b40"
    "5c00000014d9e35081000000d8156d6b"
    # the head of a published message
    "0e3805000000000000000a000000000000000200000003000000"
    # its address: enqueue sequence, three lanes with steps of a byte, two different instants
    "280000000a00000000000000030000000104000000020202000000000000000000090000000000000000"
    "0100"
    # session, partition key, hops, id, envelope, content
    "00000000010000006b020000006964656e76626f6479"
    # a transferred message with its destination
    "0f0005000000000000000d000000000000000000000000000000060000006f726465727362"
)


def test_the_layout_of_addressed_messages_is_the_one_that_rests_on_disks() -> None:
    """If this fails, data that was written before can no longer be read."""
    message = Message(
        b"env", b"body", Traits(message_id="id", session_id="", partition_key="k", hops=2)
    )
    chunk = encode_chunk(
        3,
        [
            Published(5, 10, message, [4, 6, 8], [0, 9, 0], 10),
            Transferring(5, 13, Message(b"", b"b"), "orders"),
        ],
    )
    assert first_form(chunk).hex() == LATER


def test_every_later_kind_is_written_as_ever() -> None:
    """One sum for the kinds that came later, plain and compiled: the bytes may never change."""
    entry = Kept()
    entry.session_id, entry.hops, entry.destination, entry.source = "ü", 3, "there", "here"
    quiet = Kept()
    quiet.session_id, quiet.source = "", "here"
    message = Message(b"e", b"c", Traits(message_id="ü", session_id="s", partition_key="", hops=1))
    chunk = encode_chunk(
        1 << 40,
        [
            Enqueued(1, 1, [message]),
            Published(2, 2, message, list(range(4, 404, 2)), [0] * 200, 2),
            Published(3, 202, message, [4, 70000, 8], [7, 7, 7], 2),
            Published(4, 205, message, [300, 4] * 100, [5, 6] * 100, 205),
            Published(4, 405, message, [4, 6], [5, 6], 405),
            Published(4, 407, message, [], [], 407),
            Transferring(5, 408, message, ""),
            SessionStateSet(6, 4, "s", b"state"),
            SessionStateSet(6, 0, "", None),
            DuplicatesDropped(7, ["a", "", "ü"]),
            Remembered(8, ["a", "b"], [1, 2]),
            TakenOver(9, "orders", [1, 2, 3], [7]),
            Reserved(10, 65535 << 48),
            LaneDropped(11, 4),
            CheckpointSlice(12, 4, [entry, quiet]),
        ],
    )
    assert hashlib.sha256(first_form(chunk)).hexdigest()[:32] == "fbc6a2e59a74edbdf3b2c352e9169ff3"


def test_a_message_from_elsewhere_is_written_as_ever() -> None:
    """If this fails, data that was written before can no longer be read."""
    message = Message(b"e", b"c", Traits(hops=1, enqueue_sequence=258, dead_letter_source="ü"))
    chunk = encode_chunk(3, [Enqueued(5, 1, [message])])
    assert chunk[40:].hex() == (
        # kind, flags (hops, past), instant, sequence, bytes of the id and the envelope
        "0160050000000000000001000000000000000000000001000000"
        # hops, first number, source, envelope, content
        "01000000020100000000000002000000c3bc6563"
    )


def test_a_body_that_copies_share_is_written_as_ever() -> None:
    """If this fails, data that was written before can no longer be read."""
    chunk = encode_chunk(3, [RelocatedCopies(5, [7, 8, 9], Message(b"e", b"c"))])
    assert chunk[40:].hex() == (
        # kind, flags, instant, no sequence, bytes of the id and the envelope
        "1600050000000000000000000000000000000000000001000000"
        # bytes of the address: three numbers in one run, from 7 on
        "1000000003000000010000000700000000000000"
        # envelope, content
        "6563"
    )
