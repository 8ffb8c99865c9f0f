"""The journal's chunks as rows: every kind of record, fewer columns, parts of chunks (R-D4, R-D5).

Chunks are written by the store's own codec and by a partition; nothing here needs Spark.
"""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from peeklock.entity import records as kept
from peeklock.entity.claims import records as claims
from peeklock.entity.commands import COMPLETE, DEAD_LETTER
from peeklock.entity.message import Message, Traits
from peeklock.entity.records import Kept, Record, width
from peeklock.entity.sessions.records import SessionStateSet
from peeklock.entity.stages import records as stages
from peeklock.entity.topics import records as copies
from peeklock.entity.topics.records import LaneDropped, Published
from peeklock.entity.transfers.records import TakenOver, Transferring
from peeklock.entity.upkeep import journal_facts
from peeklock.spark.journal.decoder import SCHEMA, FactDecoder, decode
from peeklock.spark.journal.fact_columns import NAMES, message_id_of
from peeklock.spark.schema import JOURNAL_COLUMNS, Columns, struct_of
from peeklock.store.codec.records import decode_chunk, encode_chunk
from tests.entity.partition_harness import QueueHarness
from tests.store.builders import records as any_record

AT = 1_700_000_000_123
INSTANT = datetime.fromtimestamp(AT / 1000, UTC)
LANES = {
    0: "",
    1: "$DeadLetterQueue",
    2: "$Transfer",
    3: "$Transfer/$DeadLetterQueue",
    4: "Subscriptions/s",
    5: "Subscriptions/s/$DeadLetterQueue",
}
OPS = {
    *("send", "schedule", "activate", "deliver", "complete", "receive_delete", "expire", "cancel"),
    *("purge", "abandon", "lock_lost", "defer", "deadletter", "duplicate", "renew", "settle_fail"),
    *("claim", "unclaim", "stage", "publish", "transfer", "take_over", "session_state", "change"),
    "requeue",
}


def rows(*records: Record, first: int = 7, **options: Any) -> list[dict[str, Any]]:
    """What the records of one chunk tell, without what is null."""
    chunk = encode_chunk(first, list(records))
    batch = decode(chunk, entity="q", partition_id=3, lanes=LANES, **options)
    assert batch.schema == options.get("schema", SCHEMA)
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in batch.to_pylist()
    ]


def message(content: bytes = b"body", **facts: Any) -> Message:
    return Message(b"", content, Traits(**facts))


def fact(op: str, **more: Any) -> dict[str, Any]:
    """A row as it is expected, in the main lane unless it says something else."""
    always = {"at": INSTANT, "entity": "q", "sub_entity": "", "partition_id": 3, "position": 7}
    return {**always, "op": op, **more}


def test_messages_that_come_in_tell_who_they_are() -> None:
    run = [message(message_id="a", session_id="s"), message(b"longer", message_id="b")]
    assert rows(kept.Enqueued(AT, 11, run)) == [
        fact("send", sequence_number=11, message_id="a", session_id="s", bytes=4),
        fact("send", position=8, sequence_number=12, message_id="b", bytes=6),
    ]
    (one,) = rows(kept.Scheduled(AT, 11, run[:1]), include_body=True)
    told = {"sequence_number": 11, "message_id": "a", "session_id": "s", "bytes": 4}
    assert one == fact("schedule", body=b"body", **told)
    (one,) = rows(stages.Staged(AT, 11, run[1:], "q/1/0"))
    assert one == fact("stage", sequence_number=11, message_id="b", bytes=6, reason="q/1/0")
    (one,) = rows(Transferring(AT, 11, run[1], "other"))
    told = {"sequence_number": 11, "message_id": "b", "bytes": 6, "sub_entity": "$Transfer"}
    assert one == fact("transfer", destination="other", **told)


def test_a_message_that_was_never_sent_tells_again_who_it_is() -> None:
    entry = Kept()
    entry.sequence, entry.delivery_count = 11, 2
    requeued = kept.Requeued(AT, 4, entry, message(message_id="a", session_id="s"))
    told = {"sequence_number": 11, "message_id": "a", "session_id": "s", "bytes": 4}
    where = {"sub_entity": "Subscriptions/s", "delivery_count": 2}
    assert rows(requeued) == [fact("requeue", **told, **where)]


def test_every_copy_of_a_published_message_is_a_row() -> None:
    published = Published(AT, 11, message(message_id="a"), [4, 8], [0, 0], 11)
    assert rows(published) == [
        fact("send", sub_entity="Subscriptions/s", sequence_number=11, message_id="a", bytes=4),
        # A subscription that is gone has no name any more.
        {
            k: v
            for k, v in fact("send", sequence_number=12, message_id="a", bytes=4).items()
            if k != "sub_entity"
        },
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (kept.Removed(AT, 0, kept.COMPLETED, [11]), {"op": "complete"}),
        (kept.Removed(AT, 0, kept.DELETED, [11]), {"op": "receive_delete"}),
        (kept.Removed(AT, 0, kept.EXPIRED, [11]), {"op": "expire"}),
        (kept.Removed(AT, 0, kept.CANCELLED, [11]), {"op": "cancel"}),
        (kept.Removed(AT, 0, kept.PURGED, [11]), {"op": "purge"}),
        (kept.Removed(AT, 0, kept.DUE, [11]), {"op": "activate"}),
        (kept.Returned(AT, 0, kept.ABANDONED, [11], [2]), {"op": "abandon", "delivery_count": 2}),
        (
            kept.Returned(AT, 0, kept.LOCK_EXPIRED, [11], [2]),
            {"op": "lock_lost", "delivery_count": 2},
        ),
        (kept.Deferred(AT, 0, [11], [1]), {"op": "defer", "delivery_count": 1}),
        (
            kept.DeadLettered(AT, 0, [11], [3], "why", "because"),
            {
                "op": "deadletter",
                "delivery_count": 3,
                "reason": "why",
                "description": "because",
                "destination": "$DeadLetterQueue",
            },
        ),
        (kept.Activated(AT, 11, [5], [0]), {"op": "activate", "description": "5"}),
        (journal_facts.HandedTo(AT, 0, "", [11], [journal_facts.UNKNOWN_COUNT]), {"op": "deliver"}),
        (
            journal_facts.HandedTo(AT, 0, "app/link", [11], []),
            {"op": "deliver", "delivery_count": 0, "consumer": "app/link"},
        ),
        (journal_facts.HandedTo(AT, 0, "", [11], [4]), {"op": "deliver", "delivery_count": 4}),
        (journal_facts.LocksRenewed(AT, 0, "app", [11]), {"op": "renew", "consumer": "app"}),
        (
            journal_facts.LocksReleased(AT, 0, journal_facts.RELEASED, "app", [11]),
            {"op": "abandon", "consumer": "app", "reason": "Released"},
        ),
        (journal_facts.LocksReleased(AT, 0, journal_facts.RAN_OUT, "", [11]), {"op": "lock_lost"}),
        (
            journal_facts.SettlementsFailed(AT, 0, DEAD_LETTER, "app", [11]),
            {"op": "settle_fail", "consumer": "app", "reason": "deadletter"},
        ),
        (
            journal_facts.SettlementsFailed(AT, 0, journal_facts.RENEWAL, "app", [11]),
            {"op": "settle_fail", "consumer": "app", "reason": "renew"},
        ),
        (claims.Claimed(AT, 0, "me", [11]), {"op": "claim", "consumer": "me"}),
        (
            claims.Unclaimed(AT, 0, claims.UNCLAIMED_TIMED_OUT, "me", [11]),
            {"op": "unclaim", "consumer": "me", "reason": "OwnerTimedOut"},
        ),
        (
            stages.StagesPublished(AT, "w", 4, ["s"], True, 11, [5], [0], []),
            {"op": "publish", "description": "5", "reason": "w/4"},
        ),
        (
            stages.StagesDropped(AT, stages.STAGE_STALE, [11]),
            {"op": "purge", "reason": "StageExpired"},
        ),
        (
            TakenOver(AT, "ns|other|0", [11], [9]),
            {"op": "take_over", "description": "ns|other|0"},
        ),
    ],
    ids=lambda each: each["op"] if isinstance(each, dict) else "",
)
def test_a_fact_about_a_message_has_its_number(record: Record, expected: dict[str, Any]) -> None:
    assert rows(record) == [fact(sequence_number=11, **expected)]
    assert expected["op"] in OPS


def test_copies_that_were_dead_letters_from_the_beginning_have_a_row_each() -> None:
    buried = copies.Buried([0, 2, 3], [4, 4, 4], [1, 0, 1], ["a", "b"], ["why a", "why b"])
    dead: dict[str, Any] = {
        "op": "deadletter",
        "sub_entity": "Subscriptions/s",
        "delivery_count": 0,
    }
    dead["destination"] = "Subscriptions/s/$DeadLetterQueue"
    assert rows(copies.CopiesBuried(AT, 10, buried)) == [
        fact(sequence_number=12, reason="a", description="why a", **dead),
        fact(sequence_number=10, reason="b", description="why b", **dead),
        fact(sequence_number=13, reason="b", description="why b", **dead),
    ]


def test_facts_without_a_message_have_no_number() -> None:
    assert rows(kept.DuplicatesDropped(AT, ["a", "b"])) == [
        fact("duplicate", message_id="a"),
        fact("duplicate", message_id="b"),
    ]
    (state,) = rows(SessionStateSet(AT, 4, "s", b"state"))
    assert state == fact("session_state", sub_entity="Subscriptions/s", session_id="s", bytes=5)
    assert "bytes" not in rows(SessionStateSet(AT, 4, "s", None))[0]
    (lost,) = rows(journal_facts.SessionLockNoted(AT, 0, journal_facts.SESSION_LOST, "app", "s"))
    assert lost == fact("lock_lost", session_id="s", consumer="app", reason="SessionLockLost")
    (dropped,) = rows(LaneDropped(AT, 4))
    assert dropped == fact("purge", sub_entity="Subscriptions/s", reason="SubscriptionDeleted")
    (stage,) = rows(stages.StageDropped(AT, stages.STAGE_GIVEN_UP, "s", 12))
    assert stage == fact("purge", reason="StageDropped", description="s")
    (changed,) = rows(kept.Changed(AT, 11, {"x": b"1", "y": b"2"}))
    assert (changed["op"], changed["sequence_number"]) == ("change", 11)
    assert changed["description"] == "x,y"
    assert "sub_entity" not in changed


def test_what_is_no_fact_gives_no_rows_and_takes_its_positions() -> None:
    found = rows(
        kept.Relocated(AT, [1, 2], [message(), message()]),
        kept.RelocatedCopies(AT, [3, 4], message()),
        kept.CheckpointBegun(AT, 9),
        kept.CheckpointSlice(AT, 0, [Kept(), Kept()]),
        kept.CheckpointEnded(AT, 7),
        kept.Remembered(AT, ["a"], [1]),
        kept.Reserved(AT, 9),
        claims.OwnerHeard(AT, 0, "me", 1, 1000),
        stages.StageKept(AT, "s", AT, [Kept()], []),
        stages.StagesPublished(AT, "w", 4, [], True, 0, [], [], []),
        kept.Removed(AT, 0, kept.COMPLETED, [11]),
    )
    assert found == [fact("complete", position=7 + 11, sequence_number=11)]


@given(any_record())
@settings(max_examples=150, deadline=None)
def test_every_record_that_can_rest_can_be_read(record: Record) -> None:
    if (
        isinstance(record, (journal_facts.LocksReleased, journal_facts.SessionLockNoted))
        and record.why > 2
    ):
        return
    chunk = encode_chunk(7, [record])
    lanes = dict.fromkeys(range(65536), "lane")
    if _has_huge_number(record):
        return
    batch = decode(chunk, entity="q", partition_id=0, lanes=lanes)
    assert set(batch.column("op").to_pylist()) <= OPS


def _has_huge_number(record: Record) -> bool:
    """Numbers of partitions that no entity has are too large for Spark's integers."""
    named = [getattr(record, name, 0) for name in ("first_sequence", "sequence")]
    # What was requeued has its number in its entry.
    named.append(getattr(getattr(record, "entry", None), "sequence", 0))
    listed = [*getattr(record, "sequences", []), *getattr(record, "numbers", [])]
    counted: list[int] = getattr(record, "counts", [])
    largest: int = max([0, *named, *listed])
    return largest >= (1 << 63) - 1000 or max([0, *counted]) >= 1 << 31


# Columns.


@pytest.mark.parametrize("names", [["op"], ["sequence_number", "at"], ["entity", "bytes"], []])
def test_only_wanted_columns_are_made(names: list[str]) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in names])
    chunk = encode_chunk(1, [kept.Enqueued(AT, 11, [message(), message()])])
    batch = decode(chunk, entity="q", partition_id=0, lanes=LANES, schema=schema)
    assert batch.num_rows == 2
    assert batch.schema.names == names


def test_the_columns_are_those_of_the_source() -> None:
    columns = Columns(struct_of(JOURNAL_COLUMNS), JOURNAL_COLUMNS)
    assert columns.arrow == SCHEMA


def test_bodies_come_only_when_they_are_asked_for() -> None:
    (without,) = rows(kept.Enqueued(AT, 11, [message()]))
    assert "body" not in without
    (with_it,) = rows(kept.Enqueued(AT, 11, [message()]), include_body=True)
    assert with_it["body"] == b"body"


def test_batches_begin_anew_after_each_take() -> None:
    decoder = FactDecoder("q", 0, LANES)
    decoder.add(encode_chunk(1, [kept.Removed(AT, 0, kept.COMPLETED, [1, 2])]))
    assert decoder.count == 2
    assert decoder.take().num_rows == 2
    assert decoder.count == decoder.take().num_rows == 0
    decoder.add(encode_chunk(2, [kept.Removed(AT, 0, kept.COMPLETED, [3])]))
    assert decoder.take().column("sequence_number").to_pylist() == [3]


# Parts of chunks.


@pytest.mark.parametrize("after", range(10, 18))
@pytest.mark.parametrize("until", range(10, 19))
def test_any_part_of_a_chunk_can_be_read(after: int, until: int) -> None:
    """An offset may lie within a chunk: what was told before it is not told again."""
    records: list[Record] = [
        kept.Enqueued(AT, 1, [message() for _ in range(4)]),
        journal_facts.HandedTo(AT, 0, "", [1, 2], []),
        kept.Relocated(AT, [1, 2], [message(), message()]),
        kept.Removed(AT, 0, kept.COMPLETED, [1, 2]),
    ]
    assert sum(width(record) for record in records) == 8
    whole = rows(*records, first=10)
    part = rows(*records, first=10, after=after, until=until)
    assert part == [row for row in whole if after <= row["position"] < until]


# Ids that are in nothing but the message.


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x00\x53\x73\xc0\x06\x01\xa1\x03abc\x00\x53\x75\xa0\x00", "abc"),
        (b"\x00\x53\x73\xd0\x00\x00\x00\x0c\x00\x00\x00\x01\xb1\x00\x00\x00\x03abc", "abc"),
        (b"\x00\x53\x73\xc0\x03\x01\x53\x07", "7"),
        (b"\x00\x53\x73\xc0\x05\x01\xa0\x02\x01\xff", "01ff"),
        (
            b"\x00\x53\x73\xc0\x12\x01\x98" + bytes(range(16)),
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
        ),
        (b"\x00\x53\x73\xc0\x02\x01\x40\x00\x53\x75\xa0\x00", None),
        (b"\x00\x53\x73\x45\x00\x53\x75\xa0\x00", None),
        (b"\x00\x53\x75\xa0\x03abc", None),
        (b"", None),
        (b"\x00\x53\x73", None),
        (b"\x00\x53\x73\xc0\x01\x01\x80", None),
    ],
)
def test_an_id_is_found_in_the_message(content: bytes, expected: str | None) -> None:
    assert message_id_of(content) == expected
    (row,) = rows(kept.Enqueued(AT, 11, [message(content)]))
    assert row.get("message_id") == expected


# What a partition writes.


def test_the_life_of_a_message_is_told_in_order() -> None:
    """R-D5: sent, delivered, settled."""
    queue = QueueHarness()
    queue.send("a", "b", id="m")
    one, two = queue.receive(2)
    queue.settle(COMPLETE, one)
    queue.settle(DEAD_LETTER, two, note=("bad", "very"))
    told: list[tuple[str, int]] = []
    for first, records in queue.journal.replay(0):
        batch = decode(encode_chunk(first, records), entity="q", partition_id=0, lanes=LANES)
        told += [(row["op"], row["sequence_number"]) for row in batch.to_pylist()]
    assert told == [
        *(("send", 1), ("send", 2)),
        *(("deliver", 1), ("deliver", 2)),
        *(("complete", 1), ("deadletter", 2)),
    ]


def test_a_damaged_chunk_is_not_guessed_at() -> None:
    chunk = bytearray(encode_chunk(1, [kept.Removed(AT, 0, kept.COMPLETED, [1])]))
    chunk[-1] ^= 1
    with pytest.raises(Exception, match="does not fit its checksum"):
        decode_chunk(bytes(chunk), bodies=False)
    with pytest.raises(Exception, match="does not fit its checksum"):
        decode(bytes(chunk), entity="q", partition_id=0, lanes=LANES)


def test_columns_are_those_of_the_schema() -> None:
    assert tuple(SCHEMA.names) == NAMES
