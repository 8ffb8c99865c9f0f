"""Advice follows the article's rules, and shows its arithmetic."""

from typing import TYPE_CHECKING

import pytest

from peeklock.spark.jobs import rules
from peeklock.spark.jobs.rules import Crew, Line
from tests.spark.planted import Planted, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUSY = Line("orders", sent_per_s=150.0, receivers=3, deliveries=9000, work_ms_p999=500.0)


def test_prefetch_is_twenty_times_the_rate_at_a_lock_of_a_minute() -> None:
    """R-D4: the article's own example, 10 receivers with 10/s each, gives 2,000 and not 600."""
    advice = rules.prefetch(BUSY, Crew("c", 10, 100.0, 100.0), rules.THROUGHPUT)
    assert advice.advised == "2000"
    assert advice.arithmetic == (
        "20 x 100/s (all receivers of the connection, 10) x 60 s lock / 60 s = 2,000; consumed "
        "within the lock: 100/s x (60 s - 0.5 s for the slowest) = 5,950"
    )


@pytest.mark.parametrize(
    ("lock_s", "low", "receivers", "goal", "advised"),
    [
        (30.0, 100.0, 3, rules.THROUGHPUT, "1000"),
        (300.0, 100.0, 3, rules.THROUGHPUT, "10000"),
        # Never more than is consumed within the lock when things are slow.
        (60.0, 10.0, 3, rules.THROUGHPUT, "595"),
        (60.0, 100.0, 21, rules.THROUGHPUT, "10"),
        (60.0, 100.0, 3, rules.LATENCY, "0"),
        (60.0, 100.0, 1, rules.LATENCY, "2000"),
    ],
)
def test_prefetch_by_lock_and_goal(
    lock_s: float, low: float, receivers: int, goal: str, advised: str
) -> None:
    line = Line("q", receivers=receivers, work_ms_p999=500.0, lock_s=lock_s)
    assert rules.prefetch(line, Crew("c", receivers, 100.0, low), goal).advised == advised


@pytest.mark.parametrize(
    ("rate", "senders", "is_topic", "goal", "advised"),
    [
        (500.0, 1, False, rules.THROUGHPUT, "50 ms"),
        (500.0, 3, False, rules.THROUGHPUT, "100 ms"),
        (9000.0, 50, False, rules.THROUGHPUT, "20 ms"),
        (500.0, 1, True, rules.THROUGHPUT, "20 ms"),
        (50.0, 1, False, rules.THROUGHPUT, "20 ms"),
        (5.0, 1, False, rules.THROUGHPUT, "0 ms"),
        (500.0, 1, False, rules.LATENCY, "0 ms"),
    ],
)
def test_flush_interval(rate: float, senders: int, is_topic: bool, goal: str, advised: str) -> None:
    line = Line("q", sent_per_s=rate, is_topic=is_topic)
    assert rules.flush_interval(line, senders, goal).advised == advised


def test_locks_last_twice_what_the_slowest_take() -> None:
    assert rules.lock_duration(BUSY).advised == "60 s"
    slow = Line("q", deliveries=10, lock_losses=2, work_ms_p999=41_000.0)
    assert rules.lock_duration(slow).advised == "85 s"
    for_ever = Line("q", deliveries=10, work_ms_p999=400_000.0)
    assert rules.lock_duration(for_ever).advised == "300 s"


def test_partitions_carry_the_busiest_stretch() -> None:
    line = Line("q", sent_per_s=45_000.0, partitions=2)
    advice = rules.partitions(line, 10_000.0)
    assert (advice.advised, advice.arithmetic.endswith("= 4.5; it has 2")) == ("8", True)


def test_rates_are_measured_by_connection(spark: "SparkSession") -> None:
    """Two receivers of one connection count together, whoever of them is handed a message."""
    from peeklock.spark.jobs.facts import follow
    from peeklock.spark.jobs.tune import measure_crews, measure_lines

    planted = Planted()
    for turn in range(400):
        sent_ms = turn * 50
        number = planted.send(sent_ms)
        planted.fact(sent_ms + 1, "deliver", number, consumer=f"till-7/link-{turn % 2}")
        planted.fact(sent_ms + 21, "complete", number)
    # A receiver that changes a message is told of without a lane.
    planted.fact(2, "change", 1, sub_entity=None, description="shelf")
    # Receivers that come one after the other, as for sessions, are one at a time.
    short = Planted("sessions")
    for turn in range(30):
        number = short.send(turn * 100)
        short.fact(turn * 100 + 1, "deliver", number, consumer=f"till-7/session-{turn}")
        short.fact(turn * 100 + 50, "complete", number)
    followed = follow(made(spark, planted.rows + short.rows)).persist()
    crew, one = measure_crews(followed).orderBy("entity").collect()
    assert (crew["connection"], crew["receivers"], crew["peak_per_s"]) == ("till-7", 2, 20.0)
    assert (one["entity"], one["receivers"]) == ("sessions", 1)
    line, _ = measure_lines(followed).orderBy("entity").collect()
    assert (line["sent_per_s"], line["receivers"], line["work_ms_p999"]) == (20.0, 2, 20.0)
