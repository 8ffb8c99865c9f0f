"""The reader of claims, called as Spark calls it, with crashes at every step (R-D1)."""

import random
from typing import Any

import pytest

from peeklock.client.exceptions import ClaimFenced
from peeklock.entity.commands import ABANDON
from peeklock.spark.source.arrow import BATCH_MARK
from peeklock.spark.source.claim_planner import DataLoss
from peeklock.spark.versions import ReadAllAvailable, ReadMaxRows
from tests.spark.source.management_server import ManagementServer
from tests.spark.source.simulated import Crash, SimulatedSpark

MESSAGES = 23
IS_OLD = pytest.mark.parametrize("is_old", [False, True], ids=["4.2", "4.0"])


def _ignore(_value: object) -> None:
    """A task gives nothing."""


def filled(count: int = MESSAGES, partitions: int = 1) -> ManagementServer:
    server = ManagementServer(partitions)
    for number in range(count):
        server.send(f"m-{number}", partition=number % partitions)
    return server


def check_exactly_once(
    spark: SimulatedSpark, server: ManagementServer, count: int = MESSAGES
) -> None:
    bodies = [row["body"].decode() for row in spark.rows]
    assert sorted(bodies) == sorted(f"m-{number}" for number in range(count))
    assert server.counts() == (0, 0)


@IS_OLD
def test_a_queue_is_read_in_order_and_left_empty(is_old: bool) -> None:
    server = filled()
    spark = SimulatedSpark(server, is_old=is_old, maxMessagesPerTrigger="5")
    spark.run()
    check_exactly_once(spark, server)
    assert spark.numbers == sorted(spark.numbers)
    assert [len(spark.sink[batch]) for batch in sorted(spark.sink)] == [5, 5, 5, 5, 3]
    assert spark.reports[0]["active"] == 18
    assert spark.reports[-1] == {
        "consumerId": "spark/orders",
        "claimed": 0,
        "active": 0,
        "oldestAgeMs": -1,
    }


def steps_of_a_run(is_old: bool, partitions: int) -> int:
    spark = SimulatedSpark(filled(partitions=partitions), is_old=is_old, maxMessagesPerTrigger="8")
    spark.run()
    return spark.steps.count


@IS_OLD
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(
    is_old: bool, partitions: int
) -> None:
    for step in range(1, steps_of_a_run(is_old, partitions) + 1):
        server = filled(partitions=partitions)
        spark = SimulatedSpark(server, is_old=is_old, maxMessagesPerTrigger="8")
        spark.run_through(step)
        check_exactly_once(spark, server)


@IS_OLD
def test_two_crashes_at_any_two_steps(is_old: bool) -> None:
    """The second one comes while the first is being repaired, or later."""
    last = steps_of_a_run(is_old, 1)
    for first in range(1, last + 1):
        for second in range(first + 1, min(last, first + 10)):
            server = filled()
            spark = SimulatedSpark(server, is_old=is_old, maxMessagesPerTrigger="8")
            spark.run_through(first, second)
            check_exactly_once(spark, server)


@pytest.mark.parametrize("seed", range(4))
def test_crashes_anywhere_while_others_send_and_take(seed: int) -> None:
    """Late lower numbers, restarts of the broker, many crashes: hundreds of lives."""
    chance = random.Random(seed)
    for _ in range(150):
        server = filled(0, partitions=chance.choice([1, 2, 4]))
        spark = SimulatedSpark(server, maxMessagesPerTrigger=str(chance.choice([1, 4, 9, 100])))
        sent = 0
        for _ in range(chance.randint(1, 6)):
            for _ in range(chance.randint(0, 12)):
                server.send(f"m-{sent}", partition=chance.randrange(len(server.partitions)))
                sent += 1
            other = chance.choice(server.partitions)
            locked = other.receive(chance.randint(0, 4))
            spark.steps.dies_at = {
                spark.steps.count + chance.randint(1, 60) for _ in range(chance.randint(0, 2))
            }
            try:
                spark.run(available_now=chance.random() < 0.5)
            except Crash:
                if chance.random() < 0.3:
                    server.restart()
                    continue
            if locked:
                other.settle(ABANDON, *locked)
        for partition in server.partitions:
            partition.tick(120_000)  # what was locked when the broker went comes back
        spark.run_through()
        spark.run_through()
        check_exactly_once(spark, server, sent)


def test_what_is_claimed_and_in_no_offset_is_the_next_batch() -> None:
    server = filled()
    spark = SimulatedSpark(server, maxMessagesPerTrigger="10")
    claimed = False
    for step in range(1, 30):
        spark.steps.dies_at = {spark.steps.count + step}
        with pytest.raises(Crash):
            spark.run()
        claimed = server.partitions[0].count().claimed > 0
        if claimed:
            break
    assert claimed
    assert not spark.offsets
    spark.run()
    assert len(spark.sink[0]) == 10
    check_exactly_once(spark, server)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("losses", [1, 2, 4])
def test_claims_whose_answer_was_lost_are_read_without_a_restart(
    partitions: int, losses: int
) -> None:
    """The broker has claimed, the line broke: asking again would strand what was claimed."""
    server = filled(partitions=partitions)
    spark = SimulatedSpark(server, maxMessagesPerTrigger="8")
    spark.server.calls_lost = ["com.peeklock:claim-messages"] * losses
    spark.run()
    assert not spark.server.calls_lost
    check_exactly_once(spark, server)
    assert max(len(rows) for rows in spark.sink.values()) <= 8


def test_a_lost_answer_in_manual_settlement_brings_what_is_not_settled_again() -> None:
    server = filled()
    spark = SimulatedSpark(server, maxMessagesPerTrigger="8", settlement="manual")
    spark.run()
    for number in range(3):
        server.send(f"later-{number}")
    spark.server.calls_lost = ["com.peeklock:claim-messages"]
    spark.run()
    bodies = {row["body"].decode() for row in spark.rows}
    assert {f"later-{number}" for number in range(3)} <= bodies
    assert max(len(rows) for rows in spark.sink.values()) <= 8


def test_available_now_stops_at_what_was_there() -> None:
    server = filled(5)
    spark = SimulatedSpark(server, maxMessagesPerTrigger="2")
    spark.task = lambda _rows: _ignore(server.send("late"))
    spark.run()
    assert len(spark.rows) == 5
    assert server.counts() == (3, 0)


def test_all_that_is_available_is_one_batch() -> None:
    server = filled(partitions=2)
    spark = SimulatedSpark(server, maxMessagesPerTrigger="2")
    spark.run(limit=ReadAllAvailable(), available_now=False)
    assert [len(rows) for rows in spark.sink.values()] == [MESSAGES]
    check_exactly_once(spark, server)


def test_limits_are_the_lower_of_both() -> None:
    server = filled()
    spark = SimulatedSpark(server, maxMessagesPerTrigger="10")
    spark.run(limit=ReadMaxRows(4))
    assert max(len(rows) for rows in spark.sink.values()) == 4
    server = filled()
    spark = SimulatedSpark(server, maxBytesPerTrigger="100")
    spark.run()
    assert 1 < max(len(rows) for rows in spark.sink.values()) < 8
    check_exactly_once(spark, server)


def test_by_default_a_batch_takes_all_that_its_bytes_allow() -> None:
    """A thousand messages for each trigger were a few thousand a second, whoever sent them."""
    server = filled(1_500)
    spark = SimulatedSpark(server)
    spark.run()
    assert [len(rows) for rows in spark.sink.values()] == [1_500]
    check_exactly_once(spark, server, 1_500)


def test_tasks_divide_a_batch() -> None:
    server = filled(partitions=2)
    spark = SimulatedSpark(server, minPartitions="4")
    spark.run()
    assert spark.tasks == 4
    check_exactly_once(spark, server)


def test_sessions_stay_together_and_in_order() -> None:
    server = ManagementServer(requires_session=True)
    for number in range(30):
        server.send(f"m-{number}", session=f"s-{number % 7}")
    tasks: list[set[str]] = []
    spark = SimulatedSpark(server, minPartitions="3", maxSessionsPerTrigger="4")
    spark.task = lambda rows: tasks.append({row["session_id"] for row in rows})
    spark.run()
    # Four sessions in three tasks, then three in three: none is in two tasks of a batch.
    assert [len(names) for names in tasks] in (
        [2, 1, 1, 1, 1, 1],
        [1, 2, 1, 1, 1, 1],
        [1, 1, 2, 1, 1, 1],
    )
    assert sorted(name for names in tasks for name in names) == [f"s-{n}" for n in range(7)]
    for name in range(7):
        of_one = [row["sequence_number"] for row in spark.rows if row["session_id"] == f"s-{name}"]
        assert of_one == sorted(of_one)
    check_exactly_once(spark, server, 30)


def test_the_second_reader_of_a_name_ends_the_first() -> None:
    server = filled()
    first, second = (SimulatedSpark(server, maxMessagesPerTrigger="5") for _ in range(2))
    first.task = lambda _rows: second.run()
    with pytest.raises(ClaimFenced, match="another query reads 'orders' as 'spark/orders'"):
        first.run()


def test_readers_with_names_of_their_own_share_a_queue() -> None:
    server = filled()
    one = SimulatedSpark(server, maxMessagesPerTrigger="5", consumerId="one")
    two = SimulatedSpark(server, maxMessagesPerTrigger="5", consumerId="two")
    one.task = lambda _rows: two.run() if not two.sink else None
    one.run()
    assert len(one.rows) + len(two.rows) == MESSAGES
    assert server.counts() == (0, 0)


# --- what the job settles itself, and what is gone


def test_manual_settlement_leaves_messages_claimed_and_brings_them_again() -> None:
    server = filled(6)
    spark = SimulatedSpark(server, maxMessagesPerTrigger="4", settlement="manual")
    spark.run()
    assert len(spark.rows) == 6
    assert server.counts() == (6, 0)
    keeper = spark.connect(spark.options, "broker")
    keeper.settle(spark.numbers[:4], "completed")
    spark.run()
    assert [row["body"] for row in spark.rows[6:]] == [b"m-4", b"m-5"]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_messages_that_are_gone_are_a_loss_or_not(fails: str) -> None:
    server = filled(4)
    spark = SimulatedSpark(server, failOnDataLoss=fails)

    def take_one_away() -> None:
        spark.connect(spark.options, "broker").settle([2], "completed")

    spark.steps.dies_at = {spark.steps.count + 15}
    with pytest.raises(Crash):
        spark.run()
    assert spark.offsets
    assert not spark.sink
    take_one_away()
    if fails == "true":
        with pytest.raises(DataLoss, match=r"1 messages of 'orders'.*\(2\)"):
            spark.run()
    else:
        spark.run()
        assert spark.numbers == [1, 3, 4]


def test_bad_records_that_are_dead_letters_already_are_no_loss() -> None:
    """The batch is read again after a crash, when its bad record is where it belongs."""
    server = filled(5)
    spark = SimulatedSpark(server, badRecords="deadletter")
    number = 3

    def crash_once(rows: list[dict[str, Any]]) -> None:
        note = {"deadletter-reason": "SparkBadRecord"}
        keeper = spark.connect(spark.options, "broker")
        if keeper.settle([number], "suspended", note=note):
            raise Crash

    spark.task = crash_once
    with pytest.raises(Crash):
        spark.run()
    spark.first_read.clear()
    spark.run()
    assert spark.numbers == [1, 2, 4, 5]
    assert server.counts() == (0, 1)


# --- poison


def poisoned(spark: SimulatedSpark, bad: set[str]) -> int:
    """Start a query again and again whose tasks die of some messages; tell how often it died."""

    def die_of_it(rows: list[dict[str, Any]]) -> None:
        if any(row["body"].decode() in bad for row in rows):
            raise RuntimeError("the task has died")

    spark.task = die_of_it
    for died in range(200):
        try:
            spark.run_through()
        except RuntimeError:
            continue
        return died
    raise AssertionError("it does not come to an end")


def test_a_lone_poison_is_dead_lettered_and_the_rest_is_read() -> None:
    server = filled(100)
    spark = SimulatedSpark(server, maxMessagesPerTrigger="64")
    died = poisoned(spark, {"m-30"})
    assert died < 15
    (letter,) = server.partitions[0].dead()
    assert letter.details is not None
    assert letter.details.reason == "SparkTaskFailed"
    assert BATCH_MARK in (letter.details.changes or {})
    bodies = sorted(row["body"].decode() for row in spark.rows)
    assert bodies == sorted(f"m-{number}" for number in range(100) if number != 30)
    # What was written on those that were given back is nobody's business.
    assert all(row["application_properties"] == [] for row in spark.rows)
    assert {row["properties_json"] for row in spark.rows} == {"{}"}
    assert server.counts() == (0, 1)


def test_several_poisons_and_crashes_lose_nothing() -> None:
    bad = {"m-3", "m-17", "m-18"}
    chance = random.Random(5)
    for _ in range(60):
        server = filled(40)
        spark = SimulatedSpark(server, maxMessagesPerTrigger="16", maxBatchAttempts="2")

        def die_of_it(rows: list[dict[str, Any]]) -> None:
            if any(row["body"].decode() in bad for row in rows):
                raise RuntimeError("the task has died")

        spark.task = die_of_it
        for _ in range(300):
            spark.steps.dies_at = {spark.steps.count + chance.randint(1, 80)}
            try:
                spark.run()
            except (Crash, RuntimeError):
                continue
            if server.counts()[0] == 0:
                break
        bodies = [row["body"].decode() for row in spark.rows]
        assert len(bodies) == len(set(bodies)), "twice"
        dead = server.counts()[1]
        assert len(bodies) + dead == 40, "lost"
        assert not bad & set(bodies)
        assert dead <= 20, "most innocent messages were read"


def test_a_crash_after_the_sink_doubles_nothing_that_others_failed_on() -> None:
    """That a message was delivered before does not make it a suspect in Spark."""
    for step in range(1, 60):
        server = filled(3)
        other = server.partitions[0]
        other.settle(ABANDON, *other.receive(3))
        spark = SimulatedSpark(server)
        spark.keeps_first = True
        spark.run_through(step)
        check_exactly_once(spark, server, 3)


def test_innocents_that_reach_their_count_are_dead_letters_and_no_loss() -> None:
    """A batch is given back where one delivery is all there is; the crash comes right after it."""
    server = ManagementServer(delivery_count_max=1)
    for number in range(8):
        server.send(f"m-{number}")
    spark = SimulatedSpark(server, maxBatchAttempts="1")

    def die(_rows: list[dict[str, Any]]) -> None:
        raise RuntimeError("the task has died")

    spark.task = die
    with pytest.raises(RuntimeError):
        spark.run()
    spark.task = _ignore
    for step in range(1, 30):
        spark.steps.dies_at = {spark.steps.count + step}
        try:
            spark.run()
        except Crash:
            continue
        break
    assert spark.rows == []
    assert server.counts() == (0, 8)
