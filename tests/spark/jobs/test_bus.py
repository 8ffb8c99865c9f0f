"""The jobs on a real broker: what happened there is what they tell."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.spark_broker import Bus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each of them starts several jobs, and some a Spark of their own.
pytestmark = pytest.mark.timeout(400)


def run(module: Any, *arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        module.main(list(arguments))
    return ended.value.code


def reached(bus: Bus) -> list[str]:
    return ["--connection-string", bus.connection_string, "--http-port", str(bus.process.http_port)]


@pytest.fixture(scope="module")
def traffic(bus: Bus) -> tuple[str, str]:
    """A queue and a topic that were used: of 30 orders 20 are taken, 4 of them at the second
    attempt; 6 die, 4 rest. Of 5 events all are taken by one subscription and none by the other."""
    queue = bus.queue(MaxDeliveryCount=2)
    bus.send(queue, [f"order {n}" for n in range(10)], subject="order")
    # The first six fail twice and die.
    bus.fail(queue, 6, times=2)
    bus.send(queue, [f"order {n}" for n in range(16)], ids=[f"late-{n}" for n in range(16)])
    bus.fail(queue, 4)
    bus.drain(queue)
    bus.send(queue, ["resting"] * 4, ids=[f"resting-{n}" for n in range(4)])
    topic = bus.topic("taken", "left")
    bus.send(topic, ["event"] * 5)
    bus.drain(f"{topic}/Subscriptions/taken")
    return queue, topic


def test_the_journal_is_rolled_up_and_reported(
    spark: "SparkSession", bus: Bus, traffic: tuple[str, str], tmp_path: Path
) -> None:
    """R-D4: telemetry of real traffic, by batch and by stream."""
    from peeklock.spark.jobs import report, rollup

    queue, topic = traffic
    only = [*reached(bus), "--entity", queue, "--entity", topic]
    for name, given in {"batch": only, "stream": [*only, "--stream"]}.items():
        out = str(tmp_path / name)
        assert run(rollup, *given, "--out", out) == 0
        rows = spark.read.parquet(f"{out}/hours").where(f"entity = '{queue}'").collect()
        lanes = {row["sub_entity"]: row for row in rows}
        main, dead = lanes[""], lanes["$DeadLetterQueue"]
        told = {key: main[key] for key in ("sends", "deliveries", "abandons", "dead_letters")}
        assert told == {"sends": 30, "deliveries": 36, "abandons": 10, "dead_letters": 6}, name
        assert (main["completes"], main["backlog"], dead["backlog"]) == (20, 4, 6)
        assert main["total_ms_p50"] is not None
    page = tmp_path / "page.html"
    assert run(report, "--rollup", str(tmp_path / "batch"), "--out", str(page)) == 0
    assert f"{topic}/Subscriptions/left" in page.read_text()


def test_a_captured_journal_has_the_facts_of_the_journal(
    spark: "SparkSession", bus: Bus, traffic: tuple[str, str], tmp_path: Path
) -> None:
    """R-D2, R-D4: what a job reads in a lake is what it reads at the broker."""
    from peeklock.spark.jobs import capture
    from peeklock.spark.jobs.facts.fact_source import FactSource

    queue, _ = traffic
    lake = str(tmp_path / "journal")
    assert run(capture, queue, *reached(bus), "--mode", "journal", "--out", lake) == 0
    at_the_broker = FactSource(bus.connection_string, bus.process.http_port, [queue], "")
    facts = at_the_broker.read(spark).orderBy("position", "sequence_number").collect()
    kept = FactSource("", None, None, lake).read(spark).drop("date", "hour")
    assert kept.orderBy("position", "sequence_number").collect() == facts
    assert len([fact for fact in facts if fact.op == "send"]) == 30


def test_the_audit_of_real_traffic_finds_everything(
    bus: Bus, traffic: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-D5: every message that was sent is where it belongs; one that was not is missed."""
    from peeklock.spark.jobs import audit

    queue, topic = traffic
    given = [*reached(bus), "--format", "json", "--out", str(tmp_path / "out")]
    assert run(audit, *given, "--entity", queue, "--entity", topic) == 0
    [part] = (tmp_path / "out" / "verdicts").glob("*.json")
    rows = [json.loads(line) for line in part.read_text().splitlines()]
    counts = {row["verdict"]: row["messages"] for row in rows if row["messages"]}
    # Both subscriptions have an id of each event.
    assert counts == {"fine": 25, "dead_lettered": 6, "resting": 9}
    ids = [*(f"late-{n}" for n in range(16)), *(f"m-{n}" for n in range(10)), "never arrived"]
    sent = tmp_path / "sent.jsonl"
    sent.write_text("".join(json.dumps({"message_id": id}) + "\n" for id in ids))
    more = ["--entity", queue, "--sent", str(sent)]
    assert run(audit, *given, *more) == 1
    assert "found 1 lost" in capsys.readouterr().err


def test_the_audit_follows_messages_through_forwarding_and_partitions(
    bus: Bus, tmp_path: Path
) -> None:
    """R-D5: what was forwarded is neither lost where it was nor unexpected where it is."""
    from peeklock.spark.jobs import audit

    last = bus.queue()
    first = bus.queue(ForwardTo=last)
    topic = bus.topic()
    bus.subscription(topic, "on", ForwardTo=last)
    spread = bus.queue(EnablePartitioning=True)
    graves = bus.queue()
    deadly = bus.queue(MaxDeliveryCount=1, ForwardDeadLetteredMessagesTo=graves)
    bus.send(first, ["x"] * 4, ids=[f"f-{n}" for n in range(4)])
    bus.send(topic, ["x"] * 3, ids=[f"t-{n}" for n in range(3)])
    bus.send(spread, ["x"] * 6, ids=[f"p-{n}" for n in range(6)])
    bus.send(deadly, ["x"] * 2, ids=[f"d-{n}" for n in range(2)])
    bus.fail(deadly, 2)
    found: list[Any] = []
    while len(found) < 7:
        found += bus.drain(last)
    while len(bus.peek(graves)) < 2:
        pass
    bus.drain(spread)
    entities = (last, first, topic, spread, graves, deadly)
    names = [text for entity in entities for text in ("--entity", entity)]
    given = [*reached(bus), *names, "--format", "json", "--out", str(tmp_path / "out")]
    assert run(audit, *given) == 0
    [part] = (tmp_path / "out" / "verdicts").glob("*.json")
    rows = [json.loads(line) for line in part.read_text().splitlines()]
    counts = {row["verdict"]: row["messages"] for row in rows if row["messages"]}
    # Those that were forwarded are fine in both places.
    assert counts == {"fine": 20, "dead_lettered": 2, "resting": 2}


def looked_at_together(spark: "SparkSession", bus: Bus, queue: str) -> None:
    """One query, and a task for each of them: they were asked one after the other."""
    from pyspark.sql import functions as fn

    from peeklock.spark.jobs import frame, triage
    from peeklock.spark.jobs.namespace import entity_at

    queues = [queue]
    for _ in range(3):
        queues.append(bus.queue(MaxDeliveryCount=1))
        bus.send(queues[-1], ["bad"])
        bus.fail(queues[-1], 1)
    reach = frame.Bus(bus.connection_string, bus.process.http_port)
    found = triage.dead_letters(spark, reach, [entity_at(each) for each in queues])
    with redirect_stdout(StringIO()) as plan:
        found.explain()
    assert plan.getvalue().count("MapInArrow") == 1
    rows = found.select("entity", fn.spark_partition_id().alias("task")).distinct().collect()
    assert sorted(row.entity for row in rows) == sorted(queues)
    assert len({row.task for row in rows}) == len(queues)


def test_dead_letters_advice_and_skew_of_real_traffic(
    spark: "SparkSession", bus: Bus, traffic: tuple[str, str], tmp_path: Path
) -> None:
    """R-D3, R-D4: dead letters are looked at and stay; advice has the entity's own lock."""
    from peeklock.spark.jobs import skew, triage, tune

    queue, _ = traffic
    out = str(tmp_path / "triage")
    assert run(triage, *reached(bus), "--entity", queue, "--out", out) == 0
    [group] = spark.read.parquet(f"{out}/groups").collect()
    assert (group.entity, group.reason, group.messages) == (queue, "MaxDeliveryCountExceeded", 6)
    assert "MaxDeliveryCountExceeded" in (tmp_path / "triage" / "triage.html").read_text()
    assert len(bus.peek(f"{queue}/$DeadLetterQueue")) == 6
    looked_at_together(spark, bus, queue)
    out = str(tmp_path / "tune")
    assert run(tune, *reached(bus), "--entity", queue, "--out", out) == 0
    advice = {row.setting: row for row in spark.read.parquet(f"{out}/advice").collect()}
    assert "60 s lock" in advice["prefetch"].arithmetic
    out = str(tmp_path / "skew")
    assert run(skew, *reached(bus), "--entity", queue, "--out", out) == 0
    assert spark.read.parquet(f"{out}/partitions").collect()[0].share == 1.0
