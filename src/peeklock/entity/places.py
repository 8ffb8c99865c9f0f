"""The places of a message in its partition, and every move from one to another.

`check()` asks that a message is in one of them; tests ask that each change is a move of this table
whose record was written. The diagram in ARCHITECTURE is made of it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from peeklock.entity.lane import LOCKED
from peeklock.entity.records import CLAIMED, DEFERRED, READY, SCHEDULED, STAGED

# Before it came, and after it left.
NEW: Final = -1
GONE: Final = -2

PLACE_NAMES: Final[dict[int, str]] = {
    NEW: "new",
    READY: "ready",
    LOCKED: "locked",
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
Move: TypeAlias = tuple[int, int, str, tuple[str, ...]]
MOVES: Final[tuple[Move, ...]] = (
    (NEW, READY, "send", ("Enqueued", "Published", "Transferring", "Requeued")),
    (NEW, SCHEDULED, "schedule", ("Scheduled",)),
    (NEW, STAGED, "stage", ("Staged",)),
    (SCHEDULED, GONE, "cancel, publish to a topic when due", ("Removed",)),
    (SCHEDULED, READY, "dead-letter what is damaged", ("DeadLettered",)),
    (STAGED, GONE, "drop", ("StagesDropped", "StageDropped")),
    (READY, LOCKED, "deliver", ()),
    (READY, GONE, "receive and delete, expire, purge", ("Removed", "LaneDropped")),
    (READY, CLAIMED, "claim", ("Claimed",)),
    (LOCKED, READY, "abandon, lose the lock, dead-letter", ()),
    (LOCKED, GONE, "complete", ("Removed", "LaneDropped")),
    (LOCKED, DEFERRED, "defer, lose the lock of a deferred one", ()),
    (DEFERRED, LOCKED, "receive by number", ()),
    (DEFERRED, GONE, "receive and delete by number, purge", ("Removed", "LaneDropped")),
    (DEFERRED, READY, "expire into dead letters", ("DeadLettered",)),
    (CLAIMED, GONE, "complete", ("Removed", "LaneDropped")),
    (CLAIMED, READY, "abandon, dead-letter, time out", ("Unclaimed", "DeadLettered")),
    (CLAIMED, DEFERRED, "defer", ("Deferred",)),
)
# The message goes on under a new number: the old one is gone.
RENUMBERED: Final[tuple[Move, ...]] = (
    (SCHEDULED, READY, "fall due", ("Activated",)),
    (STAGED, READY, "publish", ("StagesPublished",)),
    (STAGED, SCHEDULED, "publish for later", ("StagesPublished",)),
)


def is_explained(before: int, after: int, records: set[str]) -> bool:
    """Tell whether moves whose records were written lead a number from one place to the other."""
    moves = list(MOVES)
    for begin, end, what, told in RENUMBERED:
        moves += [(begin, GONE, what, told), (NEW, end, what, told)]
    reached = {before}
    left = [before]
    while left:
        place = left.pop()
        for begin, end, _, told in moves:
            if begin == place and end not in reached and (not told or records.intersection(told)):
                reached.add(end)
                left.append(end)
    return after in reached


def diagram() -> str:
    """Return the moves as a state diagram in Mermaid's words."""
    lines = ["stateDiagram-v2"]
    for begin, end, what, _ in (*MOVES, *RENUMBERED):
        first = "[*]" if begin == NEW else PLACE_NAMES[begin]
        last = "[*]" if end == GONE else PLACE_NAMES[end]
        lines.append(f"    {first} --> {last}: {what}")
    return "\n".join(lines) + "\n"
