"""The audit finds what was planted, all of it and nothing else."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.jobs.made_facts import MadeFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT = "message_id string, acked boolean, session_id string, sent_order long"
RECEIVED = "message_id string, settled boolean, session_id string, received_order long"


def verdicts(judged: "DataFrame", but: str = "fine") -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in judged.where(f"verdict != '{but}'").collect():
        found.setdefault(row.verdict, set()).add(row.message_id)
    return found


def test_planted_losses_and_doubles_are_found_exactly(spark: "SparkSession") -> None:
    """R-D5: lost, duplicated, unexpected, in doubt and recovered, over a sender's log and a
    receiver's."""
    from peeklock.spark.jobs.audit import judge, received_in, sent_in

    sent: list[tuple[Any, ...]] = [(f"m{n}", n not in (5, 6), None, n) for n in range(2000)]
    received: list[tuple[Any, ...]] = [(f"m{n}", True, None, n) for n in range(2000)]
    lost = {f"m{n}" for n in (7, 77, 777)}
    received = [row for row in received if row[0] not in lost | {"m5"}]
    # Delivered twice and settled once is nothing special; settled twice is.
    received += [("m9", False, None, 3000), ("m10", True, None, 3001), ("ghost", True, None, 3002)]
    judged = judge(
        sent_in(spark.createDataFrame(sent, SENT)),
        received_in(spark.createDataFrame(received, RECEIVED)),
    )
    assert verdicts(judged) == {
        "lost": lost,
        "in_doubt": {"m5"},
        "recovered": {"m6"},
        "duplicated": {"m10"},
        "unexpected": {"ghost"},
    }


def test_order_is_looked_at_within_sessions(spark: "SparkSession") -> None:
    from peeklock.spark.jobs.audit import disordered, received_in, sent_in

    sent: list[tuple[Any, ...]] = [(f"{s}{n}", True, s, n) for s in ("a", "b") for n in range(5)]
    # Sessions may overtake each other; a3 comes after a4, and b1 once more, which is no disorder.
    order = ["b0", "a0", "a1", "b1", "b2", "a2", "a4", "a3", "b1", "b3", "b4"]
    received: list[tuple[Any, ...]] = [(id, True, None, at) for at, id in enumerate(order)]
    found = disordered(
        sent_in(spark.createDataFrame(sent, SENT)),
        received_in(spark.createDataFrame(received, RECEIVED)),
    )
    assert [(row.message_id, row.session_id) for row in found.collect()] == [("a3", "a")]


def made_journal() -> MadeFacts:
    """A queue in which every end is seen once."""
    made_facts = MadeFacts()
    for turn in range(10):
        made_facts.handled(turn, 5, 5)
    made_facts.send(100, message_id="resting")
    expired = made_facts.send(101, message_id="expired")
    made_facts.fact(200, "expire", expired)
    dead = made_facts.send(102, message_id="dead")
    made_facts.fact(201, "deliver", dead)
    made_facts.fact(202, "deadletter", dead, reason="NoAddress")
    # A dead letter that somebody took away, and one that was sent again and went well.
    for name in ("buried", "replayed"):
        number = made_facts.send(103, message_id=name)
        made_facts.fact(203, "deadletter", number)
        made_facts.fact(204, "complete", number, sub_entity="$DeadLetterQueue")
    made_facts.handled(250, 1, 1, message_id="replayed")
    # What is scheduled or staged is known by its id under the number that it gets later.
    for name, op, then in (("later", "schedule", "activate"), ("staged", "stage", "publish")):
        old = made_facts.send(105, message_id=name, op=op)
        new = made_facts.send(260, message_id=None, op=then, size=None, description=str(old))
        made_facts.fact(261, "receive_delete", new)
    # What a link did not send is back, and may be received later.
    for name in ("back", "sent at last"):
        number = made_facts.send(106, message_id=name)
        made_facts.fact(206, "receive_delete", number)
        made_facts.fact(207, "requeue", number)
        if name != "back":
            made_facts.fact(208, "receive_delete", number)
    made_facts.send(106, message_id="not yet", op="schedule")
    given_up = made_facts.send(107, message_id="given up", op="stage")
    made_facts.fact(300, "purge", given_up, reason="StageExpired")
    # Of a subscription that was deleted nobody knows the lane, nor of a change.
    deleted = made_facts.send(108, message_id="deleted", sub_entity=None)
    made_facts.fact(109, "change", deleted, sub_entity=None)
    made_facts.fact(110, "complete", deleted, sub_entity=None)
    twice = made_facts.handled(104, 1, 1, message_id="twice")
    made_facts.fact(300, "complete", twice)
    made_facts.fact(301, "complete", 99_999)
    return made_facts


def test_a_journal_knows_where_messages_are(spark: "SparkSession") -> None:
    from peeklock.spark.jobs.audit import (
        ends_by,
        identified,
        judge,
        received_by,
        sent_by,
    )
    from peeklock.spark.jobs.facts.table import follow

    made_facts = made_journal()
    followed = identified(follow(made_facts.table(spark))).persist()
    judged = judge(sent_by(followed), received_by(followed), ends_by(followed))
    assert verdicts(judged) == {
        "resting": {"resting", "back"},  # and what is not due yet was not sent yet
        "removed": {"expired"},
        "dead_lettered": {"dead", "buried"},
        "duplicated": {"twice"},
        "unexpected": {"#99999"},
    }


def test_the_job_ends_with_what_it_found(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-D5: an exit status for CI, and a table of the offending ids."""
    from peeklock.spark.jobs import audit

    made_facts = made_journal()
    made_facts.table(spark).write.parquet(str(tmp_path / "facts"))
    ops = ("send", "schedule", "stage")
    sent = [
        (row["message_id"],)
        for row in made_facts.rows
        if row["op"] in ops and row["message_id"] != "given up"
    ]
    spark.createDataFrame([*sent, ("gone",)], "message_id string").write.json(
        str(tmp_path / "sent.json")
    )
    out = tmp_path / "out"
    given = ["--facts", str(tmp_path / "facts"), "--out", str(out), "--format", "json"]

    def status(*more: str) -> object:
        with pytest.raises(SystemExit) as ended:
            audit.main([*given, *more])
        return ended.value.code

    assert status("--sent", str(tmp_path / "sent.json")) == 1
    told = capsys.readouterr()
    assert "found 1 lost, 1 duplicated, 1 unexpected" in told.err
    offending = spark.read.json(str(out / "offending")).collect()
    assert {(row.message_id, row.verdict) for row in offending} == {
        ("gone", "lost"),
        ("twice", "duplicated"),
        ("#99999", "unexpected"),
    }
    assert status("--allow", "duplicated", "--allow", "unexpected") == 0
    assert status("--allow", "nonsense") == 2
    assert status("--sent", str(tmp_path / "nowhere")) == 2


def test_times_in_logs_are_numbers_or_iso_texts(spark: "SparkSession") -> None:
    from peeklock.spark.jobs.audit import disordered, received_in, sent_in

    sent = [(f"a{n}", "s", f"2026-03-01T12:00:0{n}+01:00") for n in range(4)]
    received = [(f"a{n}", f"2026-03-01T11:00:0{at}.5Z") for at, n in enumerate((0, 2, 1, 3))]
    found = disordered(
        sent_in(
            spark.createDataFrame(sent, "message_id string, session_id string, sent_at string")
        ),
        received_in(spark.createDataFrame(received, "message_id string, received_at string")),
    )
    assert [row.message_id for row in found.collect()] == ["a1"]
    numbers = spark.createDataFrame([("a", "17"), ("b", None)], "message_id string, at string")
    assert [row.received_order for row in received_in(numbers).collect()] == [17, None]


def test_a_time_that_is_none_is_told_with_its_column(spark: "SparkSession") -> None:
    from peeklock.spark.jobs import frame
    from peeklock.spark.jobs.audit import received_in

    wrong = spark.createDataFrame([("a", "yesterday")], "message_id string, received_at string")
    with pytest.raises(Exception, match="received_at has 'yesterday'") as raised:
        received_in(wrong).collect()
    assert "neither a whole number nor an ISO 8601 time" in frame._told(raised.value)
