"""Advice follows the article's rules, and shows its arithmetic."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from peeklock.spark.jobs import rules, tune
from peeklock.spark.jobs.facts.table import follow, unfinished
from peeklock.spark.jobs.rules import ConnectionFigures, LaneFigures
from tests.spark.jobs.made_facts import MadeFacts, made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUSY = LaneFigures("orders", sent_per_s=150.0, receivers=3, deliveries=9000, work_ms_p999=500.0)


def test_prefetch_is_twenty_times_the_rate_at_a_lock_of_a_minute() -> None:
    """R-D4: the article's own example, 10 receivers with 10/s each, gives 2,000 and not 600."""
    advice = rules.prefetch(BUSY, ConnectionFigures("c", 10, 100.0, 100.0), rules.THROUGHPUT)
    assert advice.advised == "2000"
    assert advice.arithmetic == (
        "20 x 100/s (all receivers of the connection, 10) x 60 s lock / 60 s = 2,000; consumed "
        "within 30 s (half of the lock, or what the slowest work, 0.5 s, leaves of it): "
        "100/s x 30 s = 3,000"
    )


@pytest.mark.parametrize(
    ("lock_s", "low", "receivers", "goal", "advised"),
    [
        (30.0, 100.0, 3, rules.THROUGHPUT, "1000"),
        (300.0, 100.0, 3, rules.THROUGHPUT, "10000"),
        # Never more than is consumed within half of the lock when things are slow.
        (60.0, 5.0, 3, rules.THROUGHPUT, "150"),
        (60.0, 100.0, 21, rules.THROUGHPUT, "10"),
        (60.0, 100.0, 3, rules.LATENCY, "0"),
        (60.0, 100.0, 1, rules.LATENCY, "2000"),
    ],
)
def test_prefetch_by_lock_and_goal(
    lock_s: float, low: float, receivers: int, goal: str, advised: str
) -> None:
    line = LaneFigures("q", receivers=receivers, work_ms_p999=500.0, lock_s=lock_s)
    assert (
        rules.prefetch(line, ConnectionFigures("c", receivers, 100.0, low), goal).advised == advised
    )


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
    line = LaneFigures("q", sent_per_s=rate, is_topic=is_topic)
    assert rules.flush_interval(line, senders, goal).advised == advised


def test_locks_last_twice_what_the_slowest_take() -> None:
    assert rules.lock_duration(BUSY).advised == "60 s"
    slow = LaneFigures("q", deliveries=10, lock_losses=2, work_ms_p999=41_000.0)
    assert rules.lock_duration(slow).advised == "120 s", "a lost lock asks for twice as much"
    late = LaneFigures("q", deliveries=10, work_ms_p999=41_000.0)
    assert rules.lock_duration(late).advised == "85 s"
    for_ever = LaneFigures("q", deliveries=10, work_ms_p999=400_000.0)
    assert rules.lock_duration(for_ever).advised == "300 s"


def test_lost_locks_raise_the_lock() -> None:
    lost = LaneFigures("q", deliveries=9000, lock_losses=4, work_ms_p999=100.0, lock_s=5.0)
    assert rules.lock_duration(lost).advised == "10 s"
    longest = LaneFigures("q", deliveries=9000, lock_losses=4, work_ms_p999=100.0, lock_s=300.0)
    advice = rules.lock_duration(longest)
    assert (advice.now, advice.advised) == ("300 s", "300 s")
    assert advice.arithmetic.endswith("the rest by renewing locks")


def test_a_slow_connection_leaves_to_others_what_it_cannot_process() -> None:
    crew = ConnectionFigures("c", 1, peak_per_s=10.0, low_per_s=2.0)
    assert rules.prefetch(BUSY, crew, rules.THROUGHPUT, connections=2).advised == "40"
    # Alone it may hold what it processes within half of the lock.
    assert rules.prefetch(BUSY, crew, rules.THROUGHPUT).advised == "60"


def test_what_is_as_it_should_be_is_no_advice() -> None:
    line = LaneFigures("q", receivers=1, deliveries=10, work_ms_p999=10.0, sent_per_s=150.0)
    crews = {("q", ""): [ConnectionFigures("c", 1, 10.0, 10.0, held=200)]}
    told = tune.advise([line], crews, goal=rules.THROUGHPUT, senders=1, ceiling_per_s=10_000.0)
    # Nobody but the client knows its flush interval.
    assert [(row["setting"], row["now"]) for row in told] == [("flush interval", "not known")]
    crews = {("q", ""): [ConnectionFigures("c", 1, 10.0, 10.0, held=20)]}
    first, _ = tune.advise([line], crews, goal=rules.THROUGHPUT, senders=1, ceiling_per_s=10_000.0)
    assert (first["setting"], first["now"], first["advised"]) == ("prefetch", "20", "200")


def test_partitions_carry_the_busiest_stretch() -> None:
    line = LaneFigures("q", sent_per_s=45_000.0, partitions=2)
    advice = rules.partitions(line, 10_000.0)
    assert (advice.advised, advice.arithmetic.endswith("= 4.5; it has 2")) == ("8", True)


def test_rates_are_measured_by_connection(spark: "SparkSession") -> None:
    """Two receivers of one connection count together, whoever of them is handed a message."""
    made_facts = MadeFacts()
    for turn in range(400):
        sent_ms = turn * 50
        number = made_facts.send(sent_ms)
        made_facts.fact(sent_ms + 1, "deliver", number, consumer=f"till-7/link-{turn % 2}")
        made_facts.fact(sent_ms + 21, "complete", number)
    # A receiver that changes a message is told of without a lane.
    made_facts.fact(2, "change", 1, sub_entity=None, description="shelf")
    # Receivers that come one after the other, as for sessions, are one at a time.
    short = MadeFacts("sessions")
    for turn in range(30):
        number = short.send(turn * 100)
        short.fact(turn * 100 + 1, "deliver", number, consumer=f"till-7/session-{turn}")
        short.fact(turn * 100 + 50, "complete", number)
    followed = follow(made(spark, made_facts.rows + short.rows)).persist()
    crew, one = tune.measure_crews(followed).orderBy("entity").collect()
    assert (crew["connection"], crew["receivers"], crew["peak_per_s"]) == ("till-7", 2, 20.0)
    assert (one["entity"], one["receivers"]) == ("sessions", 1)
    line, _ = tune.measure_lines(followed).orderBy("entity").collect()
    assert (line["sent_per_s"], line["receivers"], line["work_ms_p999"]) == (20.0, 2, 20.0)


# Steady work: a message each so many milliseconds, for so long, under a lock of so many seconds.
# The right prefetch is the article's: 20 x the rate, scaled to the lock.
HISTORIES = [
    (100, 20_300, 60, 200),
    (100, 9_900, 60, 200),
    (100, 10_000, 60, 200),
    (100, 61_700, 60, 200),
    (50, 20_350, 60, 400),
    (50, 33_333, 30, 200),
    (20, 12_000, 60, 1_000),
    (20, 25_010, 300, 5_000),
    (10, 11_000, 60, 2_000),
    (10, 20_000, 5, 166),
    (250, 47_000, 60, 80),
    (250, 47_000, 120, 160),
    (500, 100_300, 60, 40),
    (1_000, 59_000, 60, 20),
    (1_000, 59_000, 15, 5),
    (2_000, 90_000, 60, 10),
    (4_000, 90_000, 60, 5),
    (333, 40_000, 60, 60),
    (125, 17_125, 45, 120),
    (40, 3_000, 60, 500),
]


def test_twenty_histories_of_known_rates(spark: "SparkSession") -> None:
    """R-D4: the article's rule, exactly, wherever the history begins and ends."""
    rows = []
    for turn, (period_ms, length_ms, _, _) in enumerate(HISTORIES):
        made_facts = MadeFacts(f"q{turn:02}")
        begin_ms = 1_234 * turn
        for at_ms in range(begin_ms, begin_ms + length_ms, period_ms):
            made_facts.handled(at_ms, wait_ms=1, work_ms=7)
        rows += made_facts.rows
    followed = follow(made(spark, rows)).persist()
    crews = measured_crews(followed)
    told = {
        f"q{turn:02}": rules.prefetch(
            LaneFigures(f"q{turn:02}", receivers=1, work_ms_p999=7.0, lock_s=lock_s),
            crews[f"q{turn:02}"],
            rules.THROUGHPUT,
        ).advised
        for turn, (_, _, lock_s, _) in enumerate(HISTORIES)
    }
    assert told == {f"q{turn:02}": str(right) for turn, (*_, right) in enumerate(HISTORIES)}


def test_the_job_itself_advises_so(spark: "SparkSession", tmp_path: Path) -> None:
    """From facts at rest to its table: steady work, lost locks, and what was given back."""
    whole = MadeFacts()
    right = {}
    for turn, (period_ms, length_ms, lock_s, prefetch) in enumerate(HISTORIES):
        if lock_s == 60:
            steady = MadeFacts(f"q{turn:02}")
            for at_ms in range(0, length_ms, period_ms):
                steady.handled(at_ms, wait_ms=1, work_ms=7)
            whole.rows += steady.rows
            right[f"q{turn:02}", "prefetch"] = str(prefetch)
    losing = MadeFacts("losing")
    for turn in range(200):
        number = losing.send(turn * 100)
        losing.fact(turn * 100 + 1, "deliver", number, consumer="c1")
        if turn < 4:
            losing.fact(turn * 100 + 60_001, "lock_lost", number)
        else:
            losing.fact(turn * 100 + 8, "complete", number)
    giving_back = MadeFacts("giving-back")
    for turn in range(200):
        number = giving_back.send(turn * 100)
        giving_back.fact(turn * 100 + 1, "deliver", number, consumer="c1")
        giving_back.fact(turn * 100 + 8, "abandon", number)
        giving_back.fact(turn * 100 + 451_000, "purge", number)
    whole.rows += losing.rows + giving_back.rows
    right["losing", "lock duration"] = "120 s"
    facts, out = tmp_path / "facts", tmp_path / "advised"
    facts.mkdir()
    pq.write_table(whole.arrow(), facts / "part-0.parquet")
    with pytest.raises(SystemExit) as ended:
        tune.main(["--facts", str(facts), "--lock-duration", "60", "--out", str(out)])
    assert ended.value.code == 0
    told = {
        (row.entity, row.setting): row.advised
        for row in spark.read.parquet(str(out / "advice")).collect()
    }
    assert {key: told.get(key) for key in right} == right
    # Seven milliseconds of work ask for no longer lock, whatever came of the message afterwards.
    assert ("giving-back", "lock duration") not in told


def measured_crews(followed: "DataFrame") -> dict[str, ConnectionFigures]:
    return {
        row["entity"]: ConnectionFigures(
            row["connection"], row["receivers"], row["peak_per_s"], row["low_per_s"], row["held"]
        )
        for row in tune.measure_crews(followed).collect()
    }


def test_pauses_are_not_slowness(spark: "SparkSession") -> None:
    made_facts = MadeFacts()
    for begin_ms in (0, 100_000, 151_000):
        for at_ms in range(begin_ms, begin_ms + 25_000, 100):
            made_facts.handled(at_ms, wait_ms=1, work_ms=7)
    # And then it is really slow: one in a second.
    for at_ms in range(200_000, 241_000, 1_000):
        made_facts.handled(at_ms, wait_ms=1, work_ms=7)
    crew = measured_crews(follow(made_facts.table(spark)))["orders"]
    assert (crew.peak_per_s, crew.low_per_s) == (10.0, 1.0)


def test_a_delivery_that_was_given_back_is_no_work(spark: "SparkSession") -> None:
    made_facts = MadeFacts()
    for turn in range(20):
        number = made_facts.send(turn * 1000)
        made_facts.fact(turn * 1000 + 1, "deliver", number, consumer="c1")
        made_facts.fact(turn * 1000 + 101, "abandon", number)
        # Nobody held it when it was dead-lettered, or when it was purged.
        made_facts.fact(451_000 + turn, "deadletter" if turn % 2 else "purge", number)
    followed = follow(made_facts.table(spark)).persist()
    line = next(row for row in tune.measure_lines(followed).collect() if not row.sub_entity)
    assert line["work_ms_p999"] == pytest.approx(100.0, rel=0.01)


def test_work_goes_on_over_batches_and_ends_with_an_abandon(spark: "SparkSession") -> None:
    made_facts = MadeFacts()
    given_back, held = made_facts.send(0), made_facts.send(0)
    made_facts.fact(10, "deliver", given_back, consumer="c1")
    made_facts.fact(20, "abandon", given_back)
    made_facts.fact(30, "deliver", held, consumer="c1")
    first = follow(made_facts.table(spark)).persist()
    later = MadeFacts()
    later.rows = made_facts.rows[:]
    made_facts.fact(1030, "complete", held)
    made_facts.fact(5000, "deadletter", given_back)
    second = follow(made(spark, made_facts.rows[len(later.rows) :]), unfinished(first))
    works = {
        row.op: row.delivered_at is not None
        for row in second.collect()
        if row.op in ("complete", "deadletter")
    }
    assert works == {"complete": True, "deadletter": False}


def test_how_many_are_held_at_once(spark: "SparkSession") -> None:
    made_facts = MadeFacts()
    for at_ms in range(0, 30_000, 100):
        number = made_facts.send(at_ms)
        made_facts.fact(at_ms, "deliver", number, consumer="c1/a" if at_ms % 200 else "c1/b")
        made_facts.fact(at_ms + 1_950, "complete", number)
    assert measured_crews(follow(made_facts.table(spark)))["orders"].held == 20
