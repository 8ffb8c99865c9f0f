"""Where a replay begins: at a record, which may lie in the middle of a chunk."""

from __future__ import annotations

from peeklock.entity.records import Record, width


def records_from(position: int, first: int, records: list[Record]) -> tuple[int, list[Record]]:
    """Leave out the records that end before `position`; return where the rest begins, and it."""
    for index, record in enumerate(records):
        end = first + width(record)
        if end > position:
            return first, records[index:] if index else records
        first = end
    return first, []
