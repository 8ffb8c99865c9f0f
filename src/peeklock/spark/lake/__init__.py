"""Writes streams into Delta tables or Parquet files, each batch exactly once."""

from peeklock.spark.lake.lake_writers import write_stream
from peeklock.spark.lake.tables import remove_orphans

__all__ = ["remove_orphans", "write_stream"]
