"""The data source `servicebus_lake`: streams into Delta tables or Parquet, each batch exactly once.

Spark finds it by itself, as it finds `servicebus`. It is written only; read the lake as what it is,
with `delta` or `parquet`:

    (
        orders.writeStream.format("servicebus_lake")
        .option("kind", "delta")
        .option("checkpointLocation", "/shared/checkpoints/lake")
        .start("/shared/lake/orders")
    )

`peeklock.spark.lake.write_stream` does the same with keywords. Options are listed in
docs/reference/spark-sink.md.
"""

from peeklock.spark.data_sources import LakeSource as DefaultSource

__all__ = ["DefaultSource"]
