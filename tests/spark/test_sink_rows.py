"""Versions that hand over rows (4.0, in streams) send the same as those that hand over Arrow."""

from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import Row

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
