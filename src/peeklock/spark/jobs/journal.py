"""Where facts come from: the journals of entities, or a table that they were captured into."""

from functools import reduce
from typing import TYPE_CHECKING, final

from peeklock.spark.jobs import frame
from peeklock.spark.jobs.namespace import SUBSCRIPTION, Entity, Namespace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@final
class FactSource:
    """The facts that a job was told to read."""

    def __init__(
        self,
        connection_string: str,
        http_port: int | None,
        entities: list[str] | None,
        table: str,
    ) -> None:
        self.bus = frame.Bus(connection_string, http_port)
        self._names = entities or []
        self._table = table

    def read(self, spark: "SparkSession") -> "DataFrame":
        """All facts that are there now."""
        if self._table:
            return frame.read_table(spark, self._table)
        return _together(
            [spark.read.format("servicebus").options(**options).load() for options in self._each()]
        )

    def stream(self, spark: "SparkSession") -> "DataFrame":
        """Facts as they come."""
        if self._table:
            rows = frame.read_table(spark, self._table)
            return spark.readStream.schema(rows.schema).parquet(self._table)
        return _together(
            [
                spark.readStream.format("servicebus").options(**options).load()
                for options in self._each()
            ]
        )

    def entities(self) -> list[Entity]:
        """The queues and topics whose journals are meant."""
        there = [e for e in Namespace(self.bus).entities() if e.kind != SUBSCRIPTION]
        if not self._names:
            return there
        known = {entity.name.lower(): entity for entity in there}
        missing = [name for name in self._names if name.lower() not in known]
        if missing:
            raise frame.Impossible(f"there is no queue or topic '{missing[0]}'")
        return [known[name.lower()] for name in self._names]

    def _each(self) -> list[dict[str, str]]:
        entities = self.entities()
        if not entities:
            raise frame.Impossible("the namespace has neither queue nor topic")
        return [self.bus.options | entity.options | {"mode": "journal"} for entity in entities]


def _together(parts: "list[DataFrame]") -> "DataFrame":
    return reduce(lambda one, other: one.unionByName(other), parts)
