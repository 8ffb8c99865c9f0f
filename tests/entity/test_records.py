"""The records: which positions they take, and that each one carries what it was given."""

import pytest

from peeklock.entity import notes, records, replies
from peeklock.entity.message import NEVER, NO_DURATION, Message
from peeklock.entity.records import Kept, Record, width


def messages(count: int) -> list[Message]:
    return [Message(b"e", b"content") for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_a_record_with_messages_takes_one_position_for_each(count: int) -> None:
    carriers: list[Record] = [
        records.Enqueued(1, 1, messages(count)),
        records.Scheduled(1, 1, messages(count)),
        records.Carried(1, list(range(count)), messages(count)),
    ]
    assert [width(record) for record in carriers] == [count, count, count]


def test_every_other_record_takes_one_position() -> None:
    others: list[Record] = [
        records.Activated(1, 1, [1, 2], [0, 0]),
        records.Removed(1, 0, records.COMPLETED, [1, 2, 3]),
        records.Returned(1, 0, records.ABANDONED, [1, 2], [1, 1]),
        records.Deferred(1, 0, [1, 2], [1, 1]),
        records.DeadLettered(1, 0, [1, 2], [1, 1], None, None),
        records.Changed(1, 1, {"a": b"1", "b": b"2"}),
        records.HandedOut(1, 0, [1, 2]),
        notes.HandedTo(1, 0, "who", [1, 2], [0, 3]),
        notes.LocksRenewed(1, 0, "who", [1, 2]),
        notes.LocksReleased(1, 0, 0, "who", [1, 2]),
        notes.SettlementsFailed(1, 0, 0, "who", [1, 2]),
        notes.SessionLockNoted(1, 0, 0, "who", "s"),
        records.Published(1, 1, messages(1)[0], [4, 6, 8], [0, 0, 0], 1),
        records.Transferring(1, 1, messages(1)[0], "elsewhere"),
        records.SessionStateSet(1, 0, "s", b"state"),
        records.DuplicatesDropped(1, ["a", "b"]),
        records.Remembered(1, ["a", "b"], [1, 1]),
        records.TakenOver(1, "elsewhere", [1, 2], [3]),
        records.Reserved(1, 3),
        records.LaneDropped(1, 4),
        records.CheckpointBegun(1, 3),
        records.CheckpointSlice(1, 0, [Kept(), Kept()]),
        records.CheckpointEnded(1, 7),
    ]
    assert [width(record) for record in others] == [1] * len(others)


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
    details = replies.Details()
    details.enqueue_sequence, details.scheduled_at, details.time_to_live_ms = 4, 5, 6
    details.reason, details.description, details.changes = "r", "d", {"a": b"1"}
    copy = details.copy()
    details.reason, details.changes = "later", {"a": b"2"}
    assert (copy.enqueue_sequence, copy.scheduled_at, copy.time_to_live_ms) == (4, 5, 6)
    assert (copy.reason, copy.description, copy.changes) == ("r", "d", {"a": b"1"})
