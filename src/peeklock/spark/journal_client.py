"""Reads the journal; the name that programs know for `peeklock.spark.journal.client`."""

from peeklock.spark.journal.client import (
    JournalClient,
    JournalDescription,
    JournalError,
    JournalGone,
    JournalPage,
    JournalPartition,
    JournalUnavailable,
)

__all__ = [
    "JournalClient",
    "JournalDescription",
    "JournalError",
    "JournalGone",
    "JournalPage",
    "JournalPartition",
    "JournalUnavailable",
]
