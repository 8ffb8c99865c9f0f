"""A Spark source that makes rows out of nothing: what Spark itself costs for rows of this form."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from peeklock.spark.schema import MESSAGE_COLUMNS, Columns, struct_of

BODY: Final = b"x" * 1024
ROWS_PER_ARROW: Final = 10_000
TASKS: Final = 2


class Nothing(DataSource):
    """`format("nothing")`: so many `rows`, so many `perBatch`."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "nothing"

    def schema(self) -> Any:
        """Give the columns that messages have."""
        return struct_of(MESSAGE_COLUMNS)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Read it as a stream."""
        columns = Columns(schema, MESSAGE_COLUMNS)
        return _Stream(columns, int(self.options["rows"]), int(self.options["perBatch"]))


class _Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, columns: Columns, rows: int, per_batch: int) -> None:
        self._columns = columns
        self._rows = rows
        self._per_batch = per_batch

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"n": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802, ARG002 - Spark's
        return {"n": min(self._rows, start["n"] + self._per_batch)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        pass

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        count = end["n"] - start["n"]
        each = count // TASKS
        return [InputPartition((start["n"] + at * each, each)) for at in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, count = partition.value
        schema = self._columns.arrow
        for at in range(first, first + count, ROWS_PER_ARROW):
            rows = min(ROWS_PER_ARROW, first + count - at)
            columns: list[Any] = []
            for field in schema:
                if field.name == "sequence_number":
                    columns.append(pa.array(range(at, at + rows), field.type))
                elif field.name == "body":
                    columns.append(pa.array([BODY] * rows, field.type))
                else:
                    columns.append(pa.nulls(rows, field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
