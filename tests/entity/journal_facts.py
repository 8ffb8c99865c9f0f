"""Facts that only the journal asks for, seen and left aside."""

from peeklock.entity.message import NEVER
from peeklock.entity.partition import Partition
from peeklock.entity.records import Record
from peeklock.entity.upkeep.journal_facts import (
    HandedTo,
    LocksReleased,
    LocksRenewed,
    Note,
    SessionLockNoted,
    SettlementsFailed,
)

NOTES = (HandedTo, LocksReleased, LocksRenewed, SessionLockNoted, SettlementsFailed)


def notes(records: list[Record]) -> list[Note]:
    """Those among the records, in order."""
    return [each for each in records if isinstance(each, NOTES)]


def next_due(partition: Partition) -> int:
    """The next deadline of anything but the notes that wait for their write."""
    lane_sessions = partition._state.notes
    due_at, lane_sessions.due_at = lane_sessions.due_at, NEVER
    try:
        return partition.next_deadline()
    finally:
        lane_sessions.due_at = due_at
