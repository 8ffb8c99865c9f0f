"""Writes streams into Delta tables or Parquet files, each batch exactly once."""

from peeklock.spark.lake.tables import remove_orphans
from peeklock.spark.lake.writers import write_stream

__all__ = ["remove_orphans", "write_stream"]
