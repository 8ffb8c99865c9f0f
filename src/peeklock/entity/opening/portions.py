"""How much a record tells of, and a part of one that tells of very much: an opening takes in a
part at a time, so that others on the loop have their turn."""

from __future__ import annotations

from peeklock.entity.claims.records import Claimed, Unclaimed
from peeklock.entity.records import (
    Activated,
    CheckpointSlice,
    DeadLettered,
    Deferred,
    Enqueued,
    Record,
    Relocated,
    RelocatedCopies,
    Remembered,
    Removed,
    Returned,
    Scheduled,
)
from peeklock.entity.stages.records import Staged, StageKept, StagesDropped, StagesPublished
from peeklock.entity.topics.records import CopiesBuried, Published
from peeklock.entity.transfers.records import TakenOver


def portions(record: Record) -> int:
    """About how many messages, copies, ids or numbers a record tells of."""
    if isinstance(record, (Enqueued, Scheduled, Staged, Relocated)):
        return len(record.messages)
    if isinstance(record, (Removed, Returned, Deferred, DeadLettered, Activated)):
        return len(record.sequences)
    if isinstance(record, Published):
        return len(record.lanes)
    if isinstance(record, (CheckpointSlice, StageKept)):
        return len(record.entries)
    if isinstance(record, Remembered):
        return len(record.message_ids)
    if isinstance(record, (RelocatedCopies, Claimed, Unclaimed, StagesDropped)):
        return len(record.sequences)
    if isinstance(record, CopiesBuried):
        return len(record.buried.places)
    if isinstance(record, StagesPublished):
        return len(record.sequences) + len(record.gone)
    if isinstance(record, TakenOver):
        return len(record.numbers) + len(record.forget)
    return 1


def portion(record: Record, begin: int, end: int) -> Record | None:
    """Return a record that tells of these of what this one tells of; None where it stands for
    itself.

    Those that can be very long are of kinds that have parts: a client sends messages by the
    hundred thousand, and completes or drops as many.
    """
    if isinstance(record, Enqueued):
        return Enqueued(record.at, record.first_sequence + begin, record.messages[begin:end])
    if isinstance(record, Removed):
        return Removed(record.at, record.lane, record.why, record.sequences[begin:end])
    if isinstance(record, Scheduled):
        return Scheduled(record.at, record.first_sequence + begin, record.messages[begin:end])
    if isinstance(record, Staged):
        first = record.first_sequence + begin
        return Staged(record.at, first, record.messages[begin:end], record.stage)
    if isinstance(record, StagesDropped):
        return StagesDropped(record.at, record.why, record.sequences[begin:end])
    return None
