"""Where Spark finds the data source `servicebus_lake` by itself, as it finds `servicebus`."""

from peeklock.spark.data_sources import LakeSource as DefaultSource

__all__ = ["DefaultSource"]
