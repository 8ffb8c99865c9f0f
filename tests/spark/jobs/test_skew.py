"""Skew: shares, Gini, hot minutes, and what if there were other partitions."""

from typing import TYPE_CHECKING

import pytest

from peeklock.entity.routing import partition_of_key
from tests.spark.jobs.made_facts import MadeFacts, only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_shares_of_partitions_and_their_gini(spark: "SparkSession") -> None:
    """R-D4: partition skew of an entity."""
    from peeklock.spark.jobs.skew import LINE, by_partition, gini, messages_in

    made_facts = MadeFacts()
    for partition, count in enumerate((10, 20, 30, 40)):
        for turn in range(count):
            number = made_facts.send(turn, partition=partition, size=10)
            if turn % 2:
                made_facts.fact(turn + 1, "receive_delete", number)
    facts = made_facts.table(spark)
    shares = by_partition(messages_in(facts, "session_id"), facts).persist()
    rows = shares.orderBy("partition_id").collect()
    assert [row.share for row in rows] == [0.1, 0.2, 0.3, 0.4]
    assert [row.backlog for row in rows] == [5, 10, 15, 20]
    assert [row.bytes for row in rows] == [100, 200, 300, 400]
    # By the definition: the mean difference of all pairs over twice the mean.
    loads = (10, 20, 30, 40)
    expected = sum(abs(a - b) for a in loads for b in loads) / (2 * 4 * 100)
    assert only(gini(shares, LINE))["gini"] == pytest.approx(expected)


def test_empty_partitions_count(spark: "SparkSession") -> None:
    """One hundred messages in one of sixteen partitions could not be less even."""
    from peeklock.spark.jobs.skew import LINE, by_partition, gini, messages_in

    made_facts = MadeFacts("Orders")
    for turn in range(100):
        made_facts.send(turn, partition=5)
    facts = made_facts.table(spark)
    messages = messages_in(facts, "session_id")
    told = only(gini(by_partition(messages, facts, {"orders": 16}), LINE))
    assert (told["loads"], told["gini"]) == (16, 15 / 16)
    # Without a description the highest number that was seen is the last one.
    assert only(gini(by_partition(messages, facts), LINE))["loads"] == 6


def test_partition_counts_come_from_descriptions() -> None:
    from peeklock.client.administration.atom import QUEUE, SUBSCRIPTION, TOPIC
    from peeklock.spark.jobs.namespace import ListedEntity
    from peeklock.spark.jobs.skew import partition_counts

    entities = [
        ListedEntity(QUEUE, "Plain"),
        ListedEntity(TOPIC, "Wide", properties={"PartitionCount": 16}),
        ListedEntity(SUBSCRIPTION, "audit", topic="Wide"),
    ]
    assert partition_counts(entities) == {"plain": 1, "wide": 16}


def test_a_heavy_key_is_named_and_no_partition_helps(spark: "SparkSession") -> None:
    from peeklock.spark.jobs.skew import by_key, messages_in, top_keys, what_if

    made_facts = MadeFacts()
    for turn in range(200):
        made_facts.send(turn, session_id="heavy" if turn % 2 else f"s-{turn}")
    for turn in range(40):
        made_facts.send(turn)
    messages = messages_in(made_facts.table(spark), "session_id").persist()
    keys = by_key(messages).persist()
    first, *_ = top_keys(keys, 3).collect()
    assert (first.key, first.messages, first.share) == ("heavy", 100, 0.5)
    loads: dict[int, list[float]] = {n: [40 / n] * n for n in (1, 2, 4, 8, 16, 32)}
    for row in made_facts.rows:
        for partitions, load in loads.items():
            if row.get("session_id"):
                load[partition_of_key(row["session_id"], partitions)] += 1
    told = {row.partitions: row.largest_share for row in what_if(messages, keys).collect()}
    assert told == {n: pytest.approx(max(load) / 240, abs=1e-6) for n, load in loads.items()}


def test_keys_go_where_the_broker_puts_them(spark: "SparkSession") -> None:
    from pyspark.sql import functions as fn

    from peeklock.spark.jobs.skew import partition_of

    keys = ["", "a", "session-1", "ümläut", "日本語", "🙂" * 20]
    rows = spark.createDataFrame([(key,) for key in keys], "key string")
    told = rows.select("key", partition_of("key", fn.lit(32)).alias("partition")).collect()
    assert {row.key: row.partition for row in told} == {k: partition_of_key(k, 32) for k in keys}


def test_minutes_in_which_one_partition_took_too_much(spark: "SparkSession") -> None:
    from peeklock.spark.jobs.skew import by_partition, hot_minutes, messages_in

    made_facts = MadeFacts()
    for minute in range(3):
        for turn in range(40):
            partition = 3 if minute == 1 else turn % 4
            made_facts.send(minute * 60_000 + turn, partition=partition)
    facts = made_facts.table(spark)
    messages = messages_in(facts, "session_id")
    hot = only(hot_minutes(messages, by_partition(messages, facts), 2.0))
    assert (hot["partition_id"], hot["minute"].minute, hot["times_even"]) == (3, 1, 4.0)
