"""Facts made by hand, in the journal's own columns: lives whose outcome is known."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@final
class MadeFacts:
    """A journal that grows fact by fact; instants are milliseconds after noon."""

    def __init__(self, entity: str = "orders") -> None:
        self.rows: list[dict[str, Any]] = []
        self._entity = entity
        self._positions: dict[int, int] = {}
        self._numbers: dict[int, int] = {}

    def send(self, at_ms: int, *, partition: int = 0, size: int | None = 100, **more: Any) -> int:
        """A message comes in; its sequence number is given."""
        count = self._numbers.get(partition, 0) + 1
        self._numbers[partition] = count
        number = (partition << 48) + count
        more = {"message_id": f"m-{partition}-{count}", "op": "send"} | more
        self.fact(at_ms, number=number, bytes=size, **more)
        return number

    def fact(self, at_ms: int, op: str, number: int | None = None, **more: Any) -> None:
        """Anything that happens, to a message or not."""
        partition = more.pop("partition", 0 if number is None else number >> 48)
        position = self._positions.get(partition, 0) + 1
        self._positions[partition] = position
        row = {
            "at": START + timedelta(milliseconds=at_ms),
            "entity": self._entity,
            "sub_entity": "",
            "partition_id": partition,
            "position": position,
            "op": op,
            "sequence_number": number,
        }
        self.rows.append(row | more)

    def handled(self, sent_ms: int, wait_ms: int, work_ms: int, **more: Any) -> int:
        """A message that comes in, is handed out and completed."""
        number = self.send(sent_ms, **more)
        self.fact(sent_ms + wait_ms, "deliver", number, consumer="c1")
        self.fact(sent_ms + wait_ms + work_ms, "complete", number)
        return number

    def arrow(self) -> "pa.Table":
        """The facts as they rest in a lake."""
        import pyarrow as pa

        from peeklock.spark.jobs.facts.table import SCHEMA

        kinds = {
            "timestamp": pa.timestamp("us", "UTC"),
            "string": pa.string(),
            "int": pa.int32(),
            "long": pa.int64(),
            "binary": pa.binary(),
        }
        named = [column.split() for column in SCHEMA.split(", ")]
        schema = pa.schema([(name, kinds[kind]) for name, kind in named])
        return pa.Table.from_pylist(self.rows, schema)

    def table(self, spark: "SparkSession") -> "DataFrame":
        """The facts as a job reads them."""
        return made(spark, self.rows)


def made(spark: "SparkSession", rows: Iterable[dict[str, Any]]) -> "DataFrame":
    """A table of facts."""
    from peeklock.spark.jobs.facts.table import SCHEMA

    columns = [column.split()[0] for column in SCHEMA.split(", ")]
    return spark.createDataFrame([tuple(row.get(c) for c in columns) for row in rows], SCHEMA)


def only(rows: "DataFrame") -> dict[str, Any]:
    """The row of a table that has one."""
    [row] = rows.collect()
    return row.asDict(recursive=True)
