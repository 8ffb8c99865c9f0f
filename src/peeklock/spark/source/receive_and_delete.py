"""Mode receiveAndDelete as a stream: messages are gone when they are handed out.

Lossy: what a task has received when it fails, or when the query is stopped in a batch, is lost, and
a batch that is read again has other messages. It says so when it starts.
"""

import logging
import time
from collections.abc import Iterator
from typing import Any, Final, final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from peeklock.spark.entity_client import EntityClient
from peeklock.spark.offsets import PlaceOffset
from peeklock.spark.options import RECEIVE_AND_DELETE, SourceOptions
from peeklock.spark.schema import Columns
from peeklock.spark.source.arrow import Decoder
from peeklock.spark.source.claim_keeper import active_count
from peeklock.spark.versions import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

_WAIT_MS: Final = 300
_POLL_S: Final = 0.05
_WARNING: Final = (
    "mode receiveAndDelete of '%s' loses messages: those that a failing task or an interrupted "
    "batch has received are gone. Mode claim does not."
)

_log: Final = logging.getLogger("peeklock.spark")


@final
class ReceivedShare(InputPartition):
    """How many messages one task receives at most."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


@final
class ReceiveAndDeleteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Counts batches, and lets tasks receive what is there."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._has_warned = False
        # How many batches AvailableNow may still have; -1 outside of it.
        self._batches_left = -1
        self._last: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin with batch 0."""
        return PlaceOffset(RECEIVE_AND_DELETE, self._options.entity, {0: 0}).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many rows a batch has at most."""
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Allow as many batches as what is there now needs."""
        self._batches_left = -(-active_count(self._wire()) // self._options.rows_max)

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: dict[str, Any] | None = None,
        limit: ReadLimit | None = None,  # noqa: ARG002 - the tasks keep to it
    ) -> dict[str, Any]:
        """Begin a batch when there is something."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(_WARNING, self._options.entity)
        if start is None:
            start = self._last or self.initialOffset()
        offset = PlaceOffset.read(start, RECEIVE_AND_DELETE, self._options.entity)
        self._last = start
        if self._batches_left != 0 and self._has_something():
            self._batches_left -= 1 if self._batches_left > 0 else 0
            self._last = PlaceOffset(offset.mode, offset.entity, {0: offset.places[0] + 1}).json()
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[ReceivedShare]:
        """Return each task its share of the batch."""
        self._last = end
        if start == end:
            return []
        count = min(self._options.partitions_min, self._options.rows_max)
        rows = self._options.rows_max
        return [ReceivedShare(rows * (at + 1) // count - rows * at // count) for at in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Receive until there is nothing more, or enough."""
        assert isinstance(partition, ReceivedShare), partition
        options = self._options
        wire = self._wire()
        decoder = Decoder(
            self._columns,
            options.entity,
            bad_records=options.bad_records,
            include_body=options.include_body,
        )
        left, size = partition.rows, options.bytes_max
        while left > 0 and size > 0:
            count = min(left, options.prefetch)
            got = wire.receive(count, _WAIT_MS, deletes=True)
            if got:
                yield decoder.batch([bytes(one.payload) for one in got])
            left -= len(got)
            size -= sum(len(one.payload) for one in got)
            if len(got) < count:
                return

    def commit(self, end: dict[str, Any]) -> None:
        """It is too late for anything."""

    def stop(self) -> None:
        """Nothing is held."""

    def _wire(self) -> EntityClient:
        return EntityClient.to(self._options.access, self._options.entity)

    def _has_something(self) -> bool:
        deadline = time.monotonic() + self._options.wait_ms / 1000
        while active_count(self._wire()) == 0:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._batches_left > 0:
                return False
            time.sleep(min(_POLL_S, left_s))
        return True
