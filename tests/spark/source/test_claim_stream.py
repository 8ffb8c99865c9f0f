"""Mode claim in a real Spark: restarts, sessions, schemas, poison, and who may read (R-D1)."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.source.reading import Reading, claim_keeper, claim_reader
from tests.spark.spark_broker import DEAD_LETTERS, Bus
from tests.wire.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# The first test that uses Spark starts it, and streams start processes.
pytestmark = pytest.mark.timeout(400)


def until(query: "StreamingQuery", done: Callable[[], bool]) -> None:
    """Let a query run until something is so."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, "it does not happen"
        query.awaitTermination(0.05)  # type: ignore[arg-type] # it takes fractions of a second


def test_available_now_leaves_an_empty_queue_and_goes_on_from_its_checkpoint(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    """R-D1: the last batch is settled too, and progress tells the backlog."""
    queue = bus.queue()
    reading = Reading(spark, bus, tmp_path, QUEUENAME=queue, maxEventsPerTrigger=4)
    bus.send(queue, [f"a-{n}" for n in range(10)], subject="s", properties={"k": "v"})
    reading.run()
    assert bus.peek(queue) == []
    bus.send(queue, [f"b-{n}" for n in range(3)])
    reading.run()
    assert bus.peek(queue) == []
    assert reading.bodies() == sorted([f"a-{n}" for n in range(10)] + [f"b-{n}" for n in range(3)])
    first = min(reading.rows(), key=lambda row: row["sequence_number"])
    assert (first["subject"], first["application_properties"]) == ("s", [("k", "v")])
    assert (first["entity"], first["state"], first["error"]) == (queue, "claimed", None)
    reported = [event["sources"][0]["latestOffset"] for event in reading.progress]
    assert '"active": 6' in str(reported[0]).replace("'", '"')


def test_every_stage_of_a_batch_survives_a_restart(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    """R-D1: claimed only; planned and failed; written and failed; committed and not settled."""
    queue = bus.queue()
    bus.send(queue, [f"m-{n}" for n in range(6)])
    reading = Reading(spark, bus, tmp_path, queue=queue, maxMessagesPerTrigger=2)
    # Claimed, and in no offset: two messages belong to a reader that is gone.
    lost = claim_reader(bus, queue, maxMessagesPerTrigger=2)
    lost.latestOffset(lost.initialOffset())
    # In the offset log, and the job fails.
    reading.change = failing
    with pytest.raises(Exception, match="the job has failed"):
        reading.run()
    assert reading.bodies() == []
    assert len(bus.peek(queue)) == 6
    # The sink has it, and the commit log has not: what is written is replaced by the same.
    reading.change = lambda rows: rows
    reading.run()
    assert reading.bodies() == [f"m-{n}" for n in range(6)]
    assert bus.peek(queue) == []
    # Committed, and not settled, because the query was stopped right after.
    bus.send(queue, ["n-0"])
    query = reading.start(available_now=False)
    until(query, lambda: reading.bodies()[-1] == "n-0")
    query.stop()
    bus.send(queue, ["n-1"])
    reading.run()
    assert reading.bodies() == [f"m-{n}" for n in range(6)] + ["n-0", "n-1"]
    assert bus.peek(queue) == []


def failing(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql.functions import udf

    def fail(_number: int) -> int:
        raise RuntimeError("the job has failed")

    broken = udf(fail, "long", useArrow=False)
    return rows.withColumn("sequence_number", broken("sequence_number"))


def test_sessions_are_in_order_and_in_one_task(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    queue = bus.queue(RequiresSession=True)
    for number in range(4):
        for session in ("red", "blue", "green"):
            bus.send(queue, [f"{session}-{number}"], session_id=session)
    reading = Reading(spark, bus, tmp_path, queue=queue, minPartitions=2)
    reading.run()
    tasks = reading.files()
    assert len(tasks) == 2
    assert sum(map(len, tasks)) == 12
    for session in ("red", "blue", "green"):
        numbers = [
            [row["sequence_number"] for row in task if row["session_id"] == session]
            for task in tasks
        ]
        (mine,) = filter(None, numbers)
        assert mine == sorted(mine)
        assert len(mine) == 4
    assert bus.drain(queue, sessions=True) == []


def test_a_schema_may_have_any_columns_in_any_order(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    topic = bus.topic("all")
    bus.send(topic, ["hello"], subject="s")
    reading = Reading(spark, bus, tmp_path, topic=topic, subscription="all")
    reading.schema = "subject string, body string, sequence_number long"
    reading.run()
    assert reading.rows() == [{"subject": "s", "body": "hello", "sequence_number": 1}]


@pytest.mark.parametrize(
    ("options", "schema", "problem"),
    [
        ({"queue": "q", "maxMesagesPerTrigger": "1"}, None, "did you mean maxMessagesPerTrigger"),
        ({}, None, "no entity"),
        ({"queue": "q", "mode": "steal"}, None, "mode is one of claim, peek"),
    ],
)
def test_wrong_options_are_told_by_load(
    spark: "SparkSession", bus: Bus, options: dict[str, str], schema: str | None, problem: str
) -> None:
    with pytest.raises(Exception, match=problem) as caught:
        spark.readStream.format("servicebus").options(**bus.options, **options).load()
    assert "SAS_KEY_VALUE" not in str(caught.value)


def test_wrong_columns_are_told_with_the_right_ones(spark: "SparkSession", bus: Bus) -> None:
    reader = spark.read.format("servicebus").options(**bus.options).schema("subjct string")
    with pytest.raises(Exception, match="did you mean 'subject'"):
        reader.load(bus.queue()).collect()


def test_a_query_that_was_overtaken_ends_with_a_clear_error(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    queue = bus.queue()
    bus.send(queue, ["a"])
    reading = Reading(spark, bus, tmp_path, queue=queue, maxWait="50ms")
    query = reading.start(available_now=False)
    until(query, lambda: reading.bodies() == ["a"])
    claim_keeper(bus, queue).enter()
    with pytest.raises(Exception, match="another query reads"):
        query.awaitTermination(60)


def test_a_broker_that_goes_and_returns_is_waited_for(
    spark: "SparkSession", own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    process = own_broker()
    bus = Bus(process)
    queue = bus.queue()
    bus.send(queue, ["a"])
    reading = Reading(spark, bus, tmp_path, queue=queue)
    query = reading.start(available_now=False)
    until(query, lambda: reading.bodies() == ["a"])
    process.kill()
    process.start()  # which takes a while
    bus.send(queue, ["b"])
    until(query, lambda: reading.bodies() == ["a", "b"])
    assert query.exception() is None
    query.stop()


def test_a_message_that_kills_its_task_is_dead_lettered(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    queue = bus.queue()
    bus.send(queue, [f"m-{n}" for n in range(5)] + ["poison"] + [f"n-{n}" for n in range(2)])
    reading = Reading(
        spark, bus, tmp_path, queue=queue, maxMessagesPerTrigger=8, maxBatchAttempts=1
    )
    reading.change = dying_of_poison
    for _ in range(2):
        # All eight together, then one by one: the poison is the sixth.
        with pytest.raises(Exception, match="this is poison"):
            reading.run()
    reading.run()
    assert reading.bodies() == [f"m-{n}" for n in range(5)] + ["n-0", "n-1"]
    (letter,) = bus.peek(queue + DEAD_LETTERS)
    assert letter["Body"] == "poison"
    assert letter["ApplicationProperties"]["DeadLetterReason"] == "SparkTaskFailed"
    assert bus.peek(queue) == []


def dying_of_poison(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql.functions import udf

    def check(body: bytes) -> bytes:
        if bytes(body) == b"poison":
            raise RuntimeError("this is poison")
        return body

    return rows.withColumn("body", udf(check, "binary", useArrow=False)("body"))


def test_messages_are_deferred_where_the_broker_keeps_no_claims(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    """The way that works on Azure."""
    queue = bus.queue()
    bus.send(queue, [f"m-{n}" for n in range(7)])
    reading = Reading(spark, bus, tmp_path, queue=queue, maxMessagesPerTrigger=3, ledger="deferral")
    reading.change = failing
    with pytest.raises(Exception, match="the job has failed"):
        reading.run()
    reading.change = lambda rows: rows
    reading.run()
    assert reading.bodies() == [f"m-{n}" for n in range(7)]
    assert bus.peek(queue) == []


def test_manual_settlement_leaves_it_to_the_job(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b"])
    reading = Reading(spark, bus, tmp_path, queue=queue, settlement="manual")
    reading.run()
    assert len(bus.peek(queue)) == 2
    settling = claim_keeper(bus, queue)
    assert settling.settle([row["sequence_number"] for row in reading.rows()], "completed") == 2
    assert bus.peek(queue) == []


RETRYING = """
import sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

connection, queue, place = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,3]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

def once(body):
    if TaskContext.get().attemptNumber() < 2:
        raise RuntimeError("not yet")
    return body

rows = spark.readStream.format("servicebus").option("connectionString", connection).load(queue)
rows = rows.withColumn("body", udf(once, "binary", useArrow=False)("body"))
query = (
    rows.writeStream.format("parquet")
    .option("checkpointLocation", place + "/checkpoint")
    .trigger(availableNow=True)
    .start(place + "/rows")
)
query.awaitTermination()
"""


@pytest.mark.timeout(400)
def test_a_task_that_fails_is_tried_again(spark: "SparkSession", bus: Bus, tmp_path: Path) -> None:
    """In a Spark of its own, because the shared one tries nothing twice."""
    queue = bus.queue()
    bus.send(queue, ["a", "b", "c"])
    command: list[Any] = [sys.executable, "-c", RETRYING, bus.connection_string, queue, tmp_path]
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert Reading(spark, bus, tmp_path).bodies() == ["a", "b", "c"]
    assert bus.peek(queue) == []
