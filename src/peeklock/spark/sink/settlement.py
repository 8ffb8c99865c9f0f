"""Row-level settlement: each row names a claimed message and what is to become of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from peeklock.spark.options import CLAIM, SourceOptions, source_options
from peeklock.spark.sink.sink_options import SinkOptions
from peeklock.spark.source.claim_keeper import DEFERRAL
from peeklock.spark.source.claim_stream import open_claim_keeper

ACTIONS: Final = {
    "complete": "completed",
    "abandon": "abandoned",
    "deadletter": "suspended",
    "defer": "defered",
    "release": "released",
}
# What can be done to a message that is deferred, which is how claims are made elsewhere.
_BY_DEFERRAL: Final = ("complete", "deadletter")

# The numbers of the messages that have the same end: action, reason and description.
Groups: TypeAlias = dict[tuple[str, str | None, str | None], list[int]]


class BadAction(ValueError):
    """A row that asks for nothing that can be done."""


def settle_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> None:
    """Settle what rows name.

    A repeat settles what is left: a number that is not claimed any more is passed by.
    """
    # It is opened and not entered: the query that has claimed the messages must not be fenced by
    # its own job.
    keeper = open_claim_keeper(_as_reader(options), options.ledger)
    for batch in batches:
        groups = _grouped(batch)
        if keeper.kind == DEFERRAL:
            _check_deferral(groups)
        for (action, reason, description), numbers in groups.items():
            note = {"deadletter-reason": reason, "deadletter-description": description}
            told = {key: text for key, text in note.items() if text is not None}
            keeper.settle(numbers, ACTIONS[action], note=told)


def _check_deferral(groups: Groups) -> None:
    for action, _, _ in groups:
        if action not in _BY_DEFERRAL:
            raise BadAction(
                f"'{action}' is not possible where claims are kept by deferral; "
                f"possible are: {', '.join(_BY_DEFERRAL)}"
            )


def _as_reader(options: SinkOptions) -> SourceOptions:
    """Return the options of the query whose claims these are, as far as they matter here."""
    given = {
        "connectionString": options.access.connection_string,
        "queue": options.entity,
        "mode": CLAIM,
        "consumerId": options.consumer_id,
    }
    return replace(source_options(given, streaming=True), access=options.access)


def _grouped(batch: pa.RecordBatch) -> Groups:
    """Gather the numbers that have the same end."""
    columns = [_column(batch, name) for name in ("action", "reason", "description")]
    numbers = batch.column("sequence_number").to_pylist()
    groups: Groups = {}
    for number, action, reason, description in zip(numbers, *columns, strict=True):
        name = str(action).lower()
        if name not in ACTIONS:
            raise BadAction(f"'{action}' is no action; known are: {', '.join(ACTIONS)}")
        if number is None:
            raise BadAction(f"a row to {name} has no sequence_number")
        noted = (reason, description) if name == "deadletter" else (None, None)
        groups.setdefault((name, *noted), []).append(number)
    return groups


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * len(batch)
    values: list[Any] = batch.column(name).to_pylist()
    return values
