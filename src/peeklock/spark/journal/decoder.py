"""The facts of chunks as columns of Arrow, for Spark."""

from collections.abc import Mapping
from typing import Final, final

import pyarrow as pa

from peeklock.spark.journal.fact_columns import EVERYTHING, FactColumns

SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("entity", pa.string()),
        ("sub_entity", pa.string()),
        ("partition_id", pa.int32()),
        ("position", pa.int64()),
        ("op", pa.string()),
        ("sequence_number", pa.int64()),
        ("message_id", pa.string()),
        ("session_id", pa.string()),
        ("delivery_count", pa.int32()),
        ("bytes", pa.int64()),
        ("consumer", pa.string()),
        ("reason", pa.string()),
        ("description", pa.string()),
        ("destination", pa.string()),
        ("body", pa.binary()),
    ]
)


@final
class FactDecoder:
    """Makes rows of the chunks of one partition's journal, column by column.

    `add` takes chunks as `JournalClient` gives them, `take` returns the rows gathered so far as one
    Arrow batch and begins anew.
    """

    def __init__(
        self,
        entity: str,
        partition_id: int,
        lanes: Mapping[int, str],
        *,
        schema: pa.Schema = SCHEMA,
        include_body: bool = False,
    ) -> None:
        """Make a decoder.

        Parameters:
            entity: the name that the column `entity` shows.
            partition_id: the number that the column `partition_id` shows.
            lanes: the names of lanes, as `JournalDescription.lanes` has them.
            schema: which columns, a part of `SCHEMA` in any order; others cost nothing.
            include_body: whether the column `body` is filled.
        """
        self._schema = schema
        self._columns = FactColumns(
            entity, partition_id, lanes, names=schema.names, include_body=include_body
        )

    @property
    def count(self) -> int:
        """How many rows are gathered."""
        return self._columns.count

    def add(self, chunk: bytes, after: int = 0, until: int = EVERYTHING) -> None:
        """Take in the facts of a chunk, from position `after` on and before `until`."""
        self._columns.add(chunk, after, until)

    def take(self) -> pa.RecordBatch:
        """Return what was gathered, and begin anew."""
        count = self._columns.count
        columns = self._columns.take()
        if self._schema.names:
            arrays = [pa.array(columns[field.name], type=field.type) for field in self._schema]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        # Without columns only the number of rows is known.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def decode(
    chunk: bytes,
    *,
    entity: str,
    partition_id: int,
    lanes: Mapping[int, str],
    schema: pa.Schema = SCHEMA,
    after: int = 0,
    until: int = EVERYTHING,
    include_body: bool = False,
) -> pa.RecordBatch:
    """Return the rows of one chunk."""
    decoder = FactDecoder(entity, partition_id, lanes, schema=schema, include_body=include_body)
    decoder.add(chunk, after, until)
    return decoder.take()
