"""The data source `servicebus_lake`, as Spark finds it.

What needs more than PySpark is imported when it is asked for, so that finding it is cheap and
cannot fail.
"""

from typing import TYPE_CHECKING, Final, final

from pyspark.sql.datasource import DataSource, DataSourceWriter
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter

NAME: Final = "servicebus_lake"


@final
class LakeSource(DataSource):
    """What `.format("servicebus_lake")` is; it is written only."""

    @classmethod
    def name(cls) -> str:
        """Say what it is called."""
        return NAME

    def schema(self) -> StructType:
        """Say that there is nothing to read here."""
        from peeklock.spark.options import OptionProblem

        raise OptionProblem(f"{NAME} is written; read it as what it is, with delta or parquet")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a DataFrame."""
        from peeklock.spark.lake import LakeBatchWriter, layout_of

        return LakeBatchWriter(layout_of(self.options, schema, overwrite))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamWriter":
        """Make the writer of a query."""
        from peeklock.spark.lake import LakeStreamWriter, layout_of

        return LakeStreamWriter(layout_of(self.options, schema, overwrite), schema)
