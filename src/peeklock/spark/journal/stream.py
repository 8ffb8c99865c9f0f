"""Mode journal: the ordered facts of a queue or topic, as a batch or as a stream.

Reading changes nothing and disturbs nobody. The offset is the next position of each partition;
tasks fetch raw chunks and make rows of them. What retention has dropped before it was read is a
loss, which is told.
"""

import logging
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from peeklock.spark.ahead import ahead
from peeklock.spark.journal.client import (
    FetchedPage,
    JournalClient,
    JournalDescription,
    JournalPartition,
)
from peeklock.spark.journal.decoder import FactDecoder
from peeklock.spark.offsets import PlaceOffset
from peeklock.spark.options import JOURNAL, Access, SourceOptions, Span
from peeklock.spark.schema import Columns
from peeklock.spark.source.claim_planner import DataLoss
from peeklock.spark.versions import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    limits_of,
)

LATEST: Final = "latest"
# From so many positions on a span is looked at, for how many bytes they take, and divided.
_PROBED: Final = 10_000
_PROBE_BYTES: Final = 256 << 10
_SLICE_POSITIONS: Final = 200_000
_SLICES_MAX: Final = 16
_PAGE_BYTES: Final = 4 << 20
_EVERYTHING: Final = 1 << 62

_log: Final = logging.getLogger("peeklock.spark")
_clients: Final[dict[tuple[int, Access], JournalClient]] = {}


@final
class JournalSlice(InputPartition):
    """The positions of one partition that a task reads, what its lanes are called, and whose
    they are: another entity of the same name has positions of its own."""

    def __init__(
        self,
        entity: str,
        incarnation: str,
        partition: int,
        first: int,
        until: int,
        lanes: dict[int, str],
    ) -> None:
        super().__init__((partition, first, until))
        self.entity = entity
        self.incarnation = incarnation
        self.partition = partition
        self.first = first
        self.until = until
        self.lanes = lanes


def client_of(access: Access) -> JournalClient:
    """Return this process's reader of journals."""
    key = (os.getpid(), access)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = JournalClient(
            access.connection_string,
            http_port=access.http_port,
            ca_file=access.ca_file,
            timeout_s=access.timeout_ms / 1000,
            deadline_s=access.retry_deadline_ms / 1000,
        )
    return client


@final
class JournalReader(DataSourceReader):
    """All facts that are still there."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[JournalSlice]:
        """Divide what is there among tasks."""
        described = client_of(self._options.access).describe(self._options.entity)
        slices = [
            piece
            for part in described.partitions
            if part.is_available
            for piece in divided(self._options, described, part.index, part.first, part.next)
        ]
        return slices or [JournalSlice(described.entity, described.incarnation, 0, 0, 0, {})]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the facts of a slice."""
        assert isinstance(partition, JournalSlice), partition
        return read_slice(self._options, self._columns, partition, is_batch=True)


@final
class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Facts as they come, from where the checkpoint says."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._upto: dict[int, int] | None = None
        self._described: JournalDescription | None = None
        # The last offset that was seen: before 4.2 Spark does not say where a batch starts.
        self._last: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin where the options say; where that is, is found with the first batch."""
        start = LATEST if self._options.span.is_latest else ""
        return PlaceOffset(JOURNAL, self._options.entity, {}, start).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many facts a batch has at most, about; bytes are estimated here."""
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the journal ends now."""
        self._upto = {part.index: part.next for part in self._describe().partitions}

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Go on in each partition, by its share of the limits."""
        if start is None:
            start = self._last or self.initialOffset()
        options = self._options
        rows, size, everything = limits_of(limit, options.rows_max, options.bytes_max)
        offset = PlaceOffset.read(start, JOURNAL, options.entity)
        described = self._describe()
        places = {} if self._is_another(offset, described) else dict(offset.places)
        parts = [part for part in described.partitions if part.is_available]
        for part in parts:
            if offset.start == LATEST:
                places[part.index] = part.next
                continue
            first = self._first(part, places.get(part.index))
            end = part.next if self._upto is None else self._upto.get(part.index, first)
            if not everything:
                share = max(1, len(parts))
                end = min(end, first + self._span(part, first, end, rows // share, size // share))
            if end > first or part.index in places:
                places[part.index] = max(first, end)
        end_offset = PlaceOffset(JOURNAL, options.entity, places, _of(described))
        is_same = places == offset.places and offset.start in ("", end_offset.start)
        self._last = start if is_same else end_offset.json()
        return self._last

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the journal ends, for the progress events."""
        described = self._describe()
        return {"next": {str(part.index): part.next for part in described.partitions}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[JournalSlice]:
        """Divide the positions between two offsets among tasks."""
        self._last = end
        begin = PlaceOffset.read(start, JOURNAL, self._options.entity)
        until = PlaceOffset.read(end, JOURNAL, self._options.entity)
        if begin.start == LATEST or begin == until:
            return []
        described = self._described or self._describe()
        if self._is_another(until, described):
            return []
        firsts = {part.index: part.first for part in described.partitions}
        # Positions of an entity that had the name before mean nothing in this one.
        places = begin.places if begin.start in ("", until.start) else {}
        slices: list[JournalSlice] = []
        for index, last in sorted(until.places.items()):
            oldest = firsts.get(index, 0)
            first = places.get(index, oldest)
            if not self._options.fails_on_loss:
                first = max(first, oldest)
            slices += divided(self._options, described, index, first, last)
        return slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the facts of a slice."""
        assert isinstance(partition, JournalSlice), partition
        return read_slice(self._options, self._columns, partition, is_batch=False)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing was changed, so that there is nothing to end."""

    def stop(self) -> None:
        """Nothing is held."""

    def _describe(self) -> JournalDescription:
        self._described = client_of(self._options.access).describe(self._options.entity)
        return self._described

    def _is_another(self, offset: PlaceOffset, described: JournalDescription) -> bool:
        """Return whether the entity was deleted and made again since the offset was written."""
        if offset.start in ("", LATEST, _of(described)):
            return False
        made_again(self._options)
        return True

    def _first(self, part: JournalPartition, place: int | None) -> int:
        """Find where to go on; what retention has dropped is a loss."""
        if place is None:
            return part.first
        if place < part.first:
            lost(
                self._options,
                f"positions {place} to {part.first - 1} of partition {part.index} of "
                f"'{self._options.entity}' are gone from its journal: retention is shorter than "
                "this query was away",
            )
        return max(place, part.first)

    def _span(self, part: JournalPartition, first: int, end: int, rows: int, size: int) -> int:
        """Return how many positions are within the limits; their size is judged by the first
        ones."""
        if end - first <= _PROBED:
            return max(1, rows)
        client = client_of(self._options.access)
        page = client.page(self._options.entity, part.index, first, _PROBE_BYTES)
        seen = max(1, page.next - first)
        mean = max(1, sum(map(len, page.chunks)) // seen)
        return max(1, min(rows, size // mean))


def _of(described: JournalDescription) -> str:
    return f"@{described.incarnation}"


def lost(options: SourceOptions, text: str) -> None:
    """Fail, or say so and go on."""
    if options.fails_on_loss:
        raise DataLoss(f"{text}. To go on without it set option failOnDataLoss to false.")
    _log.warning("%s", text)


def made_again(options: SourceOptions) -> None:
    """Tell that another entity has the name now."""
    lost(
        options,
        f"'{options.entity}' was deleted and made again: what was left of its journal is gone",
    )


def divided(
    options: SourceOptions, described: JournalDescription, partition: int, first: int, until: int
) -> list[JournalSlice]:
    """Divide a span of positions among tasks of about the same length."""
    if until <= first:
        return []
    by_size = min(_SLICES_MAX, 1 + (until - first) // _SLICE_POSITIONS)
    wished = -(-options.partitions_min // max(1, len(described.partitions)))
    count = min(until - first, max(by_size, wished))
    bounds = [first + (until - first) * at // count for at in range(count + 1)]
    return [
        JournalSlice(described.entity, described.incarnation, partition, low, high, described.lanes)
        for low, high in pairwise(bounds)
    ]


def read_slice(
    options: SourceOptions, columns: Columns, part: JournalSlice, *, is_batch: bool
) -> Iterator[pa.RecordBatch]:
    """Fetch chunks page by page, and make rows of them."""
    client = client_of(options.access)
    span = options.span
    by_time = span.from_instant >= 0 or span.until_instant >= 0
    schema = columns.arrow
    if by_time and "at" not in columns:
        schema = schema.append(pa.field("at", pa.timestamp("us", tz="UTC")))
    decoder = FactDecoder(
        part.entity,
        part.partition,
        part.lanes,
        schema=schema,
        include_body=options.include_body,
    )
    for at, page in ahead(_pages(client, options, part)):
        if page.incarnation != part.incarnation:
            made_again(options)
            return
        for chunk in page.chunks:
            decoder.add(chunk, part.first, part.until)
        if page.first > at and not is_batch:
            lost(options, f"positions before {page.first} of '{part.entity}' are gone meanwhile")
        if decoder.count:
            batch = decoder.take()
            yield within(batch, span).select(columns.names) if by_time else batch


def _pages(
    client: JournalClient, options: SourceOptions, part: JournalSlice
) -> Iterator[tuple[int, FetchedPage]]:
    """Fetch one page after the other, each with the position that was asked for."""
    at = part.first
    while at < part.until:
        page = client.page(options.entity, part.partition, at, _PAGE_BYTES)
        yield at, page
        if page.next <= at:
            return
        at = page.next


def within(batch: pa.RecordBatch, span: Span) -> pa.RecordBatch:
    """Keep what happened in the time that was asked for."""
    at = pc.cast(batch.column("at"), pa.int64())
    until = span.until_instant * 1000 if span.until_instant >= 0 else _EVERYTHING
    low = pc.greater_equal(at, max(0, span.from_instant) * 1000)
    return batch.filter(pc.and_(low, pc.less(at, until)))
