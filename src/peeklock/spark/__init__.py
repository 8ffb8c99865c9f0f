"""The bus in Spark: a data source and sink written with PySpark, and the jobs that use them.

`session` starts (or finds) a session in which `format("servicebus")` works: with a Java, with the
Python that runs this, and with the source registered.
"""

from peeklock.spark.jvm import session

__all__ = ["session"]
