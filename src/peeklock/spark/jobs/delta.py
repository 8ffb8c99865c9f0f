"""Delta tables read by Spark without Delta's jars: the log is read here, the files by Spark."""

import json
import posixpath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FILE: Final = "_file_of_table"


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
    divided_by = list(table.metadata().partition_columns)
    kept = StructType([field for field in schema if field.name not in divided_by])
    rows = spark.read.schema(kept).parquet(*files)
    if divided_by:
        rows = _with_values(rows, table, StructType([schema[name] for name in divided_by]))
    return rows.select(*schema.names)


def _with_values(rows: "DataFrame", table: "DeltaTable", columns: "StructType") -> "DataFrame":
    """Rows with the columns that the table is divided by, as its log has them: directories are for
    people, and need not say the same."""
    import pyarrow as pa
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StringType, StructType

    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    values = [
        (posixpath.basename(one["path"]), *(one[f"partition.{name}"] for name in columns.names))
        for one in actions
    ]
    known = StructType().add(_FILE, StringType())
    for column in columns:
        known = known.add(column)
    files = rows.sparkSession.createDataFrame(values, known)
    named = rows.withColumn(_FILE, fn.col("_metadata.file_name"))
    return named.join(fn.broadcast(files), _FILE)
