"""Delta tables read by Spark without Delta's jars: the log is read here, the files by Spark."""

import json
import posixpath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FILE: Final = "_file_of_table"
# Hive's word for a partition without a value.
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


def is_table(path: str) -> bool:
    """Return whether a Delta table is there."""
    try:
        from deltalake import DeltaTable
    except ImportError:
        return False
    return DeltaTable.is_deltatable(path)


def read(spark: "SparkSession", path: str) -> "DataFrame":
    """Read the newest version of a table."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StringType, StructField, StructType

    table = DeltaTable(path)
    # Delta writes its schema in Spark's own form.
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    divided_by = list(table.metadata().partition_columns)
    if not divided_by:
        return spark.read.schema(schema).parquet(*files)
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    told = [name for name in divided_by if all(_is_told(name, action) for action in actions)]
    others = [name for name in divided_by if name not in told]
    # What directories tell is read from them, so that a filter leaves files unread.
    by_directory = StructType(
        [
            StructField(field.name, StringType()) if field.name in others else field
            for field in schema
            if told or field.name not in others
        ]
    )
    reader = spark.read.schema(by_directory)
    rows = (reader.option("basePath", path) if told else reader).parquet(*files)
    if others:
        known = StructType([schema[name] for name in others])
        rows = _with_values(rows.drop(*others), actions, known)
    return rows.select(*schema.names)


def _is_told(name: str, action: dict[str, Any]) -> bool:
    """Return whether a file's directories say the same of a column as the log; they need not."""
    value = action[f"partition.{name}"]
    segment = f"{name}={_NO_VALUE if value is None else value}"
    return segment in action["path"].split("/")[:-1]


def _with_values(
    rows: "DataFrame", actions: list[dict[str, Any]], columns: "StructType"
) -> "DataFrame":
    """Rows with the columns that the table is divided by, as its log has them."""
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StringType, StructType

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
