"""Row-level settlement: each row names a claimed message and what is to become of it."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from peeklock.amqp.constructors import LONG
from peeklock.amqp.types import Array
from peeklock.spark.sink_options import SinkOptions
from peeklock.spark.wire import Wire

SETTLE_CLAIMS: Final = "com.peeklock:settle-claims"
ACTIONS: Final = {
    "complete": "completed",
    "abandon": "abandoned",
    "deadletter": "suspended",
    "defer": "defered",
    "release": "released",
}
_PAGE: Final = 10_000


class BadAction(ValueError):
    """A row that asks for nothing that can be done."""


def settle_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Settle what rows name, and tell how many messages that were.

    A repeat settles what is left: a number that is not claimed any more is passed by.
    """
    wire = Wire.to(options.access, options.entity)
    count = 0
    for batch in batches:
        for (status, reason, description), numbers in _grouped(batch).items():
            note = {"deadletter-reason": reason, "deadletter-description": description}
            told = {key: text for key, text in note.items() if text is not None}
            for at in range(0, len(numbers), _PAGE):
                asked: dict[str, Any] = {
                    "owner": options.consumer_id,
                    "sequence-numbers": Array(LONG, numbers[at : at + _PAGE]),
                    "disposition-status": status,
                    **told,
                }
                answer = wire.manage(SETTLE_CLAIMS, asked)
                count += int(answer.get("message-count") or 0)
    return count


def _grouped(batch: pa.RecordBatch) -> dict[tuple[str, str | None, str | None], list[int]]:
    """Gather the numbers that have the same end."""
    columns = [_column(batch, name) for name in ("action", "reason", "description")]
    numbers = batch.column("sequence_number").to_pylist()
    groups: dict[tuple[str, str | None, str | None], list[int]] = {}
    for number, action, reason, description in zip(numbers, *columns, strict=True):
        status = ACTIONS.get(str(action).lower())
        if status is None:
            raise BadAction(f"'{action}' is no action; known are: {', '.join(ACTIONS)}")
        if number is None:
            raise BadAction(f"a row to {action} has no sequence_number")
        noted = (reason, description) if status == "suspended" else (None, None)
        groups.setdefault((status, *noted), []).append(number)
    return groups


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * len(batch)
    values: list[Any] = batch.column(name).to_pylist()
    return values
