"""The kinds of records that are written and read by hand; all of them are in `RECORD_ROWS`."""

from __future__ import annotations

from typing import Final

# Runs of messages, one record each.
ENQUEUED: Final = 1
SCHEDULED: Final = 2
RELOCATED: Final = 3

# What is written often.
REMOVED: Final = 4
RETURNED: Final = 6
HANDED_TO: Final = 43

# What deliveries once were.
HANDED_OUT: Final = 5

# Messages that say where they go.
PUBLISHED: Final = 14
TRANSFERRING: Final = 15
STAGED: Final = 33

# A body that several copies share; a message that is back, with all that was known of it.
RELOCATED_COPIES: Final = 22
REQUEUED: Final = 53

# Copies that are dead letters from the beginning.
COPIES_BURIED: Final = 26
