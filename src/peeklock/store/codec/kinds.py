"""The kinds of records, as numbers that rest on disk: never reuse one."""

from __future__ import annotations

from typing import Final

# Runs of messages, one record each.
ENQUEUED: Final = 1
SCHEDULED: Final = 2
RELOCATED: Final = 3

# Facts.
REMOVED: Final = 4
HANDED_OUT: Final = 5
RETURNED: Final = 6
ACTIVATED: Final = 7
DEFERRED: Final = 8
DEAD_LETTERED: Final = 9
CHANGED: Final = 10
CHECKPOINT_BEGUN: Final = 11
CHECKPOINT_SLICE: Final = 12
CHECKPOINT_ENDED: Final = 13

# Messages that say where they go.
PUBLISHED: Final = 14
TRANSFERRING: Final = 15

# More facts.
SESSION_STATE_SET: Final = 16
DUPLICATES_DROPPED: Final = 17
REMEMBERED: Final = 18
TAKEN_OVER: Final = 19
RESERVED: Final = 20
LANE_DROPPED: Final = 21
WAYS_NOTED: Final = 27

# A body that several copies share.
RELOCATED_COPIES: Final = 22

# Copies that are dead letters from the beginning.
COPIES_BURIED: Final = 26

# Claims.
CLAIMED: Final = 23
UNCLAIMED: Final = 24
OWNER_HEARD: Final = 25

# Stages: messages that rest unseen, and what becomes of them.
STAGED: Final = 33
STAGES_PUBLISHED: Final = 34
STAGES_DROPPED: Final = 35
STAGE_KEPT: Final = 36
STAGE_DROPPED: Final = 37

# A message that is back, with all that was known of it.
REQUEUED: Final = 53

# What was given up because it was damaged.
LOST: Final = 54

# What only the journal asks for.
HANDED_TO: Final = 43
LOCKS_RENEWED: Final = 44
LOCKS_RELEASED: Final = 45
SETTLEMENTS_FAILED: Final = 46
SESSION_LOCK_NOTED: Final = 47
