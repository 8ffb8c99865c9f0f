"""The row that each kind of record has: its number on disk, its layout, and what the journal shows.

A family declares its records in `records` with such rows, beside their classes. What is written
often is also written by hand (`store/codec/facts.py`), in the form that its row says; a test
compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

# What a layout can say about a field, all of it behind the kind u8; numbers are little-endian.
# `0=B` is a byte of zero, which once had a meaning or keeps the form of the others.
CODES: Final = {
    "q": "a number, i64",
    "I": "a number, u32",
    "Q": "a number, u64",
    "B": "a number, u8",
    "flag": "yes or no, u8",
    "text": "a text that may be missing",
    "name": "a text that may not be missing",
    "consumer": "a text that is empty where it is missing",
    "bytes": "some bytes that may be missing",
    "texts": "a list of texts",
    "changes": "names with encoded values",
    "sequences": "numbers of messages, in runs",
    "counts": "u32 each, as many as the list before has",
    "instants": "i64 each, as many as the list before has",
    "expirations": "instants that are mostly the same, as many as the list before has",
    "entries": "messages of a checkpoint",
}

BY_HAND: Final = ""
"""The layout of what is a message, or has a form that no table can say."""


@final
class JournalRows:
    """What readers of the journal see of a record: a row for each message that it lists.

    `op` is the operation, or the table of operations and reasons by the field `by`. The others
    name the fields of the record that are shown in the columns of that name, and nothing where a
    record has none; without `sequences` there is one row, of no message.
    """

    __slots__ = (
        "by",
        "consumer",
        "counts",
        "description",
        "op",
        "ops",
        "reason",
        "sequences",
        "session",
    )

    def __init__(
        self,
        op: str | Mapping[int, tuple[str, str | None]],
        *,
        sequences: str = "sequences",
        counts: str = "",
        consumer: str = "",
        reason: str | None = None,
        description: str = "",
        session: str = "",
        by: str = "why",
    ) -> None:
        self.op: Final[str] = op if isinstance(op, str) else ""
        self.ops: Final[Mapping[int, tuple[str, str | None]]] = {} if isinstance(op, str) else op
        self.by: Final[str] = by
        self.sequences: Final[str] = sequences
        self.counts: Final[str] = counts
        self.consumer: Final[str] = consumer
        self.reason: Final[str | None] = reason  # the same for all of them
        self.description: Final[str] = description
        self.session: Final[str] = session


# Nothing happened to a message where such a record was written.
UNSEEN: Final = JournalRows("")
# The reader of the journal makes its rows by hand.
SEEN: Final = JournalRows("-")


@final
class RecordRow:
    """One kind of record. Its number rests on disk: it is never given to another."""

    __slots__ = ("journal", "kind", "layout", "record")

    def __init__(self, record: type[Any], kind: int, layout: str, journal: JournalRows) -> None:
        self.record: Final[type[Any]] = record
        self.kind: Final[int] = kind
        self.layout: Final[Sequence[tuple[str, str]]] = _fields(layout)
        self.journal: Final[JournalRows] = journal


def _fields(layout: str) -> list[tuple[str, str]]:
    fields: list[tuple[str, str]] = []
    for each in layout.split():
        name, _, code = each.partition("=")
        assert code in CODES, f"no layout has {each}"
        fields.append((name, code))
    return fields
