"""Reads the journal; the name that programs know for `peeklock.spark.journal.client`."""

from peeklock.spark.journal.client import (
    FetchedPage,
    JournalClient,
    JournalDescription,
    JournalError,
    JournalGone,
    JournalPartition,
    JournalUnavailable,
)

__all__ = [
    "JournalClient",
    "JournalDescription",
    "JournalError",
    "JournalGone",
    "FetchedPage",
    "JournalPartition",
    "JournalUnavailable",
]
