"""Mode journal: facts as a batch and as a stream, on a real broker (R-D1, R-D5)."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from peeklock.spark.journal.stream import JournalReader, JournalStreamReader
from peeklock.spark.options import OptionProblem, source_options
from peeklock.spark.schema import JOURNAL_COLUMNS, Columns, struct_of
from peeklock.spark.source.claim_planner import DataLoss
from peeklock.spark.versions import ReadMaxRows
from tests.spark.source.reading import Reading
from tests.spark.spark_broker import Bus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first test that uses Spark starts it, and streams start processes.
pytestmark = pytest.mark.timeout(400)

COLUMNS = Columns(struct_of(JOURNAL_COLUMNS), JOURNAL_COLUMNS)
Row = dict[str, Any]


def options(bus: Bus, queue: str, *, streaming: bool, **more: Any) -> Any:
    texts = {key: str(value) for key, value in more.items()}
    given = {**bus.options, "queue": queue, "mode": "journal", **texts}
    return source_options(given, streaming=streaming)


def batch(bus: Bus, queue: str, columns: Columns = COLUMNS, **more: Any) -> list[Row]:
    reader = JournalReader(options(bus, queue, streaming=False, **more), columns)
    return [
        row
        for partition in reader.partitions()
        for found in reader.read(partition)
        for row in found.to_pylist()
    ]


def step(reader: JournalStreamReader, start: Row, rows: int = 1_000) -> tuple[Row, list[Row]]:
    end = json.loads(json.dumps(reader.latestOffset(start, ReadMaxRows(rows))))
    found = [
        row
        for partition in reader.partitions(start, end)
        for one in reader.read(partition)
        for row in one.to_pylist()
    ]
    return end, found


def test_a_batch_tells_the_life_of_messages(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b"])
    bus.fail(queue, 1)
    bus.drain(queue)
    rows = batch(bus, queue, minPartitions=2)
    assert [(row["op"], row["sequence_number"]) for row in rows][:2] == [("send", 1), ("send", 2)]
    ops = [row["op"] for row in rows]
    assert ops.count("receive_delete") == 2
    assert {"deliver", "abandon"} <= set(ops)
    assert rows[0]["message_id"] == "m-0"
    assert rows[0]["body"] is None
    assert batch(bus, queue, includeBody="true")[0]["body"].endswith(b"a")


def test_a_batch_may_have_few_columns_and_a_time(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b"])
    from pyspark.sql.types import StringType, StructField, StructType

    few = Columns(StructType([StructField("op", StringType())]), JOURNAL_COLUMNS)
    assert batch(bus, queue, few) == [{"op": "send"}] * 2
    now = time.time_ns() // 1_000_000
    assert batch(bus, queue, few, startingTime=now - 60_000) == [{"op": "send"}] * 2
    assert batch(bus, queue, few, startingTime=now + 60_000) == []
    assert batch(bus, queue, few, endingTime=now - 60_000) == []


def test_a_stream_reads_every_fact_once(bus: Bus) -> None:
    queue = bus.queue(EnablePartitioning=True)
    for n in range(12):
        bus.send(queue, [f"a-{n}"])
    given = options(bus, queue, streaming=True)
    reader = JournalStreamReader(given, COLUMNS)
    reader.prepareForTriggerAvailableNow()
    offset: Row = reader.initialOffset()
    seen: list[Row] = []
    while True:
        after, rows = step(reader, offset, rows=16)
        if after == offset:
            break
        seen += rows
        offset = after
    sent = [row["message_id"] for row in seen if row["op"] == "send"]
    assert len(sent) == 12
    assert len({row["partition_id"] for row in seen}) > 4
    bus.send(queue, ["b"])
    fresh = JournalStreamReader(given, COLUMNS)
    offset, rows = step(fresh, offset)
    assert [row["op"] for row in rows] == ["send"]
    assert step(fresh, offset) == (offset, [])
    assert max(fresh.reportLatestOffset()["next"].values()) > 0


def test_a_stream_from_the_latest(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["old"])
    reader = JournalStreamReader(
        options(bus, queue, streaming=True, startingPosition="latest"), COLUMNS
    )
    offset, rows = step(reader, reader.initialOffset())
    assert rows == []
    bus.send(queue, ["new"])
    offset, rows = step(reader, offset)
    assert [row["op"] for row in rows] == ["send"]


def test_what_is_gone_is_a_loss_or_not(bus: Bus) -> None:
    queue = bus.queue()
    bus.send(queue, ["a", "b", "c"])
    strict = JournalStreamReader(options(bus, queue, streaming=True), COLUMNS)
    offset, _ = step(strict, strict.initialOffset())
    before = {**offset, "s": "@another"}
    with pytest.raises(DataLoss, match="was deleted and made again"):
        strict.latestOffset(before)
    lax = JournalStreamReader(options(bus, queue, streaming=True, failOnDataLoss="false"), COLUMNS)
    _, rows = step(lax, before)
    assert len(rows) == 3
    # As if retention had dropped what is below: no journal begins before position 0.
    with pytest.raises(DataLoss, match="are gone from its journal"):
        strict.latestOffset({**offset, "p": {"0": -5}})
    _, rows = step(lax, {**offset, "p": {"0": -5}})
    assert len(rows) == 3


def test_a_batch_of_an_entity_that_was_made_again_is_a_loss_or_not(bus: Bus) -> None:
    """Spark replays a batch by its offsets, and a task may run long after it was planned."""
    queue = bus.queue()
    bus.send(queue, ["a", "b"])
    strict = JournalStreamReader(options(bus, queue, streaming=True), COLUMNS)
    start = strict.initialOffset()
    end = strict.latestOffset(start)
    (planned,) = strict.partitions(start, end)
    whole = JournalReader(options(bus, queue, streaming=False), COLUMNS)
    (piece,) = whole.partitions()
    bus.delete(queue)
    bus.queue(queue)
    bus.send(queue, ["c", "d"])
    replayed = JournalStreamReader(options(bus, queue, streaming=True), COLUMNS)
    with pytest.raises(DataLoss, match="was deleted and made again"):
        replayed.partitions(start, end)
    with pytest.raises(DataLoss, match="was deleted and made again"):
        list(replayed.read(planned))
    with pytest.raises(DataLoss, match="was deleted and made again"):
        list(whole.read(piece))
    lax = JournalStreamReader(options(bus, queue, streaming=True, failOnDataLoss="false"), COLUMNS)
    assert lax.partitions(start, end) == []
    assert list(lax.read(planned)) == []
    _, rows = step(lax, end)
    assert [row["op"] for row in rows] == ["send", "send"]


def test_a_journal_has_no_sequence_numbers_to_start_from(bus: Bus) -> None:
    with pytest.raises(OptionProblem, match="positions, not sequence numbers"):
        options(bus, "q", streaming=True, startingSequenceNumber=5)


def test_facts_in_spark(spark: "SparkSession", bus: Bus, tmp_path: Path) -> None:
    topic = bus.topic("one", "two")
    bus.send(topic, ["a", "b", "c"])
    reading = Reading(spark, bus, tmp_path, topic=topic, mode="journal")
    reading.run()
    bus.send(topic, ["d"])
    reading.run()
    sent = [row for row in reading.rows() if row["op"] == "send"]
    assert sorted(row["sub_entity"] for row in sent) == (
        ["Subscriptions/one"] * 4 + ["Subscriptions/two"] * 4
    )
    facts = spark.read.format("servicebus").options(**bus.options, topic=topic, mode="journal")
    assert facts.load().where("op = 'send'").count() == 8
