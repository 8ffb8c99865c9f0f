"""What a task of Spark knows of itself, and what stands in for what older versions do not have."""

from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamBase

    HAS_STREAMS_OF_ARROW = True
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamBase

        HAS_STREAMS_OF_ARROW = True
    except ImportError:  # before 4.1, where the tasks of a stream are given rows
        from pyspark.sql.datasource import DataSourceStreamWriter as StreamBase

        HAS_STREAMS_OF_ARROW = False

__all__ = ["HAS_STREAMS_OF_ARROW", "StreamBase", "partition_of_task", "query_of_task"]

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


def partition_of_task() -> int:
    """Return the number of the partition that this task is for; 0 outside of any."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def query_of_task() -> tuple[str, int]:
    """Return the id of the query, which is that of its checkpoint, and the number of its batch."""
    return _told(_QUERY), int(_told(_BATCH))


def _told(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise RuntimeError(f"Spark does not say {name} to the task of a stream")
    return value
