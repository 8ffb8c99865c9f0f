"""The records: which positions they take, and that each one contains what it was given."""

from typing import get_args

import pytest

from peeklock.entity import records
from peeklock.entity.claims import records as claim_records
from peeklock.entity.deliveries import Details
from peeklock.entity.message import NEVER, NO_DURATION, Message
from peeklock.entity.records import Kept, Record, width
from peeklock.entity.sessions.records import SessionStateSet
from peeklock.entity.stages import records as stage_records
from peeklock.entity.topics import records as copy_records
from peeklock.entity.topics.records import LaneDropped, Published
from peeklock.entity.transfers import records as way_records
from peeklock.entity.transfers.records import TakenOver, Transferring
from peeklock.entity.upkeep import journal_facts


def messages(count: int) -> list[Message]:
    return [Message(b"e", b"content") for _ in range(count)]


def with_messages(count: int) -> list[Record]:
    """One record of each kind that contains a run of messages."""
    return [
        records.Enqueued(1, 1, messages(count)),
        records.Scheduled(1, 1, messages(count)),
        records.Relocated(1, list(range(count)), messages(count)),
        stage_records.Staged(1, 1, messages(count), "stage"),
    ]


def others() -> list[Record]:
    """One record of each other kind."""
    return [
        records.Activated(1, 1, [1, 2], [0, 0]),
        records.Removed(1, 0, records.COMPLETED, [1, 2, 3]),
        records.Returned(1, 0, records.ABANDONED, [1, 2], [1, 1]),
        records.Deferred(1, 0, [1, 2], [1, 1]),
        records.DeadLettered(1, 0, [1, 2], [1, 1], None, None),
        records.Changed(1, 1, {"a": b"1", "b": b"2"}),
        journal_facts.HandedTo(1, 0, "who", [1, 2], [0, 3]),
        journal_facts.LocksRenewed(1, 0, "who", [1, 2]),
        journal_facts.LocksReleased(1, 0, 0, "who", [1, 2]),
        journal_facts.SettlementsFailed(1, 0, 0, "who", [1, 2]),
        journal_facts.SessionLockNoted(1, 0, 0, "who", "s"),
        claim_records.Claimed(1, 0, "owner", [1, 2]),
        claim_records.Unclaimed(1, 0, claim_records.UNCLAIMED_RELEASED, "owner", [1, 2]),
        claim_records.OwnerHeard(1, 0, "owner", 1, 1),
        stage_records.StagesPublished(1, "writer", 1, ["stage"], True, 3, [1, 2], [0, 0], []),
        stage_records.StagesDropped(1, stage_records.STAGE_STALE, [1, 2]),
        stage_records.StageDropped(1, stage_records.STAGE_STALE, "stage", 3),
        stage_records.StageKept(1, "stage", 1, [Kept(), Kept()], []),
        records.Requeued(1, 0, Kept(), messages(1)[0]),
        records.RelocatedCopies(1, [1, 2, 3], messages(1)[0]),
        Published(1, 1, messages(1)[0], [4, 6, 8], [0, 0, 0], 1),
        copy_records.CopiesBuried(1, 1, copy_records.Buried([0], [4], [0], ["r"], ["d"])),
        Transferring(1, 1, messages(1)[0], "elsewhere"),
        SessionStateSet(1, 0, "s", b"state"),
        records.DuplicatesDropped(1, ["a", "b"]),
        records.Remembered(1, ["a", "b"], [1, 1]),
        TakenOver(1, "elsewhere", [1, 2], [3]),
        way_records.DestinationsNoted(1, 0, ["elsewhere"]),
        records.Reserved(1, 3),
        records.Lost(1, 3),
        LaneDropped(1, 4),
        records.CheckpointBegun(1, 3),
        records.CheckpointSlice(1, 0, [Kept(), Kept()]),
        records.CheckpointEnded(1, 7),
    ]


def test_no_kind_of_record_is_forgotten_here() -> None:
    kinds = [type(record) for record in [*with_messages(1), *others()]]
    assert sorted(kinds, key=str) == sorted(get_args(Record), key=str)


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_a_record_with_messages_takes_one_position_for_each(count: int) -> None:
    assert {width(record) for record in with_messages(count)} == {count}


def test_every_other_record_takes_one_position() -> None:
    assert {width(record) for record in others()} == {1}


def test_a_message_counts_envelope_and_content_and_starts_without_limits() -> None:
    message = Message(b"head", b"content")
    assert message.size == 11
    assert (message.expires_at, message.scheduled_at) == (NEVER, NEVER)
    assert message.time_to_live_ms == NO_DURATION
    assert message.message_id == ""


def test_a_kept_entry_starts_with_the_facts_that_most_messages_have() -> None:
    kept = Kept()
    assert (kept.place, kept.enqueue_sequence, kept.scheduled_at) == (records.READY, 0, 0)
    assert (kept.time_to_live_ms, kept.reason, kept.description, kept.changes) == (
        NO_DURATION,
        None,
        None,
        None,
    )


def test_copied_details_are_equal_and_stay_when_the_original_changes() -> None:
    details = Details()
    details.enqueue_sequence, details.scheduled_at, details.time_to_live_ms = 4, 5, 6
    details.reason, details.description, details.changes = "r", "d", {"a": b"1"}
    copy = details.copy()
    details.reason, details.changes = "later", {"a": b"2"}
    assert (copy.enqueue_sequence, copy.scheduled_at, copy.time_to_live_ms) == (4, 5, 6)
    assert (copy.reason, copy.description, copy.changes) == ("r", "d", {"a": b"1"})
