"""Where Spark finds the data source `servicebus` by itself: any module `pyspark_*` is looked at.

A module of that name that cannot be imported hides the sources of all others, so that nothing is
imported here but what every PySpark 4 has.
"""

from peeklock.spark.data_sources import ServiceBusSource as DefaultSource
from peeklock.version import VERSION

__version__ = VERSION
__all__ = ["DefaultSource", "__version__"]
