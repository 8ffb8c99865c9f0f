"""Where Spark finds the data source `servicebus_lake` by itself, as it finds `servicebus`."""

from peeklock.spark.lake_source import LakeSource as DefaultSource

__all__ = ["DefaultSource"]
