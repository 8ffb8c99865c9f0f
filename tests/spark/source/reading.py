"""Queries as the tests of the source start them, and readers without Spark around them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from peeklock.spark.entity_client import EntityClient
from peeklock.spark.options import source_options
from peeklock.spark.schema import MESSAGE_COLUMNS, Columns, struct_of
from peeklock.spark.source.claim_keeper import BrokerClaimKeeper
from peeklock.spark.source.claim_stream import ClaimStreamReader
from tests.spark.spark_broker import Bus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = Columns(struct_of(MESSAGE_COLUMNS), MESSAGE_COLUMNS)
ENDS_WITHIN_S = 90


class Reading:
    """One query from an entity into Parquet, with its checkpoint: stopped and started at will."""

    def __init__(self, spark: "SparkSession", bus: Bus, place: Path, **options: Any) -> None:
        self.spark = spark
        self.bus = bus
        self.place = place
        self.options = {key: str(value) for key, value in options.items()}
        self.schema: str | None = None
        self.change: Callable[[DataFrame], DataFrame] = lambda rows: rows
        self.progress: list[dict[str, Any]] = []

    def frame(self) -> "DataFrame":
        reader = self.spark.readStream.format("servicebus").options(**self.bus.options)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        return self.change(reader.options(**self.options).load())

    def start(self, *, available_now: bool = True) -> "StreamingQuery":
        writer = self.frame().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.place / "checkpoint"))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start(str(self.place / "rows"))

    def run(self) -> None:
        """Run until everything that is there was read."""
        query = self.start()
        try:
            assert query.awaitTermination(ENDS_WITHIN_S), "it does not end"
        finally:
            self.progress += [_plain(event) for event in query.recentProgress]
            query.stop()

    def files(self) -> list[list[dict[str, Any]]]:
        """What each task wrote, as far as it is committed, in the order in which it wrote it."""
        log = self.place / "rows" / "_spark_metadata"
        entries = [
            json.loads(line)
            for part in (sorted(log.glob("[0-9]*")) if log.exists() else [])
            for line in part.read_text().splitlines()
            if line.startswith("{")
        ]
        paths = sorted({unquote(urlsplit(entry["path"]).path) for entry in entries})
        return [pq.read_table(path).to_pylist() for path in paths]

    def rows(self) -> list[dict[str, Any]]:
        return [row for file in self.files() for row in file]

    def bodies(self) -> list[str]:
        return sorted(bytes(row["body"]).decode() for row in self.rows())


def _plain(event: Any) -> dict[str, Any]:
    found: dict[str, Any] = event if isinstance(event, dict) else event.jsonValue
    return found


def claim_reader(bus: Bus, queue: str, **options: Any) -> ClaimStreamReader:
    """The reader of claims on a real broker, as Spark makes it."""
    texts = {key: str(value) for key, value in options.items()}
    texts.setdefault("maxWait", "0")
    given = {**bus.options, "queue": queue, **texts}
    return ClaimStreamReader(source_options(given, streaming=True), COLUMNS)


def claim_keeper(bus: Bus, queue: str, consumer: str = "") -> BrokerClaimKeeper:
    """The claims of a consumer; of the source's own when none is named."""
    given = {**bus.options, "queue": queue}
    if consumer:
        given["consumerId"] = consumer
    options = source_options(given, streaming=True)
    return BrokerClaimKeeper(EntityClient.to(options.access, options.entity), options)


def read_all(reader: ClaimStreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    """Read a batch as its tasks do."""
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
