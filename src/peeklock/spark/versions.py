"""What PySpark has from 4.2 on, and what stands in for it before."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable as ReadAllAvailable,
    )
    from pyspark.sql.streaming.datasource import (
        ReadLimit as ReadLimit,
    )
    from pyspark.sql.streaming.datasource import (
        ReadMaxBytes as ReadMaxBytes,
    )
    from pyspark.sql.streaming.datasource import (
        ReadMaxRows as ReadMaxRows,
    )
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """How much a batch may have; Spark asks nobody for it before 4.2."""

        @final
        @dataclass(slots=True)
        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @final
        @dataclass(slots=True)
        class ReadMaxRows(ReadLimit):
            """A limit in rows."""

            max_rows: int

        @final
        @dataclass(slots=True)
        class ReadMaxBytes(ReadLimit):
            """A limit in bytes."""

            max_bytes: int

        class SupportsTriggerAvailableNow:
            """Says nothing before 4.2, where AvailableNow is one batch."""


def limits_of(limit: Any, rows_max: int, bytes_max: int) -> tuple[int, int, bool]:
    """Return how many rows and bytes a batch may have, and whether it is to take everything."""
    if isinstance(limit, ReadAllAvailable):
        return rows_max, bytes_max, True
    if isinstance(limit, ReadMaxRows):
        return min(rows_max, limit.max_rows), bytes_max, False
    if isinstance(limit, ReadMaxBytes):
        return rows_max, min(bytes_max, limit.max_bytes), False
    return rows_max, bytes_max, False
