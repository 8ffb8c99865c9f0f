"""Message ids that are the same however often a row is written, so that duplicates can be seen.

A row's own id is taken first, then a digest of the columns that `idColumns` names, then its place:
query, batch, partition, row. Places are stable where partitions and order are: a plan without a
shuffle over a source that reads the same again.
"""

import hashlib
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_DIGEST_BYTES: Final = 16


def ids_of(
    own: Any | None, chosen: list[Any], prefix: str, first_row: int, rows: int
) -> pa.StringArray:
    """Return an id for each row: `own` is the column of ids, `chosen` those to make a digest of."""
    if own is not None and own.null_count == 0:
        return own
    made = digests(chosen) if chosen else places(prefix, first_row, rows)
    return made if own is None else pc.coalesce(own, made)


def places(prefix: str, first_row: int, rows: int) -> pa.StringArray:
    """Name rows by where they are."""
    numbers = pc.cast(pa.array(range(first_row, first_row + rows), pa.int64()), pa.string())
    return pc.binary_join_element_wise(pa.scalar(prefix), numbers, pa.scalar("/"))


def digests(columns: list[Any]) -> pa.StringArray:
    """Name rows by what they hold."""
    texts = [_told(column) for column in columns]
    return pa.array([_digest(row) for row in zip(*texts, strict=True)], pa.string())


def _told(column: Any) -> list[Any]:
    """Return values in a form that is the same in every process and version."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values: list[Any] = column.to_pylist()
        return values
    if pa.types.is_nested(kind):
        return [None if value is None else repr(value) for value in column.to_pylist()]
    texts: list[Any] = pc.cast(column, pa.string()).to_pylist()
    return texts


def _digest(values: tuple[Any, ...]) -> str:
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for value in values:
        if value is None:
            state.update(b"-")
            continue
        content = value.encode() if isinstance(value, str) else value
        # With its length, so that no two rows run together into one text.
        state.update(b"%d:" % len(content))
        state.update(content)
    return state.hexdigest()
