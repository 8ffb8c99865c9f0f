"""The data source `servicebus`: queues, topics and subscriptions in Spark, exactly once.

Spark finds it by itself, because it looks at every module `pyspark_*`; `DefaultSource` is what it
takes. Nothing has to be imported:

    orders = (
        spark.readStream.format("servicebus")
        .option("connectionString", BUS)
        .option("queue", "orders")
        .load()
    )
    (
        orders.selectExpr("concat('seen: ', cast(body as string)) as body")
        .writeStream.format("servicebus")
        .option("connectionString", BUS)
        .option("queue", "seen")
        .option("checkpointLocation", "/shared/checkpoints/orders")
        .start()
    )

Where Spark does not find it, because another Python than this one runs its workers, start the
session with `peeklock.spark.session`, or register the class:
`spark.dataSource.register(DefaultSource)`. Options, columns and modes are listed in
docs/reference/spark.md and docs/reference/spark-sink.md.

A module `pyspark_*` that cannot be imported hides the sources of all others, so nothing is imported
here but what every PySpark 4 has.
"""

from peeklock.spark.data_sources import ServiceBusSource as DefaultSource
from peeklock.version import VERSION

__version__ = VERSION
__all__ = ["DefaultSource", "__version__"]
