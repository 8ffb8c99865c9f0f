"""Spark's micro-batch loop as far as a reader sees it, with a crash at any step.

The order of the calls is Spark's: on the driver `latestOffset`, the offset log, `commit` of the
batch before, `partitions`; then tasks, the sink and the commit log. A driver that dies takes its
reader with it; the logs, the sink and the broker stay.
"""

import json
import pickle
from collections.abc import Callable
from typing import Any

from peeklock.client.exceptions import ServiceBusConnectionError
from peeklock.spark.options import SourceOptions, source_options
from peeklock.spark.schema import MESSAGE_COLUMNS, Columns, struct_of
from peeklock.spark.source.claim_keeper import BrokerClaimKeeper, ClaimKeeper
from peeklock.spark.source.claim_stream import ClaimStreamReader
from peeklock.spark.versions import ReadLimit
from tests.spark.source.management_server import ManagementServer

CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=Root;SharedAccessKey=key"
COLUMNS = Columns(struct_of(MESSAGE_COLUMNS), MESSAGE_COLUMNS)


class Crash(BaseException):
    """The driver has died here."""


class Steps:
    """Counts what happens, and dies where it was told to."""

    def __init__(self) -> None:
        self.count = 0
        self.dies_at: set[int] = set()

    def step(self) -> None:
        self.count += 1
        if self.count in self.dies_at:
            raise Crash


class BreakingServer:
    """The server over a connection that may break before or after the broker has acted."""

    def __init__(self, server: ManagementServer, steps: Steps) -> None:
        self.server = server
        self.steps = steps
        # Operations whose next answer is lost, in this order.
        self.calls_lost: list[str] = []

    def manage(
        self,
        operation: str,
        arguments: dict[Any, Any],
        sub_queue: str = "",
        *,
        is_repeatable: bool = True,
    ) -> dict[Any, Any]:
        self.steps.step()
        answer = self.server.manage(operation, arguments, sub_queue)
        self.steps.step()
        if self.calls_lost and self.calls_lost[0] == operation:
            # The broker has acted and nobody heard of it; what may be repeated is, at once.
            self.calls_lost.pop(0)
            if is_repeatable:
                return self.server.manage(operation, arguments, sub_queue)
            raise ServiceBusConnectionError("the line broke")
        return answer


class SimulatedSpark:
    """One query with its checkpoint and an idempotent sink: the last write of a batch counts."""

    def __init__(
        self,
        server: ManagementServer,
        *,
        is_old: bool = False,
        task: Callable[[list[dict[str, Any]]], None] | None = None,
        **options: str,
    ) -> None:
        self.steps = Steps()
        self.server = BreakingServer(server, self.steps)
        self.is_old = is_old
        self.task = task or (lambda _rows: None)
        options.setdefault("maxWait", "0")
        self.options: SourceOptions = source_options(
            {"connectionString": CONNECTION, "queue": "orders", "ledger": "broker", **options},
            streaming=True,
        )
        # The checkpoint, as JSON text, and the sink.
        self.offsets: list[str] = []
        self.committed = 0
        self.sink: dict[int, list[dict[str, Any]]] = {}
        # Whether the first write of a batch counts, as in a table that remembers its writers.
        self.keeps_first = False
        # What each batch gave when it was read for the first time.
        self.first_read: dict[int, list[int]] = {}
        self.reports: list[dict[str, Any]] = []
        self.tasks = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]

    @property
    def numbers(self) -> list[int]:
        return [row["sequence_number"] for row in self.rows]

    def connect(self, options: SourceOptions, kind: str) -> ClaimKeeper:
        return BrokerClaimKeeper(self.server, options)

    def run(self, *, available_now: bool = True, limit: ReadLimit | None = None) -> None:
        """Start the query, as after any crash, and run it until there is nothing new."""
        reader = ClaimStreamReader(self.options, COLUMNS, self.connect)
        if available_now and not self.is_old:
            reader.prepareForTriggerAvailableNow()
        limit = limit or reader.getDefaultReadLimit()
        last = json.loads(self.offsets[-1]) if self.offsets else reader.initialOffset()
        if self.is_old and self.offsets:
            assert reader.partitions(last, last) == []
        if len(self.offsets) > self.committed:
            self._execute(reader, len(self.offsets) - 1)
        while True:
            self.steps.step()
            start = json.loads(json.dumps(last))
            end = reader.latestOffset() if self.is_old else reader.latestOffset(start, limit)
            self.steps.step()
            text = json.dumps(end)
            self.reports.append(reader.reportLatestOffset())
            if text == json.dumps(start):
                return
            self.offsets.append(text)
            self.steps.step()
            if len(self.offsets) > 1:
                reader.commit(start)
            self.steps.step()
            self._execute(reader, len(self.offsets) - 1)
            last = json.loads(text)

    def _execute(self, reader: ClaimStreamReader, batch: int) -> None:
        initial = json.dumps(reader.initialOffset())
        start = json.loads(self.offsets[batch - 1] if batch else initial)
        end = json.loads(self.offsets[batch])
        partitions = reader.partitions(start, end)
        self.steps.step()
        rows: list[dict[str, Any]] = []
        for partition in pickle.loads(pickle.dumps(partitions)):
            self.tasks += 1
            # In an executor another object of the same class reads, which knows nothing.
            reading = ClaimStreamReader(self.options, COLUMNS, self.connect)
            found = [row for one in reading.read(partition) for row in one.to_pylist()]
            self.task(found)
            rows += found
        self.steps.step()
        numbers = [row["sequence_number"] for row in rows]
        if numbers:
            assert self.first_read.setdefault(batch, numbers) == numbers, "a replay differs"
        if not (self.keeps_first and self.sink.get(batch)):
            self.sink[batch] = rows
        self.steps.step()
        self.committed = batch + 1
        self.steps.step()

    def run_through(self, *dies_at: int, attempts: int = 40) -> None:
        """Run to the end, dying at these steps counted from now, starting again each time."""
        self.steps.dies_at = {self.steps.count + step for step in dies_at}
        for _ in range(attempts):
            try:
                self.run()
            except Crash:
                continue
            return
        raise AssertionError("it does not come to an end")
