"""The sink: writers for batches and for streams, which send rows or settle what they name.

Spark makes a writer anew wherever it needs one, so that nothing is kept on it: what the driver must
know of a task travels in its commit message.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from peeklock.client.exceptions import ServiceBusError
from peeklock.spark.entity_client import EntityClient
from peeklock.spark.options import OptionProblem
from peeklock.spark.rows import record_batches
from peeklock.spark.sink.dispatch import DROP, PUBLISH, Dispatch, Task
from peeklock.spark.sink.settlement import settle_rows
from peeklock.spark.sink.sink_options import SETTLE, SinkOptions, sink_options
from peeklock.spark.tasks import (
    HAS_STREAMS_OF_ARROW,
    StreamBase,
    partition_of_task,
    query_of_task,
)

_log: Final = logging.getLogger("peeklock.spark")


@final
@dataclass(frozen=True, slots=True)
class RowsWritten(WriterCommitMessage):
    """What a task did: the driver publishes its stages, in this order."""

    task: Task
    stages: dict[str, list[str]]


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Make the writer of `df.write.format("servicebus")`."""
    if overwrite:
        raise OptionProblem("a queue cannot be overwritten: use mode('append')")
    return BatchWriter(sink_options(options, schema, streaming=False))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamBase:
    """Make the writer of `df.writeStream.format("servicebus")`."""
    if overwrite:
        raise OptionProblem("a queue cannot be overwritten: use outputMode('append') or 'update'")
    return StreamWriter(sink_options(options, schema, streaming=True), schema)


@final
class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: everything is published at the end, or nothing."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        """Send the rows of one task."""
        task = Task(self._options.write_id, self._options.batch_id, partition_of_task())
        return _written(self._options, task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks have staged."""
        _publish(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks have staged."""
        _give_up(self._options, messages)


@final
class StreamWriter(StreamBase):
    """Writes the batches of a query, each of them once."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> RowsWritten:
        """Send the rows of one task."""
        batches = iterator if HAS_STREAMS_OF_ARROW else record_batches(iterator, self._schema)
        task = Task(*query_of_task(), partition_of_task())
        return _written(self._options, task, batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Publish what all tasks have staged; a repeat publishes nothing."""
        _publish(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Drop what the tasks have staged."""
        _give_up(self._options, messages)


# --- in a task


def _written(options: SinkOptions, task: Task, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
    if options.operation == SETTLE:
        settle_rows(options, batches)
        return RowsWritten(task, {})
    dispatch = Dispatch(options, task)
    try:
        for batch in batches:
            if len(batch):
                dispatch.send(batch)
        stages = dispatch.finish()
    except BaseException:
        dispatch.give_up()
        raise
    return RowsWritten(task, stages)


# --- on the driver


def _publish(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    written = sorted(_of(messages), key=lambda one: one.task.partition)
    entities = sorted({entity for one in written for entity in one.stages})
    for entity in entities:
        task = written[0].task
        stages = [stage for one in written for stage in one.stages.get(entity, [])]
        if not stages:
            continue
        wire = EntityClient.to(options.access, entity)
        asked = {"writer": task.writer, "batch": task.batch, "stages": stages}
        wire.manage(PUBLISH, asked)
        # Attempts that failed or came second have left theirs.
        _drop(wire, {"prefix": f"{task.writer}/{task.batch}/"})


def _give_up(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    for one in _of(messages):
        for entity, stages in one.stages.items():
            # No others: a driver that is being replaced must not drop what its successor has of
            # the same batch.
            _drop(EntityClient.to(options.access, entity), {"stages": stages})


def _drop(wire: EntityClient, which: dict[str, Any]) -> None:
    """Drop stages that nobody will publish; what is not dropped now ends by itself."""
    try:
        wire.manage(DROP, which)
    except ServiceBusError as error:
        _log.warning("the stages of %s are left to their end: %s", which, error)


def _of(messages: list[WriterCommitMessage | None]) -> list[RowsWritten]:
    return [message for message in messages if isinstance(message, RowsWritten)]
