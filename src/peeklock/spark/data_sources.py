"""The data sources as Spark finds them: `servicebus` and `servicebus_lake`.

What needs more than PySpark is imported when it is asked for, so that finding them is cheap and
cannot fail.
"""

from typing import TYPE_CHECKING, Final, final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter

    from peeklock.spark.options import SourceOptions

LAKE: Final = "servicebus_lake"
_FOR_STREAMS: Final = ("claim", "receiveanddelete")


@final
class ServiceBusSource(DataSource):
    """What `.format("servicebus")` is: Spark makes one with the options, and asks it for the rest.

    All methods raise OptionProblem (a ValueError), which names the option that is wrong and never
    shows a secret.
    """

    @classmethod
    def name(cls) -> str:
        """Return what it is called."""
        return "servicebus"

    def schema(self) -> StructType:
        """Return all columns; here, where errors are shown as they are, options are checked."""
        from peeklock.spark.options import JOURNAL, source_options
        from peeklock.spark.schema import JOURNAL_COLUMNS, MESSAGE_COLUMNS, struct_of

        options = source_options(self.options, streaming=self._is_probably_streaming())
        return struct_of(JOURNAL_COLUMNS if options.mode == JOURNAL else MESSAGE_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what is there, and change nothing."""
        from peeklock.spark.options import JOURNAL, source_options

        options = source_options(self.options, streaming=False)
        if options.mode == JOURNAL:
            return _journal_reader(options, schema)
        from peeklock.spark.schema import MESSAGE_COLUMNS, Columns
        from peeklock.spark.source.peek import PeekReader

        return PeekReader(options, Columns(schema, MESSAGE_COLUMNS))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Read what comes."""
        from peeklock.spark.options import JOURNAL, PEEK, RECEIVE_AND_DELETE, source_options
        from peeklock.spark.schema import MESSAGE_COLUMNS, Columns

        options = source_options(self.options, streaming=True)
        if options.mode == JOURNAL:
            return _journal_stream(options, schema)
        columns = Columns(schema, MESSAGE_COLUMNS)
        if options.mode == PEEK:
            from peeklock.spark.source.peek import PeekStreamReader

            return PeekStreamReader(options, columns)
        if options.mode == RECEIVE_AND_DELETE:
            from peeklock.spark.source.receive_and_delete import ReceiveAndDeleteStreamReader

            return ReceiveAndDeleteStreamReader(options, columns)
        from peeklock.spark.source.claim_stream import ClaimStreamReader

        return ClaimStreamReader(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Send the rows of a batch, or settle the messages that they name."""
        from peeklock.spark.sink.sink_writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamWriter":
        """Send the rows of each batch, or settle the messages that they name."""
        from peeklock.spark.sink.sink_writers import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _is_probably_streaming(self) -> bool:
        """Guess, because Spark does not tell: what only one of them has is checked as that."""
        given = {key.lower(): value.lower() for key, value in self.options.items()}
        mode = given.get("mode", "")
        if mode:
            return mode in _FOR_STREAMS
        return not {"endingsequencenumber", "endingtime"} & given.keys()


@final
class LakeSource(DataSource):
    """What `.format("servicebus_lake")` is; written only; reading raises OptionProblem."""

    @classmethod
    def name(cls) -> str:
        """Return what it is called."""
        return LAKE

    def schema(self) -> StructType:
        """Raise OptionProblem: there is nothing to read here."""
        from peeklock.spark.options import OptionProblem

        raise OptionProblem(f"{LAKE} is written; read it as what it is, with delta or parquet")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a DataFrame."""
        from peeklock.spark.lake.lake_writers import LakeBatchWriter, layout_of

        return LakeBatchWriter(layout_of(self.options, schema, overwrite))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamWriter":
        """Make the writer of a query."""
        from peeklock.spark.lake.lake_writers import LakeStreamWriter, layout_of

        return LakeStreamWriter(layout_of(self.options, schema, overwrite), schema)


def _journal_reader(options: "SourceOptions", schema: StructType) -> DataSourceReader:
    from peeklock.spark.journal.stream import JournalReader
    from peeklock.spark.schema import JOURNAL_COLUMNS, Columns

    return JournalReader(options, Columns(schema, JOURNAL_COLUMNS))


def _journal_stream(options: "SourceOptions", schema: StructType) -> DataSourceStreamReader:
    from peeklock.spark.journal.stream import JournalStreamReader
    from peeklock.spark.schema import JOURNAL_COLUMNS, Columns

    return JournalStreamReader(options, Columns(schema, JOURNAL_COLUMNS))
