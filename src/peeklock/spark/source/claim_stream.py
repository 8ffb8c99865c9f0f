"""Mode claim as a stream: messages are claimed, read by tasks, and settled after Spark's commit.

The same class serves PySpark 4.0 to 4.3. Spark builds readers in several processes: making one
opens nothing, and one that travels leaves its planner behind.
"""

from collections.abc import Callable, Iterator
from typing import Any, final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from peeklock.spark.ahead import ahead
from peeklock.spark.entity_client import EntityClient
from peeklock.spark.offsets import ClaimOffset, pack, unpack
from peeklock.spark.options import SourceOptions
from peeklock.spark.schema import Columns
from peeklock.spark.source.arrow import Decoder, number_of, wants_body
from peeklock.spark.source.claim_keeper import (
    AUTO,
    DEAD_LETTERS,
    DEFERRAL,
    SUSPENDED,
    BrokerClaimKeeper,
    ClaimKeeper,
    keeps_claims,
)
from peeklock.spark.source.claim_planner import ClaimPlanner, data_loss
from peeklock.spark.source.deferral import DeferralClaimKeeper
from peeklock.spark.versions import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    limits_of,
)

BAD_RECORD = "SparkBadRecord"


@final
class ClaimSlice(InputPartition):
    """The messages that one task reads, and where claims are kept."""

    def __init__(self, packed: str, keeper: str) -> None:
        super().__init__(packed)
        self.packed = packed
        self.ledger = keeper


def open_claim_keeper(options: SourceOptions, kind: str) -> ClaimKeeper:
    """Open the keeper of this kind; `auto` asks the broker whether it keeps claims."""
    wire = EntityClient.to(options.access, options.entity)
    is_deferral = kind == DEFERRAL or (kind == AUTO and not keeps_claims(wire))
    return DeferralClaimKeeper(wire, options) if is_deferral else BrokerClaimKeeper(wire, options)


@final
class ClaimStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark calls; the decisions are those of `ClaimPlanner`."""

    def __init__(
        self,
        options: SourceOptions,
        columns: Columns,
        connect: Callable[[SourceOptions, str], ClaimKeeper] = open_claim_keeper,
    ) -> None:
        self._options = options
        self._columns = columns
        self._connect = connect
        self._book: ClaimPlanner | None = None
        # The last offset that was seen: before 4.2 Spark does not say where a batch starts.
        self._last: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_book": None, "_last": None}

    # --- on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin with no message."""
        return ClaimOffset(self._options.entity, 0, "").json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how many rows a batch has at most; bytes are watched here."""
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember what is there now."""
        self._opened().stop_at_what_is_there()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Settle the batch before, and claim the next."""
        if start is None:
            start = self._last or self.initialOffset()
        rows, size, everything = limits_of(limit, self._options.rows_max, self._options.bytes_max)
        begin = ClaimOffset.read(start, self._options.entity)
        end = self._opened().latest(begin, rows, size, everything=everything)
        self._last = start if end is begin else end.json()
        return self._last

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Tell the backlog: it appears in the progress events of the query."""
        return self._opened().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[ClaimSlice]:
        """Divide a batch among tasks."""
        self._last = end
        entity = self._options.entity
        begin, until = ClaimOffset.read(start, entity), ClaimOffset.read(end, entity)
        if begin == until:
            return []
        planner = self._opened()
        return [
            ClaimSlice(pack(numbers), planner.keeper_kind) for numbers in planner.plan(begin, until)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Settle what Spark has committed."""
        self._opened().commit(ClaimOffset.read(end, self._options.entity))

    def stop(self) -> None:
        """Nothing depends on this: Spark seldom calls it."""

    def _opened(self) -> ClaimPlanner:
        if self._book is None:
            keeper = self._connect(self._options, self._options.ledger)
            self._book = ClaimPlanner(self._options, keeper)
        return self._book

    # --- in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Fetch the messages of a slice; as often as Spark likes, and twice at once."""
        assert isinstance(partition, ClaimSlice), partition
        options, columns = self._options, self._columns
        keeper = self._connect(options, partition.ledger)
        decoder = Decoder(
            columns,
            options.entity,
            bad_records=options.bad_records,
            include_body=options.include_body,
        )
        omit_body = not wants_body(columns, options.include_body)
        numbers = unpack(partition.packed)
        at = 0
        for page in ahead(keeper.fetch(numbers, omit_body=omit_body)):
            asked = numbers[at : at + page.looked_at]
            at += page.looked_at
            if len(page.payloads) < len(asked):
                self._missed(keeper, asked, page.payloads)
            if page.payloads:
                yield decoder.batch(page.payloads)
        for number, problem in decoder.bad:
            note = {"deadletter-reason": BAD_RECORD, "deadletter-description": problem[:4096]}
            keeper.settle([number], SUSPENDED, note=note)

    def _missed(self, keeper: ClaimKeeper, asked: list[int], payloads: list[bytes]) -> None:
        """Decide on messages that are gone; where the job settles by itself, they are done."""
        options = self._options
        if options.is_manual or not options.fails_on_loss:
            return
        found = {number_of(payload) for payload in payloads}
        gone = [number for number in asked if number not in found]
        if options.bad_records == "deadletter":
            # An earlier attempt of this task has put them there.
            buried = {number_of(head) for head in keeper.heads(gone, DEAD_LETTERS)}
            gone = [number for number in gone if number not in buried]
        if gone:
            raise data_loss(options.entity, gone)
