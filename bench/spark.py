"""How many rows per second go from the bus into Spark and back?

The source and the sink beside what people write today, a `foreachBatch` loop around the official
client, and beside Spark itself with a source that makes the same rows out of nothing. A query's
first batch starts workers and is not counted.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bench import client
from bench.figures import machine, median, spread, table, verdict
from bench.loads import Flood
from bench.peeklock_server import QUEUE, Peeklock
from bench.plan import Plan
from bench.spark_rows import BODY, Nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROOT: Final = Path(__file__).resolve().parent.parent
MESSAGES: Final = 200_000
PER_BATCH: Final = 50_000
# The loop takes as long for a tenth of them; it asks for as many as the official client gives well.
LOOP_SHARE: Final = 10
LOOP_BATCH: Final = 1_000
# Room for all that is sent and never received.
PROPERTIES: Final = {"MaxSizeInMegabytes": 5120, "LockDuration": "PT5M"}


@dataclass(frozen=True)
class Run:
    """Rows and the seconds that they took."""

    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def answer(plan: Plan) -> None:
    """Measure each way in turn, in interleaved rounds, and print medians and ratios."""
    print(machine(plan.directory))
    messages = MESSAGES // (20 if plan.quick else 1)
    found: dict[str, list[Run]] = {}
    with Peeklock(plan.directory, "compiled", properties=PROPERTIES) as server:
        spark = _session()
        try:
            ways = _Ways(spark, server, plan.directory, messages)
            ways.warm_up()
            for turn in range(plan.rounds):
                for title, way in ways.all().items():
                    run = way(turn)
                    print(f"{title}: {run.rate:,.0f} rows/s", flush=True)
                    found.setdefault(title, []).append(run)
        finally:
            spark.stop()
    _tell(found, plan)


def _tell(found: dict[str, list[Run]], plan: Plan) -> None:
    rates = {title: median([run.rate for run in runs]) for title, runs in found.items()}
    rows = [
        [title, f"{rates[title]:,.0f}", spread([run.rate for run in runs]), f"{runs[0].rows:,}"]
        for title, runs in found.items()
    ]
    columns = ["rows of 1 KB", "rows/s", "spread", "rows each time"]
    table(f"The bus in Spark, medians of {plan.rounds} interleaved rounds", columns, rows)
    print()
    source, sink = rates["source: claim"], rates["sink: staged"]
    print(verdict("source beside the loop", source / rates["loop: receive"], "times", least=10))
    print(f"sink beside the loop: {sink / rates['loop: send']:.1f} times")
    print(f"source beside Spark alone: {source / rates['Spark alone']:.2f}")


class _Ways:
    """The ways that are measured; each leaves the queue as empty as it found it."""

    def __init__(
        self, spark: "SparkSession", server: Peeklock, directory: Path, messages: int
    ) -> None:
        self._spark = spark
        self._server = server
        self._directory = directory
        self._messages = messages
        self._connection = server.connection_string
        spark.dataSource.register(Nothing)

    def all(self) -> dict[str, Callable[[int], Run]]:
        """Give the ways by their titles."""
        return {
            "Spark alone": self._alone,
            "source: claim": self._claim,
            "source: journal": self._journal,
            "loop: receive": self._loop_receive,
            "sink: staged": self._sink,
            "loop: send": self._loop_send,
        }

    def warm_up(self) -> None:
        """Let the JVM compile and the workers start."""
        self._fill(LOOP_BATCH)
        self._claim(-1, fill=False)
        self._sink(-1, LOOP_BATCH)
        self._claim(-2, fill=False)

    # --- reading

    def _alone(self, turn: int) -> Run:
        stream = self._spark.readStream.format("nothing").option("rows", self._messages)
        return self._drain(stream.option("perBatch", PER_BATCH).load(), f"alone{turn}")

    def _claim(self, turn: int, fill: bool = True) -> Run:
        if fill:
            self._fill(self._messages)
        stream = self._source().option("maxMessagesPerTrigger", PER_BATCH)
        return self._drain(stream.option("maxBytesPerTrigger", "256m").load(), f"claim{turn}")

    def _journal(self, turn: int) -> Run:
        stream = self._source().option("mode", "journal").option("includeBody", "true")
        return self._drain(stream.option("maxBytesPerTrigger", "64m").load(), f"journal{turn}")

    def _source(self) -> Any:
        stream = self._spark.readStream.format("servicebus").option("queue", QUEUE)
        return stream.option("connectionString", self._connection).option("minPartitions", 2)

    def _drain(self, rows: "DataFrame", name: str) -> Run:
        query = (
            rows.writeStream.format("noop")
            .option("checkpointLocation", str(self._directory / "checkpoints" / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return _steady(query)

    def _loop_receive(self, turn: int) -> Run:
        count = max(3 * LOOP_BATCH, self._messages // LOOP_SHARE)
        self._fill(count)
        taken: list[tuple[int, float]] = []

        def take(_rows: "DataFrame", _batch: int) -> None:
            begun = time.perf_counter()
            messages = receiver.receive_messages(LOOP_BATCH, max_wait_time=2)
            rows = [_row(message) for message in messages]
            if rows:
                self._spark.createDataFrame(rows, LOOP_SCHEMA).write.format("noop").mode(
                    "append"
                ).save()
            for message in messages:
                receiver.complete_message(message)
            taken.append((len(messages), time.perf_counter() - begun))

        with (
            ServiceBusClient.from_connection_string(self._connection) as bus,
            bus.get_queue_receiver(QUEUE, prefetch_count=LOOP_BATCH) as receiver,
        ):
            query = self._ticks(f"loop{turn}").foreachBatch(take).start()
            while sum(rows for rows, _ in taken) < count and query.isActive:
                time.sleep(0.02)
            query.stop()
        return Run(sum(rows for rows, _ in taken[1:]), sum(took for _, took in taken[1:]))

    def _ticks(self, name: str) -> Any:
        rows = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        place = str(self._directory / "checkpoints" / name)
        return rows.writeStream.option("checkpointLocation", place)

    # --- writing

    def _rows(self, count: int) -> "DataFrame":
        body = BODY.decode()
        rows = self._spark.range(0, count, numPartitions=2)
        return rows.selectExpr(f"cast('{body}' as binary) as body", "cast(id as string) as subject")

    def _sink(self, turn: int, count: int = 0) -> Run:
        begun = time.perf_counter()
        writer = self._rows(count or self._messages).write.format("servicebus").mode("append")
        writer = writer.option("connectionString", self._connection).option("queue", QUEUE)
        writer.option("writeId", f"bench{turn}").save()
        run = Run(count or self._messages, time.perf_counter() - begun)
        if turn >= 0:
            self._claim(turn + 1_000_000, fill=False)
        return run

    def _loop_send(self, turn: int) -> Run:
        count = max(3 * LOOP_BATCH, self._messages // LOOP_SHARE)
        sent: list[tuple[int, float]] = []

        def give(_rows: "DataFrame", _batch: int) -> None:
            begun = time.perf_counter()
            rows = self._rows(LOOP_BATCH).collect()
            batch = sender.create_message_batch()
            for row in rows:
                message = ServiceBusMessage(bytes(row["body"]), subject=row["subject"])
                try:
                    batch.add_message(message)
                except ValueError:  # full
                    sender.send_messages(batch)
                    batch = sender.create_message_batch()
                    batch.add_message(message)
            sender.send_messages(batch)
            sent.append((len(rows), time.perf_counter() - begun))

        with (
            ServiceBusClient.from_connection_string(self._connection) as bus,
            bus.get_queue_sender(QUEUE) as sender,
        ):
            query = self._ticks(f"send{turn}").foreachBatch(give).start()
            while sum(rows for rows, _ in sent) < count and query.isActive:
                time.sleep(0.02)
            query.stop()
        self._claim(turn + 2_000_000, fill=False)
        return Run(sum(rows for rows, _ in sent[1:]), sum(took for _, took in sent[1:]))

    def _fill(self, count: int) -> None:
        client.run(self._server.endpoint, Flood(messages=count, window=1_000, credit=0))


LOOP_SCHEMA: Final = (
    "sequence_number long, enqueued_time timestamp, message_id string, subject string, "
    "body binary, delivery_count int"
)


def _row(message: Any) -> tuple[Any, ...]:
    return (
        message.sequence_number,
        message.enqueued_time_utc,
        message.message_id,
        message.subject,
        b"".join(message.body),
        message.delivery_count,
    )


def _steady(query: "StreamingQuery") -> Run:
    """Count all batches but the first, which starts the workers; a lone one has to do."""
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    counted = batches[1:] or batches
    seconds = sum(p["durationMs"]["triggerExecution"] for p in counted) / 1000
    return Run(sum(p["numInputRows"] for p in counted), seconds)


def _session() -> "SparkSession":
    from peeklock.spark.jvm import session

    # Workers must find the rows of this bench and the compiled form of the engine.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(client.COMPILED), str(ROOT)])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    return session("bench", "local[2]", **settings)
