"""The columns of the source, written by hand in Spark's types and in Arrow's.

Arrow batches must have exactly the declared types: instants in microseconds of UTC, binary and
string in their short forms. Anybody may ask for fewer columns, in any order, by `.schema(...)`.
"""

from typing import Final, final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_INSTANT: Final = pa.timestamp("us", tz="UTC")
_ARROW: Final[dict[str, pa.DataType]] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": _INSTANT,
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}

# Every column with its type, in the order in which `load()` shows them.
MESSAGE_COLUMNS: Final[dict[str, DataType]] = {
    "sequence_number": LongType(),
    "enqueued_time": TimestampType(),
    "message_id": StringType(),
    "session_id": StringType(),
    "partition_key": StringType(),
    "subject": StringType(),
    "correlation_id": StringType(),
    "content_type": StringType(),
    "to": StringType(),
    "reply_to": StringType(),
    "body": BinaryType(),
    "application_properties": MapType(StringType(), StringType()),
    "delivery_count": IntegerType(),
    "state": StringType(),
    "expires_at": TimestampType(),
    "scheduled_enqueue_time": TimestampType(),
    "dead_letter_reason": StringType(),
    "dead_letter_description": StringType(),
    "dead_letter_source": StringType(),
    "entity": StringType(),
    "partition_id": IntegerType(),
    "body_section": StringType(),
    "properties_json": StringType(),
    "error": StringType(),
}

JOURNAL_COLUMNS: Final[dict[str, DataType]] = {
    "at": TimestampType(),
    "entity": StringType(),
    "sub_entity": StringType(),
    "partition_id": IntegerType(),
    "position": LongType(),
    "op": StringType(),
    "sequence_number": LongType(),
    "message_id": StringType(),
    "session_id": StringType(),
    "delivery_count": IntegerType(),
    "bytes": LongType(),
    "consumer": StringType(),
    "reason": StringType(),
    "description": StringType(),
    "destination": StringType(),
    "body": BinaryType(),
}

# A body is bytes; who knows that it is text may say so.
_ALSO: Final[dict[str, tuple[str, ...]]] = {"body": ("string",)}


class SchemaProblem(ValueError):
    """Columns were asked for that the source does not have."""


def struct_of(columns: dict[str, DataType]) -> StructType:
    """Return all columns as Spark's type of a row."""
    return StructType([StructField(name, kind, True) for name, kind in columns.items()])


@final
class Columns:
    """The columns that a reader was asked for, known to exist and to have the right types."""

    def __init__(self, schema: StructType, known: dict[str, DataType]) -> None:
        for field in schema.fields:
            _check(field, known)
        self.names = [field.name for field in schema.fields]
        self.kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        self._arrow: pa.Schema | None = None

    def __contains__(self, name: object) -> bool:
        return name in self.kinds

    @property
    def arrow(self) -> pa.Schema:
        """The same columns as Arrow has them."""
        if self._arrow is None:
            self._arrow = pa.schema([(name, _ARROW[self.kinds[name]]) for name in self.names])
        return self._arrow

    def __getstate__(self) -> dict[str, object]:
        return {"names": self.names, "kinds": self.kinds, "_arrow": None}


def _check(field: StructField, known: dict[str, DataType]) -> None:
    kind = known.get(field.name)
    if kind is None:
        raise SchemaProblem(
            f"the source has no column '{field.name}'; it has {', '.join(known)}"
            + _near(field.name, known)
        )
    allowed = (kind.simpleString(), *(_ALSO.get(field.name, ())))
    if field.dataType.simpleString() not in allowed:
        raise SchemaProblem(
            f"column '{field.name}' is {' or '.join(allowed)}, "
            f"not {field.dataType.simpleString()}; cast it after loading"
        )


def _near(name: str, known: dict[str, DataType]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), known, 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
