"""How stages rest: runs that name their stage once, and bytes that never change."""

from __future__ import annotations

import hashlib

import pytest

from peeklock.entity.message import Message
from peeklock.entity.records import Enqueued, Kept, Record, Scheduled
from peeklock.entity.stages.records import Staged, StageKept, StagesDropped, StagesPublished
from peeklock.store.codec.kinds import STAGED
from peeklock.store.codec.layouts import decode_by_layout
from peeklock.store.codec.records import decode_chunk, decode_messages, encode_chunk
from peeklock.store.store import Corrupt
from tests.store.builders import first_form, message_of, shown, told


def test_runs_of_different_stages_stay_apart() -> None:
    """R-D1: even where their numbers go on, and between messages of other kinds."""
    written: list[Record] = [
        Staged(5, 1, [message_of(1), message_of(2)], "a"),
        Staged(5, 3, [message_of(3)], "a"),
        Staged(5, 4, [message_of(4)], "b"),
        Enqueued(5, 5, [message_of(5)]),
        Scheduled(5, 6, [message_of(6)]),
        Staged(5, 7, [message_of(7), message_of(8)], "b"),
    ]
    chunk = encode_chunk(9, written)
    _, read = decode_chunk(chunk, bodies=True)
    assert told(read) == told(written)
    assert [len(each.messages) for each in read if isinstance(each, Staged)] == [2, 1, 1, 2]
    found = decode_messages(chunk, [9, 10, 11, 15, 16])
    assert [shown(each) for each in found] == [shown(message_of(at)) for at in (1, 2, 3, 7, 8)]


def test_a_stage_is_named_once_in_a_run() -> None:
    name = "a very long name of a stage " * 5
    alone = len(encode_chunk(0, [Staged(5, 1, [message_of(1)], name)]))
    both = len(encode_chunk(0, [Staged(5, 1, [message_of(1), message_of(2)], name)]))
    assert both - alone < 200


def test_a_run_without_a_name_is_refused() -> None:
    chunk = encode_chunk(0, [Staged(5, 1, [message_of(1)], "")])
    with pytest.raises(Corrupt):
        decode_chunk(chunk, bodies=True)


def test_a_message_has_no_layout() -> None:
    with pytest.raises(ValueError, match="kind 33 is not known"):
        decode_by_layout(memoryview(bytes(40)), STAGED)


def test_a_hundred_thousand_messages_are_published_by_a_short_record() -> None:
    """R-D1: what rests already is not written again."""
    count = 100_000
    record = StagesPublished(
        5, "w", 0, [], True, count + 1, list(range(1, count + 1)), [0] * count, []
    )
    assert len(encode_chunk(0, [record])) < 200


def test_a_staged_message_is_written_as_ever() -> None:
    """If this fails, data that was written before can no longer be read."""
    chunk = encode_chunk(3, [Staged(5, 7, [Message(b"e", b"c"), Message(b"", b"d")], "ü")])
    assert chunk[52:].hex() == (
        # kind, flags, instant, sequence, bytes of the id and the envelope; the stage; the message
        "2100050000000000000007000000000000000000000001000000"
        "02000000c3bc"
        "6563"
        # the next one, of the same stage
        "2100050000000000000008000000000000000000000000000000"
        "00000000"
        "64"
    )


def test_every_fact_about_stages_is_written_as_ever() -> None:
    """One sum, plain and compiled: the bytes may never change."""
    entry = Kept()
    entry.sequence, entry.time_to_live_ms, entry.session_id = 7, 60_000, "ü"
    chunk = encode_chunk(
        1 << 40,
        [
            StagesPublished(1, "ü", 0, ["a", "b"], False, 9, [1, 2, 4], [0, 0, 7], [3]),
            StagesPublished(2, "w", (1 << 63) - 1, [], True, 0, [], [], []),
            StagesDropped(3, 2, [1, 2, 3]),
            StageKept(4, "s", 3, [entry], ["id"]),
            StageKept(4, "s", 3, [entry], []),
        ],
    )
    assert hashlib.sha256(first_form(chunk)).hexdigest()[:32] == "e72507882a5d1e16adcb1c855efe0c2d"
