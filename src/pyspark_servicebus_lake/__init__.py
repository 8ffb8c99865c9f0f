"""Lets Spark find `format("servicebus_lake")` by itself, as it finds `servicebus`."""

from peeklock.spark.lake import LakeSource


class DefaultSource(LakeSource):
    """The lake under the name by which Spark looks for it."""
