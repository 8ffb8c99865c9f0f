"""Mode peek: messages are looked at and stay as they are, as a batch or as a stream.

The offset of a stream is how far it has come in each partition. A message that somebody had locked
and gives back later has a lower number and is not seen by a stream that has passed it: this mode is
for entities that nobody else receives from, for dead letters, and for looking.
"""

from collections.abc import Iterator
from typing import Any, final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from peeklock.amqp.errors import DecodeError
from peeklock.spark.ahead import ahead
from peeklock.spark.entity_client import EntityClient
from peeklock.spark.offsets import NUMBER_MAX, PlaceOffset, first_number, partition_of
from peeklock.spark.options import PEEK, SourceOptions, Span
from peeklock.spark.schema import Columns
from peeklock.spark.source.arrow import Decoder, Parts, number_of, wants_body
from peeklock.spark.source.claim_keeper import PEEK_COUNT, last_numbers, peek_page
from peeklock.spark.versions import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    limits_of,
)

LATEST = "latest"
# How many numbers a task of a batch has at least before the batch is divided by itself.
_SLICE_NUMBERS = 50_000
_SLICES_MAX = 16


@final
class PeekSlice(InputPartition):
    """The numbers that one task looks at, first and last."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first = first
        self.last = last


@final
class PeekReader(DataSourceReader):
    """What is there now, once."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[PeekSlice]:
        """Divide the numbers that are there among tasks."""
        options = self._options
        wire = EntityClient.to(options.access, options.entity)
        slices: list[PeekSlice] = []
        for partition, last in sorted(last_numbers(wire).items()):
            last = min(last, options.span.last_number) if options.span.last_number >= 0 else last
            lowest = max(first_number(partition), options.span.first_number)
            found = peek_page(wire, lowest, 1, omit_body=True)
            first = number_of(found[0]) if found else None
            if first is not None and first <= last:
                wished = max(options.partitions_min, 1 + (last - first) // _SLICE_NUMBERS)
                slices += divided(
                    first, last, min(wished, max(_SLICES_MAX, options.partitions_min))
                )
        return slices or [PeekSlice(0, -1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Look at the messages of a slice."""
        assert isinstance(partition, PeekSlice), partition
        return read_slice(self._options, self._columns, partition)


@final
class PeekStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes, from where the checkpoint says."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._upto: dict[int, int] | None = None
        # The last offset that was seen: before 4.2 Spark does not say where a batch starts.
        self._last: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin where the options say; what is the latest is found with the first batch."""
        start = LATEST if self._options.span.is_latest else ""
        return PlaceOffset(PEEK, self._options.entity, {}, start).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many rows a batch has at most; bytes are not known before they are read."""
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember what is there now."""
        self._upto = last_numbers(self._wire())

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Walk on from where the batch before has ended."""
        if start is None:
            start = self._last or self.initialOffset()
        rows, _, everything = limits_of(limit, self._options.rows_max, 0)
        offset = PlaceOffset.read(start, PEEK, self._options.entity)
        if offset.start == LATEST:
            places = last_numbers(self._wire())
        else:
            places = self._walked(offset.places, NUMBER_MAX if everything else rows)
        end = PlaceOffset(PEEK, self._options.entity, places)
        self._last = start if end == offset else end.json()
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PeekSlice]:
        """Divide the numbers between two offsets among tasks."""
        self._last = end
        begin = PlaceOffset.read(start, PEEK, self._options.entity)
        until = PlaceOffset.read(end, PEEK, self._options.entity)
        if begin.start == LATEST:
            return []
        slices: list[PeekSlice] = []
        for partition, last in sorted(until.places.items()):
            first = begin.places.get(partition, first_number(partition) - 1) + 1
            first = max(first, self._options.span.first_number)
            if first <= last:
                slices += divided(first, last, self._options.partitions_min)
        return slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Look at the messages of a slice; what is gone meanwhile is not seen."""
        assert isinstance(partition, PeekSlice), partition
        return read_slice(self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing was changed, so that there is nothing to end."""

    def stop(self) -> None:
        """Nothing is held."""

    def _wire(self) -> EntityClient:
        return EntityClient.to(self._options.access, self._options.entity)

    def _walked(self, start: dict[int, int], rows: int) -> dict[int, int]:
        """Find where the next batch ends in each partition, each having its share of the rows."""
        wire = self._wire()
        places = dict(start)
        share = max(1, rows // max(1, len(start)))
        cursor = max(0, self._options.span.first_number)
        left = rows
        while left > 0:
            partition = partition_of(cursor)
            first = max(cursor, places.get(partition, -1) + 1)
            upto = NUMBER_MAX if self._upto is None else self._upto.get(partition, -1)
            taken, cursor = _step(wire, first, upto, min(share, left))
            if taken:
                places[partition] = taken[-1]
                left -= len(taken)
            if cursor < 0:
                break
        return places


def _step(wire: EntityClient, first: int, upto: int, rows: int) -> tuple[list[int], int]:
    """Walk through one partition; give the numbers found, and where to go on, -1 for nowhere."""
    partition = partition_of(first)
    taken: list[int] = []
    while len(taken) < rows:
        page = peek_page(wire, first, min(PEEK_COUNT, rows - len(taken)), omit_body=True)
        if not page:
            return taken, -1
        for number in filter(None, map(number_of, page)):
            if partition_of(number) != partition:
                return taken, first_number(partition_of(number))
            if number > upto:
                return taken, first_number(partition + 1)
            taken.append(number)
            first = number + 1
    return taken, first_number(partition + 1)


def divided(first: int, last: int, count: int) -> list[PeekSlice]:
    """Divide a span of numbers into as many of about the same length."""
    count = min(count, last - first + 1)
    bounds = [first + (last + 1 - first) * index // count for index in range(count + 1)]
    return [PeekSlice(bounds[index], bounds[index + 1] - 1) for index in range(count)]


def read_slice(
    options: SourceOptions, columns: Columns, part: PeekSlice
) -> Iterator[pa.RecordBatch]:
    """Look at all messages of a slice, page by page."""
    if part.last < part.first:
        return
    wire = EntityClient.to(options.access, options.entity)
    include_body = options.include_body
    decoder = Decoder(
        columns, options.entity, bad_records=options.bad_records, include_body=include_body
    )
    omit_body = not wants_body(columns, include_body)
    for payloads in ahead(_pages(wire, part, omit_body=omit_body)):
        if options.span.from_instant >= 0 or options.span.until_instant >= 0:
            payloads = [one for one in payloads if is_within(one, options.span)]
        if payloads:
            yield decoder.batch(payloads)


def _pages(wire: EntityClient, part: PeekSlice, *, omit_body: bool) -> Iterator[list[bytes]]:
    first = part.first
    while first <= part.last:
        page = peek_page(wire, first, PEEK_COUNT, omit_body=omit_body)
        known = [(number, one) for one in page if (number := number_of(one)) is not None]
        if not known:
            return
        first = known[-1][0] + 1
        yield [one for number, one in known if number <= part.last]


def is_within(payload: bytes, span: Span) -> bool:
    """Return whether a message was enqueued in the time that was asked for."""
    try:
        enqueued = Parts(payload).annotations.get("x-opt-enqueued-time")
    except DecodeError:
        return True  # What cannot be read is shown with its error.
    if enqueued is None:
        return True
    return enqueued >= span.from_instant and (
        span.until_instant < 0 or enqueued < span.until_instant
    )
