"""Delta tables read by Spark without Delta's jars: the log is read here, the files by Spark."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def is_table(path: str) -> bool:
    """Whether a Delta table is there."""
    try:
        from deltalake import DeltaTable
    except ImportError:
        return False
    return DeltaTable.is_deltatable(path)


def read(spark: "SparkSession", path: str) -> "DataFrame":
    """Read the newest version of a table."""
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    table = DeltaTable(path)
    # Delta writes its schema in Spark's own form.
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", path).parquet(*files)
