"""Source, sink and lake through Spark Connect, where the client has neither JVM nor context."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.environments import BRIEF
from tests.spark.spark_broker import Bus

# A process of its own: one that has a classic session can have no other.
PROGRAM = """
import sys
from peeklock.spark import lake
from peeklock.spark.jvm import session

options, source, target, directory = eval(sys.argv[1]), *sys.argv[2:]
conf = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "10ms",
}
spark = session("connect", remote="local[2]", **conf)
rows = spark.readStream.format("servicebus").options(**options, queue=source).load()
query = (
    rows.selectExpr("body", "message_id", "upper(subject) as subject")
    .writeStream.format("servicebus").options(**options, queue=target)
    .option("checkpointLocation", directory + "/c1").trigger(availableNow=True).start()
)
query.awaitTermination()
batch = spark.read.format("servicebus").options(**options, queue=target).load()
print("peeked", batch.count(), type(spark).__module__)
again = spark.readStream.format("servicebus").options(**options, queue=target).load()
query = lake.write_stream(
    again, directory + "/lake", checkpoint=directory + "/c2", trigger={"availableNow": True}
)
query.awaitTermination()
spark.stop()
"""


@pytest.mark.timeout(400)
def test_a_connect_session_reads_sends_and_captures(bus: Bus, tmp_path: Path) -> None:
    source, target = bus.queue(), bus.queue()
    bus.send(source, ["a", "b", "c"], subject="x")
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, repr(bus.options), source, target, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | BRIEF,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip().splitlines()[-1] == "peeked 3 pyspark.sql.connect.session"
    assert bus.peek(source) == []
    assert bus.peek(target) == []
    table = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()
    found = zip(table["body"].to_pylist(), table["subject"].to_pylist(), strict=True)
    assert sorted(found) == [(b"a", "X"), (b"b", "X"), (b"c", "X")]
