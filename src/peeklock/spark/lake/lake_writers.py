"""A lake that is written exactly once: a stream sink for Delta tables and plain Parquet.

`format("servicebus_lake")` needs no jar. Tasks write files with Arrow, the driver makes those of a
batch count in one step, and a batch that comes again changes nothing. Readers that know nothing of
Spark see whole batches: of a Delta table from its log, of Parquet files by their names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from peeklock.spark.data_sources import LAKE
from peeklock.spark.lake.files import DATE, HOUR, Contribution, Files, Layout, delete
from peeklock.spark.lake.tables import commit_delta, commit_parquet, gathered
from peeklock.spark.option_table import CHOICE, SIZE, TEXT, WRITE, Option
from peeklock.spark.options import Given, OptionProblem
from peeklock.spark.rows import record_batches
from peeklock.spark.tasks import HAS_STREAMS_OF_ARROW, StreamBase, partition_of_task, query_of_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

DELTA: Final = "delta"
PARQUET: Final = "parquet"

LAKE_OPTIONS: Final = (
    Option(
        "kind",
        CHOICE,
        DELTA,
        WRITE,
        "A Delta table, or Parquet files in directories.",
        choices=(DELTA, PARQUET),
    ),
    Option(
        "partitionBy",
        TEXT,
        "",
        WRITE,
        "What the lake is divided by: columns, and `date` and `hour` of `timeColumn` (UTC), with "
        "commas between. Without it, those of `entity,date,hour` that the rows have.",
    ),
    Option("timeColumn", TEXT, "enqueued_time", WRITE, "Which instant gives `date` and `hour`."),
    Option("maxFileSize", SIZE, "128m", WRITE, "From which size on a file is ended.", low=1 << 10),
)


def write_stream(
    df: "DataFrame",
    path: str,
    *,
    kind: str = DELTA,
    checkpoint: str,
    trigger: dict[str, Any] | None = None,
    max_file_mb: int = 128,
    partition_by: str | None = None,
    time_column: str = "enqueued_time",
    query_name: str | None = None,
) -> "StreamingQuery":
    """Start a query that writes a stream into a lake, each batch exactly once, and return it.

        from peeklock.spark.lake import write_stream

        query = write_stream(
            orders, "/shared/lake/orders", checkpoint="/shared/checkpoints/orders",
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    Parameters:
        df: a stream.
        path: where the lake is or is to be; storage that all workers see.
        kind: "delta" for a Delta table, "parquet" for files in directories.
        checkpoint: where Spark keeps how far it is; shared storage too.
        trigger: the keywords of Spark's `trigger`, `{"processingTime": "1 minute"}` say.
        max_file_mb: from which size on a file is ended.
        partition_by: columns, and `date` and `hour` of `time_column`, with commas between. Without
            it those of `entity,date,hour` that the rows have.
        time_column: which instant gives `date` and `hour`.
        query_name: the name of the query on Spark's own pages.

    Raises OptionProblem (a ValueError) where an option is wrong. What goes wrong later ends the
    query: LakeProblem says that the lake cannot be written as it was asked for.
    """
    writer = (
        df.writeStream.format(LAKE)
        .option("kind", kind)
        .option("timeColumn", time_column)
        .option("maxFileSize", f"{max_file_mb}m")
        .option("checkpointLocation", checkpoint)
    )
    if partition_by is not None:
        writer = writer.option("partitionBy", partition_by)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.start(path)


def layout_of(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Layout:
    """Read the options, or say what is wrong with them."""
    given = Given(options, WRITE, LAKE_OPTIONS)
    if overwrite:
        raise OptionProblem("a lake is appended to: use mode('append')")
    if not given.path:
        raise OptionProblem("no path: say where the lake is with start(path) or save(path)")
    names = {field.name: field.dataType.simpleString() for field in schema.fields}
    has_time = names.get(given.text("timeColumn")) == "timestamp"
    known = {*names, *((DATE, HOUR) if has_time else ())}
    asked = [name.strip() for name in given.text("partitionBy").split(",") if name.strip()]
    missing = [name for name in asked if name not in known]
    if missing:
        raise OptionProblem(f"partitionBy: there is no column '{missing[0]}'")
    asked = asked or [name for name in ("entity", DATE, HOUR) if name in known]
    layout = Layout(
        path=given.path,
        partition_by=tuple(asked),
        time_column=given.text("timeColumn") if has_time else "",
        file_bytes=given.number("maxFileSize"),
        is_delta=given.text("kind") == DELTA,
    )
    # Readers of lakes see no difference between upper and lower case.
    twice = [name for name in names if name.lower() in layout.made]
    if twice:
        raise OptionProblem(
            f"the rows have a column '{twice[0]}', and the lake would make one of "
            f"{layout.time_column}: rename or drop it, or divide by something else (partitionBy)"
        )
    return layout


@final
@dataclass(frozen=True, slots=True)
class FilesWritten(WriterCommitMessage):
    """What a task tells the driver."""

    contribution: Contribution


@final
class LakeBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame into a lake, all of it in one commit."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._id = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """Write the files of one task."""
        return _laid(self._layout, self._id, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the files count."""
        _commit(self._layout, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files."""
        _give_up(self._layout, messages)


@final
class LakeStreamWriter(StreamBase):
    """Writes the batches of a query into a lake, each in one commit and once."""

    def __init__(self, layout: Layout, schema: StructType) -> None:
        self._layout = layout
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> FilesWritten:
        """Write the files of one task."""
        batches = iterator if HAS_STREAMS_OF_ARROW else record_batches(iterator, self._schema)
        return _laid(self._layout, *query_of_task(), batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Make the files of the batch count, if it is not there already."""
        _commit(self._layout, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Delete the files."""
        _give_up(self._layout, messages)


def _laid(
    layout: Layout, writer: str, batch: int, batches: Iterator[pa.RecordBatch]
) -> FilesWritten:
    files = Files(layout)
    try:
        for rows in batches:
            if len(rows):
                files.write(rows)
        done = files.finish()
    except BaseException:
        files.give_up()
        raise
    schema = b"" if files.schema is None else files.schema.serialize().to_pybytes()
    return FilesWritten(Contribution(writer, batch, partition_of_task(), done, schema))


def _commit(layout: Layout, messages: list[WriterCommitMessage | None]) -> None:
    batch = gathered(_contributions(messages))
    if batch is None:
        return
    if layout.is_delta:
        commit_delta(layout, batch)
    else:
        commit_parquet(layout, batch)


def _give_up(layout: Layout, messages: list[WriterCommitMessage | None]) -> None:
    for one in _contributions(messages):
        delete(layout.path, [file.name for file in one.files])


def _contributions(messages: list[WriterCommitMessage | None]) -> list[Contribution]:
    return [message.contribution for message in messages if isinstance(message, FilesWritten)]
