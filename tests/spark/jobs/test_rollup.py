"""The rollup of planted facts: every number is known beforehand."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.jobs.made_facts import MadeFacts, made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE = 60_000


def rolled(facts: "DataFrame", period: str = "minute") -> list[dict[str, Any]]:
    from peeklock.spark.jobs.facts.tallies import tally_facts
    from peeklock.spark.jobs.rollup import roll

    rows = roll(tally_facts(facts).persist(), period).orderBy(
        "sub_entity", "partition_id", "period"
    )
    return [row.asDict() for row in rows.collect()]


def test_a_minute_has_counts_bytes_and_percentiles(spark: "SparkSession") -> None:
    """R-D4: throughput and latency percentiles of an entity, from its journal."""
    made_facts = MadeFacts()
    for turn in range(1, 1001):
        # Each a little slower than the one before; the last but one thousandth is an outlier.
        made_facts.handled(turn, wait_ms=turn, work_ms=10 if turn < 1000 else 5000, size=50)
    [minute] = rolled(made_facts.table(spark))
    counted = {name: minute[name] for name in ("sends", "deliveries", "completes", "abandons")}
    assert counted == {"sends": 1000, "deliveries": 1000, "completes": 1000, "abandons": 0}
    assert (minute["bytes_in"], minute["bytes_out"]) == (50_000, 50_000)
    assert minute["backlog"] == 0
    for name, exact in {"p50": 500, "p95": 950, "p99": 990, "p999": 999}.items():
        assert minute[f"wait_ms_{name}"] == pytest.approx(exact, rel=0.0101)
    assert minute["work_ms_p99"] == 10
    assert minute["total_ms_p50"] == pytest.approx(510, rel=0.0101)


def test_failures_are_counted_and_told_apart(spark: "SparkSession") -> None:
    """R-D4: lock losses, delivery counts and dead letters by reason."""
    from peeklock.spark.jobs.facts.tallies import tally_facts
    from peeklock.spark.jobs.rollup import labelled

    made_facts = MadeFacts()
    number = made_facts.send(0)
    for attempt in range(3):
        made_facts.fact(100 * attempt + 10, "deliver", number, consumer="c1")
        made_facts.fact(
            100 * attempt + 50,
            ("abandon", "lock_lost", "deadletter")[attempt],
            number,
            reason="NoAddress" if attempt == 2 else None,
        )
    made_facts.fact(400, "deliver", number, sub_entity="$DeadLetterQueue")
    made_facts.handled(500, 1, 1)
    facts = made_facts.table(spark)
    main, dead = rolled(facts)
    assert {
        name: main[name] for name in ("deliveries", "abandons", "lock_losses", "dead_letters")
    } == {"deliveries": 4, "abandons": 1, "lock_losses": 1, "dead_letters": 1}
    assert main["lock_loss_rate"] == 0.25
    assert (main["backlog"], dead["backlog"]) == (0, 1)
    # Work is from the last delivery, waiting ends with the first one.
    assert (main["work_ms_p999"], main["wait_ms_p999"]) == (pytest.approx(40, rel=0.0101), 10)
    # The dead-letter queue has a life of its own: the message waited there since it died.
    assert dead["wait_ms_p50"] == pytest.approx(150, rel=0.0101)
    assert dead["bytes_out"] == 100
    labels = {
        (row.measure, row.label): row.amount
        for row in labelled(tally_facts(facts), "hour").collect()
    }
    assert labels == {
        ("reason", "NoAddress"): 1,
        ("delivery_count", "3"): 1,
        ("delivery_count", "1"): 1,
    }


def test_the_backlog_is_what_came_and_did_not_go(spark: "SparkSession") -> None:
    made_facts = MadeFacts()
    # Two that were there before the journal begins, and are seen only when they leave.
    for number, at_ms in ((900, 10), (901, MINUTE + 10)):
        made_facts.fact(at_ms, "receive_delete", number)
    numbers = [made_facts.send(turn, op="publish" if turn % 2 else "send") for turn in range(6)]
    for number in numbers[:4]:
        made_facts.fact(2 * MINUTE, "deliver", number)
        made_facts.fact(2 * MINUTE + 1, "complete", number)
    made_facts.fact(3 * MINUTE, "expire", numbers[4])
    made_facts.fact(3 * MINUTE, "defer", numbers[5])
    assert [row["backlog"] for row in rolled(made_facts.table(spark))] == [7, 6, 2, 1]
    [hour] = rolled(made_facts.table(spark), "hour")
    assert (hour["sends"], hour["backlog"], hour["expired"]) == (6, 1, 1)


def test_a_partition_that_is_silent_has_its_backlog(spark: "SparkSession") -> None:
    """Three stay in the first partition, and only the second one does something later."""
    made_facts = MadeFacts()
    for turn in range(3):
        made_facts.send(turn)
    later = 2 * 60 * MINUTE
    for turn in range(5):
        number = made_facts.send(later + turn, partition=1)
        if turn:
            made_facts.fact(later + 10, "receive_delete", number)
    other = MadeFacts("silent")
    other.send(0)
    from peeklock.spark.jobs.facts.tallies import tally_facts
    from peeklock.spark.jobs.rollup import brief, roll

    rows = made(spark, made_facts.rows + other.rows)
    [told] = brief(roll(tally_facts(rows), "hour")).collect()
    assert (told.entity, told.sends, told.backlog) == ("orders", 5, 4)


def test_lanes_and_partitions_are_kept_apart(spark: "SparkSession") -> None:
    made_facts = MadeFacts()
    for partition in (0, 1):
        for lane in ("Subscriptions/a", "Subscriptions/b"):
            number = made_facts.send(1, partition=partition, sub_entity=lane)
            made_facts.fact(5 + partition, "receive_delete", number, sub_entity=lane)
    rows = rolled(made_facts.table(spark))
    assert [(row["sub_entity"], row["partition_id"], row["total_ms_p50"]) for row in rows] == [
        ("Subscriptions/a", 0, 4),
        ("Subscriptions/a", 1, 5),
        ("Subscriptions/b", 0, 4),
        ("Subscriptions/b", 1, 5),
    ]


def test_a_stream_counts_what_a_batch_counts(spark: "SparkSession", tmp_path: Path) -> None:
    """Lives that go over several batches, and a batch that comes twice, change nothing."""
    from peeklock.spark.jobs.frame import TableFolder
    from peeklock.spark.jobs.rollup import Stream

    made_facts = MadeFacts()
    for turn in range(40):
        number = made_facts.send(turn * 5000, session_id=f"s{turn % 3}")
        made_facts.fact(turn * 5000 + 70, "deliver", number)
        made_facts.fact(turn * 5000 + 90, "abandon", number)
        made_facts.fact(turn * 5000 + 60_000, "deliver", number)
        made_facts.fact(
            turn * 5000 + 60_500, "deadletter" if turn % 4 else "complete", number, reason="r"
        )
        if turn % 4:
            made_facts.fact(
                turn * 5000 + 70_000, "receive_delete", number, sub_entity="$DeadLetterQueue"
            )
    made_facts.rows.sort(key=lambda row: row["at"])
    for position, row in enumerate(made_facts.rows):
        row["position"] = position
    place = TableFolder(str(tmp_path / "out"))
    stream = Stream(place, "1 minutes")
    # Three batches, so that lives go on over one that has no fact of them; the second comes twice.
    first, second, third = (made(spark, made_facts.rows[at : at + 80]) for at in (0, 80, 160))
    assert not stream.has_begun(spark)
    stream.count(first, 0)
    assert stream.has_begun(spark)
    stream.count(second, 1)
    stream.count(second, 1)
    stream.take(third, 2)
    whole = rolled(made_facts.table(spark))
    parts = place.read(spark, "minutes").orderBy("sub_entity", "partition_id", "period").collect()
    assert [{k: v for k, v in row.asDict().items() if k != "is_final"} for row in parts] == whole
    assert {row["is_final"] for row in parts} == {True, False}


def test_a_fact_without_a_lane_begins_no_life(spark: "SparkSession") -> None:
    """It would be carried from batch to batch for ever: nothing ends it."""
    from peeklock.spark.jobs.facts.table import follow, unfinished

    made_facts = MadeFacts()
    number = made_facts.send(0)
    made_facts.fact(10, "change", number, sub_entity=None)
    rows = unfinished(follow(made_facts.table(spark))).collect()
    assert [(row["sub_entity"], row["sequence_number"]) for row in rows] == [("", number)]
