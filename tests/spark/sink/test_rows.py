"""Versions that hand over rows (4.0, in streams) send the same as those that hand over Arrow."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from peeklock.spark.rows import record_batches
from tests.spark.structs import struct


def test_rows_are_gathered_into_batches_of_the_right_types() -> None:
    schema = struct(
        "body struct, message_id string, count long, at timestamp, application_properties map"
    )
    moment = datetime(2026, 11, 15, tzinfo=UTC)
    rows = [
        Row(
            body=Row(a=number),
            message_id=None,
            count=number,
            at=moment,
            application_properties={"k": "v"} if number else None,
        )
        for number in range(10_001)
    ]
    first, second = record_batches(iter(rows), schema)
    assert (len(first), len(second)) == (10_000, 1)
    assert first.schema.names == schema.fieldNames()
    assert first.column("message_id").type == pa.string()
    assert first.column("at").to_pylist()[0] == moment
    assert first.column("body").to_pylist()[:2] == [{"a": 0}, {"a": 1}]
    assert first.column("application_properties").to_pylist()[:2] == [None, [("k", "v")]]
    assert list(record_batches(iter([]), schema)) == []


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker whose clock on the wall is nine hours ahead."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_instants_without_a_zone_are_local_times() -> None:
    """Spark hands timestamps to Python in the time zone of the worker, and does not say so."""
    local = datetime(2026, 11, 15, 21, 30)
    moment = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)
    inner = StructType(
        [
            StructField("when", TimestampType()),
            StructField("times", ArrayType(TimestampType())),
            StructField("wall", TimestampNTZType()),
        ]
    )
    schema = StructType(
        [
            StructField("body", inner),
            StructField("at", TimestampType()),
            StructField("application_properties", MapType(StringType(), TimestampType())),
        ]
    )
    row = Row(
        body=Row(when=local, times=[local, None], wall=local),
        at=local,
        application_properties={"k": local},
    )
    told = Row(body=None, at=moment, application_properties=None)
    (batch,) = record_batches(iter([row, told]), schema)
    assert batch.to_pylist() == [
        {
            "body": {"when": moment, "times": [moment, None], "wall": local},
            "at": moment,
            "application_properties": [("k", moment)],
        },
        {"body": None, "at": moment, "application_properties": None},
    ]
