"""Lets Spark find `format("servicebus")` by itself: it looks for `DefaultSource` in `pyspark_*`."""
