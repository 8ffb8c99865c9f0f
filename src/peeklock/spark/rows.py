"""Rows of Spark as Arrow batches, for versions that hand over rows (4.0, in streams)."""

from collections.abc import Iterator
from datetime import UTC
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

_ROWS: Final = 10_000
_KINDS: Final[dict[type[DataType], pa.DataType]] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    DoubleType: pa.float64(),
    FloatType: pa.float32(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def record_batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Gather rows into batches."""
    while page := list(islice(rows, _ROWS)):
        arrays = [
            _array([row[field.name] for row in page], field.dataType) for field in schema.fields
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=schema.fieldNames())


def _array(values: list[Any], kind: DataType) -> pa.Array:
    plain = [_plain(value, kind) for value in values]
    if isinstance(kind, MapType):
        pairs = [None if value is None else list(value.items()) for value in plain]
        return pa.array(pairs, pa.map_(_kind(kind.keyType), _kind(kind.valueType)))
    # What is not known is a body, which is written as JSON: its own shape says enough.
    return pa.array(plain, _KINDS.get(type(kind)))


def _kind(kind: DataType) -> pa.DataType:
    return _KINDS.get(type(kind), pa.string())


def _plain(value: Any, kind: DataType) -> Any:
    """Return a value as Arrow takes it. Spark tells instants in the zone of the worker, without
    naming it."""
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return value.astimezone(UTC)
    if isinstance(kind, StructType):
        return {field.name: _plain(value[field.name], field.dataType) for field in kind.fields}
    if isinstance(kind, ArrayType):
        return [_plain(one, kind.elementType) for one in value]
    if isinstance(kind, MapType):
        return {key: _plain(one, kind.valueType) for key, one in value.items()}
    return value
