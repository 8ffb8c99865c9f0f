"""The table of places and moves: it names what exists, forgets no record, and is strict."""

from typing import get_args

import pytest

from peeklock.entity.entries import GONE, LOCKED
from peeklock.entity.records import CLAIMED, DEFERRED, READY, SCHEDULED, STAGED, Record
from peeklock.entity.tables.places import (
    DEAD,
    LANE_PLACES,
    LOCKED_DEFERRED,
    MOVES,
    NEW,
    PLACE_NAMES,
    RENUMBERED,
)
from tests.entity.message_places import is_explained

# Records that move no message: they tell of something else, or tell again what was told before.
# Whoever adds a record puts it here or into the table.
UNMOVING = {
    "Changed",
    "CheckpointBegun",
    "CheckpointEnded",
    "CheckpointSlice",
    "CopiesBuried",
    "DestinationsNoted",
    "DuplicatesDropped",
    "HandedTo",
    "LocksReleased",
    "LocksRenewed",
    "Lost",
    "OwnerHeard",
    "Relocated",
    "RelocatedCopies",
    "Remembered",
    "Reserved",
    "Returned",
    "SessionLockNoted",
    "SessionStateSet",
    "SettlementsFailed",
    "StageKept",
    "TakenOver",
}


def test_every_record_is_in_the_table_or_moves_nothing() -> None:
    told = {record for *_, records in (*MOVES, *RENUMBERED) for record in records}
    assert told & UNMOVING == set()
    assert told | UNMOVING == {record.__name__ for record in get_args(Record)}


def test_every_place_is_entered_and_left() -> None:
    moves = (*MOVES, *RENUMBERED)
    assert {end for _, end, *_ in moves} == set(PLACE_NAMES) - {NEW}
    # A dead letter goes on as a ready message of its own lane.
    assert {begin for begin, *_ in moves} == set(PLACE_NAMES) - {GONE, DEAD}


@pytest.mark.parametrize(
    ("before", "after", "records", "is_so"),
    [
        (READY, GONE, {"Removed"}, True),
        (READY, GONE, {"HandedTo"}, False),
        (NEW, LOCKED, {"Enqueued"}, True),
        (NEW, LOCKED, set(), False),
        (LOCKED, READY, set(), True),
        (SCHEDULED, GONE, {"Activated"}, True),
        (SCHEDULED, LOCKED, set(), False),
        (STAGED, READY, {"Staged"}, False),
        (CLAIMED, READY, set(), False),
        (LOCKED, DEFERRED, {"Deferred"}, True),
        (LOCKED, DEFERRED, {"Returned"}, False),
        (LOCKED_DEFERRED, DEFERRED, set(), True),
        (DEFERRED, READY, set(), False),
        (DEFERRED, READY, {"DeadLettered"}, True),
    ],
)
def test_a_move_needs_its_record(before: int, after: int, records: set[str], is_so: bool) -> None:
    assert is_explained(before, after, records) is is_so


def test_places_differ() -> None:
    assert len(LANE_PLACES | {LOCKED_DEFERRED, DEAD, STAGED, NEW, GONE}) == 10 == len(PLACE_NAMES)


def test_another_lane_needs_the_record_of_a_dead_letter() -> None:
    assert not is_explained(LOCKED, READY, set(), is_moved=True)
    assert is_explained(LOCKED, READY, {"DeadLettered"}, is_moved=True)
