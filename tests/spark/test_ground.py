"""What the other tests of Spark stand on: a session that works, a broker that answers."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.spark_broker import DEAD_LETTERS, Bus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_runs_a_stream_with_python_workers(
    spark: "SparkSession", tmp_path: Path, checkpoint: str
) -> None:
    from pyspark.sql.functions import udf

    spark.range(6).write.parquet(str(tmp_path / "in"))
    doubled = udf(lambda number: number * 2, "long", useArrow=False)
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    query = (
        rows.select(doubled("id").alias("id"))
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(100)
    out = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row.id for row in out.collect()) == [0, 2, 4, 6, 8, 10]


def test_the_bus_is_filled_looked_at_and_drained(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b", "c"], subject="letter")
    assert [(one["MessageId"], one["Body"]) for one in bus.peek(queue)] == [
        ("m-0", "a"),
        ("m-1", "b"),
        ("m-2", "c"),
    ]
    bus.fail(queue, 3)
    assert {one["DeliveryCount"] for one in bus.peek(queue)} == {1}
    assert [one["Body"] for one in bus.drain(queue)] == ["a", "b", "c"]
    assert bus.peek(queue) == []
    assert bus.peek(queue + DEAD_LETTERS) == []


def test_sessions_are_drained_one_after_the_other(bus: Bus) -> None:
    queue = bus.queue(RequiresSession=True)
    for session in ("red", "blue"):
        bus.send(queue, [f"{session}-1", f"{session}-2"], session_id=session)
    drained = [one["Body"] for one in bus.drain(queue, sessions=True)]
    assert sorted(drained) == ["blue-1", "blue-2", "red-1", "red-2"]
    assert drained.index("red-1") + 1 == drained.index("red-2")


def test_topics_have_subscriptions(bus: Bus) -> None:
    topic = bus.topic("one", "two")
    bus.send(topic, ["hello"])
    for name in ("one", "two"):
        assert bus.bodies(f"{topic}/Subscriptions/{name}") == ["hello"]
