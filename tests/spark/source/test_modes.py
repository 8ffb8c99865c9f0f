"""Modes peek and receiveAndDelete: on a real broker, most of it without Spark around (R-D1)."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from peeklock.spark.options import source_options
from peeklock.spark.source.peek import PeekReader, PeekStreamReader, divided
from peeklock.spark.source.receive_and_delete import ReceiveAndDeleteStreamReader
from peeklock.spark.versions import ReadAllAvailable, ReadMaxRows
from tests.spark.source.reading import COLUMNS, Reading, claim_keeper
from tests.spark.spark_broker import DEAD_LETTERS, Bus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first test that uses Spark starts it, and streams start processes.
pytestmark = pytest.mark.timeout(400)

Row = dict[str, Any]


def batch(bus: Bus, queue: str, **options: Any) -> list[Row]:
    texts = {key: str(value) for key, value in options.items()}
    given = {**bus.options, "queue": queue, **texts}
    reader = PeekReader(source_options(given, streaming=False), COLUMNS)
    return [
        row
        for partition in reader.partitions()
        for found in reader.read(partition)
        for row in found.to_pylist()
    ]


class Stream:
    """A stream without Spark: one batch at a time, from an offset that the test keeps."""

    def __init__(self, bus: Bus, queue: str, mode: str, **options: Any) -> None:
        texts = {key: str(value) for key, value in options.items()}
        self.options = source_options(
            {**bus.options, "queue": queue, "mode": mode, "maxWait": "0", **texts}, streaming=True
        )
        self.reader = self.fresh()
        self.offset = self.reader.initialOffset()

    def fresh(self) -> PeekStreamReader | ReceiveAndDeleteStreamReader:
        if self.options.mode == "peek":
            return PeekStreamReader(self.options, COLUMNS)
        return ReceiveAndDeleteStreamReader(self.options, COLUMNS)

    def next(self, rows: int = 1_000) -> list[str]:
        """Read one batch; nothing where Spark would plan none."""
        start, self.offset = self.offset, self.reader.latestOffset(self.offset, ReadMaxRows(rows))
        if start == self.offset:
            return []
        return [
            row["body"].decode()
            for partition in self.reader.partitions(start, self.offset)
            for found in self.reader.read(partition)
            for row in found.to_pylist()
        ]


# --- batches


def test_a_batch_shows_everything_and_changes_nothing(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b"], subject="s")
    bus.send(queue, ["later"], at=(time.time_ns() // 1_000_000) + 3_600_000)
    owner = claim_keeper(bus, queue)
    owner.enter()
    owner.claim(1, 0, 1, None)
    rows = batch(bus, queue)
    assert [(row["body"], row["state"]) for row in rows] == [
        (b"a", "claimed"),
        (b"b", "active"),
        (b"later", "scheduled"),
    ]
    assert batch(bus, queue) == rows
    assert rows[2]["scheduled_enqueue_time"] is not None


def test_a_batch_has_spans_of_numbers_and_of_time(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, [f"b-{n}" for n in range(10)])
    rows = batch(bus, queue, startingSequenceNumber=3, endingSequenceNumber=6, minPartitions=3)
    assert [row["sequence_number"] for row in rows] == [3, 4, 5, 6]
    now = time.time_ns() // 1_000_000
    assert len(batch(bus, queue, startingTime=now - 60_000, endingTime=now + 60_000)) == 10
    assert batch(bus, queue, startingTime=now + 60_000) == []
    assert batch(bus, queue, endingTime=now - 60_000) == []
    assert batch(bus, queue, startingSequenceNumber=11) == []


def test_a_batch_of_dead_letters_of_all_partitions(bus: Bus) -> None:
    queue = bus.queue(EnablePartitioning=True, MaxDeliveryCount=1)
    for n in range(8):
        bus.send(queue, [f"b-{n}"])
    bus.fail(queue, 8)
    assert len(bus.peek(queue + DEAD_LETTERS)) == 8
    rows = batch(bus, queue, subQueue="deadLetter")
    assert sorted(row["body"] for row in rows) == [f"b-{n}".encode() for n in range(8)]
    assert len({row["partition_id"] for row in rows}) > 1
    assert {row["dead_letter_reason"] for row in rows} == {"MaxDeliveryCountExceeded"}


def test_a_batch_of_nothing(bus: Bus) -> None:
    assert batch(bus, bus.queue()) == []


def test_spans_are_divided_without_gaps() -> None:
    for first, last, count in ((1, 1, 4), (1, 10, 3), (5, 6, 2), (0, 99, 7)):
        slices = divided(first, last, count)
        numbers = [n for part in slices for n in range(part.first, part.last + 1)]
        assert numbers == list(range(first, last + 1))
        assert len(slices) == min(count, last - first + 1)


def test_a_query_in_sql(spark: "SparkSession", bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, [f"b-{n}" for n in range(600)], subject="s", properties={"k": "v"})
    rows = spark.read.format("servicebus").options(**bus.options).load(queue)
    found = rows.selectExpr(
        "count(*) c", "max(sequence_number) m", "any_value(application_properties['k']) k"
    ).first()
    assert found is not None
    assert (found.c, found.m, found.k) == (600, 600, "v")


# --- peek as a stream


def test_a_peeking_stream_goes_on_where_it_was(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, [f"a-{n}" for n in range(5)])
    stream = Stream(bus, queue, "peek")
    assert stream.next(3) == ["a-0", "a-1", "a-2"]
    stream.reader = stream.fresh()
    assert stream.next(3) == ["a-3", "a-4"]
    assert stream.next(3) == []
    bus.send(queue, ["b"])
    assert stream.next(3) == ["b"]
    assert len(bus.peek(queue)) == 6


def test_a_peeking_stream_begins_with_the_latest_or_with_a_number(bus: Bus) -> None:
    queue = bus.queue()
    latest = Stream(bus, queue, "peek", startingPosition="latest")
    bus.send(queue, ["old"])
    assert latest.next() == []
    bus.send(queue, ["new"])
    assert latest.next() == ["new"]
    assert Stream(bus, queue, "peek", startingSequenceNumber=2).next() == ["new"]


def test_a_peeking_stream_skips_what_is_gone(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, [f"a-{n}" for n in range(6)])
    stream = Stream(bus, queue, "peek", minPartitions=2)
    assert stream.next(2) == ["a-0", "a-1"]
    bus.drain(queue)
    bus.send(queue, ["b"])
    assert stream.next(2) == ["b"]


def test_a_peeking_stream_of_partitions_ends_with_what_was_there(bus: Bus) -> None:
    queue = bus.queue(EnablePartitioning=True)
    for n in range(20):
        bus.send(queue, [f"a-{n:02}"])
    stream = Stream(bus, queue, "peek")
    stream.reader.prepareForTriggerAvailableNow()
    bus.send(queue, ["late"])
    seen: list[str] = []
    while found := stream.next(6):
        assert len(found) <= 6
        seen += found
    assert sorted(seen) == [f"a-{n:02}" for n in range(20)]
    everything = stream.fresh()
    start = everything.initialOffset()
    end = everything.latestOffset(start, ReadAllAvailable())
    assert sum(1 for _ in everything.partitions(start, end)) > 1
    assert everything.latestOffset(end) == end


def test_dead_letters_are_watched_in_spark(spark: "SparkSession", bus: Bus, tmp_path: Path) -> None:
    queue = bus.queue(MaxDeliveryCount=1)
    bus.send(queue, ["a", "b"])
    bus.fail(queue, 2)
    reading = Reading(spark, bus, tmp_path, queue=queue, subQueue="deadLetter", mode="peek")
    reading.run()
    reading.run()
    assert reading.bodies() == ["a", "b"]
    assert len(bus.peek(queue + DEAD_LETTERS)) == 2


# --- receiveAndDelete


def test_taking_empties_a_queue_and_warns(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    queue = bus.queue()
    bus.send(queue, [f"a-{n}" for n in range(5)])
    stream = Stream(bus, queue, "receiveAndDelete", maxMessagesPerTrigger=3, minPartitions=2)
    assert stream.next() == ["a-0", "a-1", "a-2"]
    assert stream.next() == ["a-3", "a-4"]
    assert stream.next() == []
    assert bus.peek(queue) == []
    assert caplog.text.count("loses messages") == 1


def test_taking_ends_with_what_was_there(spark: "SparkSession", bus: Bus, tmp_path: Path) -> None:
    queue = bus.queue()
    bus.send(queue, [f"a-{n}" for n in range(5)])
    reading = Reading(
        spark, bus, tmp_path, queue=queue, mode="receiveAndDelete", maxMessagesPerTrigger=2
    )
    reading.run()
    assert reading.bodies() == [f"a-{n}" for n in range(5)]
    assert bus.peek(queue) == []
