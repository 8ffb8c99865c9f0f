"""Schemas in Spark's short form, read without a session: that needs a JVM."""

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_KINDS: dict[str, DataType] = {
    "binary": BinaryType(),
    "int": IntegerType(),
    "interval": DayTimeIntervalType(),
    "long": LongType(),
    "map": MapType(StringType(), StringType()),
    "string": StringType(),
    "struct": StructType([StructField("a", LongType())]),
    "timestamp": TimestampType(),
}


def struct(text: str) -> StructType:
    """Read `name type, name type`; `map` is one of texts."""
    pairs = [part.split() for part in text.split(",")]
    return StructType([StructField(name, _KINDS[kind]) for name, kind in pairs])
