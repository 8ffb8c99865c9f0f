"""Where facts come from: the journals of entities, or a table that they were captured into."""

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, final

from peeklock.client.administration.atom import SUBSCRIPTION
from peeklock.spark.jobs import delta, frame
from peeklock.spark.jobs.namespace import ListedEntity, NamespaceListing, entity_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader


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
        self._paths = entities or []
        self._table = table

    def check(self) -> None:
        """Raise `Impossible` at once where the broker is needed and does not answer."""
        if not self._table:
            self.bus.check()

    def read(self, spark: "SparkSession") -> "DataFrame":
        """Return all facts that are there now."""
        if self._table:
            return self._chosen(frame.read_table(spark, self._table))
        return self._chosen(_together(self._each(lambda: spark.read)))

    def stream(self, spark: "SparkSession") -> "DataFrame":
        """Facts as they come."""
        if self._table:
            if delta.is_table(self._table):
                raise frame.Impossible(
                    "facts are followed in Parquet files: a Delta table is read whole, without "
                    "--stream and --interval"
                )
            schema = frame.read_table(spark, self._table).schema
            return self._chosen(spark.readStream.schema(schema).parquet(self._table))
        return self._chosen(_together(self._each(lambda: spark.readStream)))

    def entities(self) -> list[ListedEntity]:
        """Return the queues and topics whose journals are meant; who names them need not manage
        them."""
        if self._paths:
            names = dict.fromkeys(_split(path)[0] for path in self._paths)
            return [entity_at(name) for name in names]
        there = [e for e in NamespaceListing(self.bus).entities() if e.kind != SUBSCRIPTION]
        if not there:
            raise frame.Impossible("the namespace has neither queue nor topic")
        return there

    def _each(
        self, reader: "Callable[[], DataFrameReader | DataStreamReader]"
    ) -> "list[DataFrame]":
        # A reader keeps the options that it was given, so that each entity needs its own.
        return [
            reader()
            .format("servicebus")
            .options(**self.bus.options, **entity.options, mode="journal")
            .load()
            for entity in self.entities()
        ]

    def _chosen(self, facts: "DataFrame") -> "DataFrame":
        """Only what concerns the queues, topics and subscriptions that were named."""
        from pyspark.sql import functions as fn

        if not self._paths:
            return facts
        conditions = []
        for path in self._paths:
            name, line = _split(path)
            condition = fn.lower("entity") == name.lower()
            if line:
                lane, wanted = fn.lower("sub_entity"), line.lower()
                # Its dead letters are below it; another one's name may only begin like its own.
                condition &= (lane == wanted) | lane.startswith(f"{wanted}/")
            conditions.append(condition)
        return facts.where(reduce(lambda one, other: one | other, conditions))


def _split(path: str) -> tuple[str, str]:
    """Return a queue or topic, and the line of a subscription in it."""
    topic, is_subscription, name = path.strip("/").partition("/Subscriptions/")
    return topic, f"Subscriptions/{name}" if is_subscription else ""


def _together(parts: "list[DataFrame]") -> "DataFrame":
    return reduce(lambda one, other: one.unionByName(other), parts)
