"""The places of a message in its partition, and every move from one to another.

`check()` asks that a message is in one of them; the tests of a partition ask that each change is a
move of this table whose record was written. The diagram in ARCHITECTURE is made of it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from peeklock.entity.entries import GONE, LOCKED
from peeklock.entity.records import CLAIMED, DEFERRED, READY, SCHEDULED, STAGED

# Before it came.
NEW: Final = -1
# Locked out of deferral: it returns there. A lock knows which of the two it is.
LOCKED_DEFERRED: Final = -2
# Ready in the dead-letter lane, where it begins anew.
DEAD: Final = -3

PLACE_NAMES: Final[dict[int, str]] = {
    NEW: "new",
    READY: "ready",
    LOCKED: "locked",
    LOCKED_DEFERRED: "locked_deferred",
    DEAD: "dead_letter",
    DEFERRED: "deferred",
    SCHEDULED: "scheduled",
    STAGED: "staged",
    CLAIMED: "claimed",
    GONE: "gone",
}
# Where a live message of a lane can be; what is staged is in no lane yet.
LANE_PLACES: Final = frozenset((READY, LOCKED, DEFERRED, SCHEDULED, CLAIMED))

# From where, to where, what happens, and the records that tell of it: one of them is written with
# the move. Locks are not written down: after a restart what was locked is where it was before.
_TAKEN: Final = ("Removed", "LaneDropped")
_BURIED: Final = ("DeadLettered",)
Move: TypeAlias = tuple[int, int, str, tuple[str, ...]]
MOVES: Final[tuple[Move, ...]] = (
    (NEW, READY, "send", ("Enqueued", "Published", "Transferring", "Requeued")),
    (NEW, SCHEDULED, "schedule", ("Scheduled",)),
    (NEW, STAGED, "stage", ("Staged",)),
    (SCHEDULED, GONE, "cancel, publish to a topic when due", ("Removed",)),
    (SCHEDULED, DEAD, "damaged", _BURIED),
    (STAGED, GONE, "drop", ("StagesDropped", "StageDropped")),
    (READY, LOCKED, "deliver", ()),
    (READY, GONE, "receive and delete, expire, purge", _TAKEN),
    (READY, CLAIMED, "claim", ("Claimed",)),
    (READY, DEAD, "expire, fail", _BURIED),
    (LOCKED, READY, "abandon, lose the lock", ()),
    (LOCKED, GONE, "complete", _TAKEN),
    (LOCKED, DEFERRED, "defer", ("Deferred",)),
    (LOCKED, DEAD, "dead-letter", _BURIED),
    (DEFERRED, LOCKED_DEFERRED, "receive by number", ()),
    (DEFERRED, GONE, "receive and delete by number, purge", _TAKEN),
    (DEFERRED, DEAD, "expire", _BURIED),
    (LOCKED_DEFERRED, DEFERRED, "abandon, defer again, lose the lock", ()),
    (LOCKED_DEFERRED, GONE, "complete", _TAKEN),
    (LOCKED_DEFERRED, DEAD, "dead-letter", _BURIED),
    (CLAIMED, GONE, "complete", _TAKEN),
    (CLAIMED, READY, "abandon, time out", ("Unclaimed",)),
    (CLAIMED, DEFERRED, "defer", ("Deferred",)),
    (CLAIMED, DEAD, "dead-letter", _BURIED),
)
# The message goes on under a new number: the old one is gone.
RENUMBERED: Final[tuple[Move, ...]] = (
    (SCHEDULED, READY, "fall due", ("Activated",)),
    (STAGED, READY, "publish", ("StagesPublished",)),
    (STAGED, SCHEDULED, "publish for later", ("StagesPublished",)),
)
