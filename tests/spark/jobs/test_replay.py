"""Replay: dead letters and archived messages are sent again, the right ones and once."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.jobs.commands import run_command
from tests.spark.spark_broker import DEAD_LETTERS, Bus

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


def bury(bus: Bus, queue: str, count: int, **more: Any) -> None:
    """Let messages die: the queue gives up after one delivery."""
    bus.send(queue, [f"body {n}" for n in range(count)], **more)
    bus.fail(queue, count)
    assert len(bus.peek(queue + DEAD_LETTERS)) == count


def test_dead_letters_are_sent_again_and_completed(
    spark: "SparkSession", bus: Bus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-D3: filtered replay; originals go when their successors are there, the others stay."""
    from peeklock.spark.jobs import replay

    queue = bus.queue(MaxDeliveryCount=1)
    bury(bus, queue, 10, subject="order", properties={"shelf": 7})
    given = [queue, *reached(bus), "--id", f"r-{queue}", "--out", str(tmp_path)]
    given += ["--where", "cast(substring(message_id, 3) as int) < 6"]
    assert run(replay, *given, "--dry-run") == 0
    assert "6 messages would be sent" in capsys.readouterr().err
    assert len(bus.peek(queue + DEAD_LETTERS)) == 10

    given += ["--select", "upper(subject) AS subject", "--rate", "3000", "--batch-size", "5"]
    assert run(replay, *given) == 0
    back = bus.peek(queue)
    assert sorted(one["MessageId"] for one in back) == [f"m-{n}" for n in range(6)]
    assert {one["Subject"] for one in back} == {"ORDER"}
    # The marks of death are gone, and a number is still a number.
    assert [one["ApplicationProperties"] for one in back] == [{"shelf": 7}] * 6
    assert {one["DeliveryCount"] for one in back} == {0}
    left = bus.peek(queue + DEAD_LETTERS)
    assert sorted(one["MessageId"] for one in left) == [f"m-{n}" for n in range(6, 10)]
    # They are dead letters like others again: whoever comes gets them.
    assert {one["State"] for one in left} == {"active"}
    undo = spark.read.parquet(str(tmp_path / "undo"))
    assert {row.message_id for row in undo.collect()} == {f"m-{n}" for n in range(6)}
    # Under its name it goes on, and there is nothing to go on with.
    assert run(replay, *given) == 0
    assert len(bus.peek(queue)) == 6


def test_a_replay_is_a_calm_command(bus: Bus, tmp_path: Path) -> None:
    """R-D6: one that succeeded printed a trace of Java's, of ninety lines."""
    queue = bus.queue(MaxDeliveryCount=1)
    bury(bus, queue, 6)
    out = tmp_path / "replay"
    given = [queue, *reached(bus), "--id", f"c-{queue}", "--out", str(out), "--master", "local[1]"]
    told = run_command("replay", *given, "--batch-size", "4")
    assert told.code == 0, told.lines
    assert [line for line in told.lines if not line.startswith("replay: ")] == []
    progress, last = told.lines[-2:]
    assert re.fullmatch(r"replay: 6 rows, \d+/s, 0 left", progress)
    assert last == f"replay: 6 messages are sent to {queue}; the originals are in {out}/undo"
    # Where lines cannot be overwritten there are few of them.
    assert len(told.lines) <= 12
    assert len(bus.peek(queue)) == 6


@pytest.mark.torture
def test_a_command_that_fails_in_its_tasks_says_so_in_a_sentence(bus: Bus, tmp_path: Path) -> None:
    """R-D6: Spark logs the stack in each place that it passes, on both sides of the wire."""
    queue = bus.queue(MaxDeliveryCount=1)
    bury(bus, queue, 3)
    given = [queue, *reached(bus), "--id", f"f-{queue}", "--out", str(tmp_path)]
    given += [
        "--select",
        "cast(raise_error('no such shelf') AS string) AS subject",
        "--master",
        "local[1]",
    ]
    told = run_command("replay", *given)
    assert told.code == 2
    problem = [line for line in told.lines if not line.startswith("replay: ")]
    assert len(problem) <= 2
    assert "no such shelf" in problem[-1]
    assert len(bus.peek(queue + DEAD_LETTERS)) == 3


def test_sql_that_cannot_be_read_is_told_before_anything_is_claimed(
    spark: "SparkSession", bus: Bus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stream was begun, and failed with a trace of Java's."""
    from peeklock.spark.jobs import replay

    queue = bus.queue(MaxDeliveryCount=1)
    bury(bus, queue, 3)
    given = [queue, *reached(bus), "--id", f"s-{queue}", "--out", str(tmp_path)]
    for option, text in [
        ("--where", "shelf = 1"),
        ("--select", "shelf AS subject"),
        ("--transform", "SELECT shelf FROM messages"),
    ]:
        assert run(replay, *given, option, text) == 2
        assert "`shelf` cannot be resolved" in capsys.readouterr().err.splitlines()[-1]
    assert {one["State"] for one in bus.peek(queue + DEAD_LETTERS)} == {"active"}
    assert not (tmp_path / "checkpoint").exists()


def test_a_replay_that_was_interrupted_sends_nothing_twice(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    """R-D3: a crash between sending and completing; the next run completes and does not send."""
    from peeklock.spark.jobs import frame
    from peeklock.spark.jobs.namespace import entity_at
    from peeklock.spark.jobs.replay import FromDeadLetters, ReplayChoice, ReplayRun

    queue = bus.queue(MaxDeliveryCount=1)
    bury(bus, queue, 8)
    place = frame.TableFolder(str(tmp_path))
    reach = frame.Bus(bus.connection_string, bus.process.http_port)

    def again() -> ReplayRun:
        return ReplayRun(f"i-{queue}", ReplayChoice(new_ids="n"), reach, queue, place)

    class Interrupted(Exception):
        pass

    class Interrupting:
        """Sends, and dies before anybody hears of it."""

        def __init__(self) -> None:
            self._replay = again()
            self.id, self.bus, self.place = self._replay.id, reach, place
            self.wish = self._replay.wish

        def send(self, chosen: Any, batch: int, run: str) -> int:
            self._replay.send(chosen, batch, run)
            raise Interrupted

    from pyspark.errors import StreamingQueryException

    interrupting: Any = Interrupting()
    with pytest.raises(StreamingQueryException):
        FromDeadLetters(interrupting, entity_at(queue), 5).run(frame.JobRun("replay"))
    assert len(bus.peek(queue)) == 5
    FromDeadLetters(again(), entity_at(queue), 5).run(frame.JobRun("replay"))
    assert len(bus.peek(queue)) == 8
    assert bus.peek(queue + DEAD_LETTERS) == []
    assert {one["ApplicationProperties"]["x-replayed-from"] for one in bus.peek(queue)} == {
        f"m-{n}" for n in range(8)
    }


def test_a_replay_whose_checkpoint_is_gone_completes_nothing_that_it_did_not_send(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    """R-D3: the same name on another machine counts its batches from 0 again."""
    from peeklock.spark.jobs import frame
    from peeklock.spark.jobs.namespace import entity_at
    from peeklock.spark.jobs.replay import FromDeadLetters, ReplayChoice, ReplayRun

    queue = bus.queue(MaxDeliveryCount=1)
    target = bus.queue()
    reach = frame.Bus(bus.connection_string, bus.process.http_port)
    for machine in ("one", "two"):
        bury(bus, queue, 4)
        again = ReplayRun(
            f"g-{queue}", ReplayChoice(), reach, target, frame.TableFolder(str(tmp_path / machine))
        )
        FromDeadLetters(again, entity_at(queue), 5).run(frame.JobRun("replay"))
    assert bus.peek(queue + DEAD_LETTERS) == []
    assert len(bus.peek(target)) == 8


def test_a_queue_is_captured_and_the_lake_replayed(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    """R-D2: an archive that can be replayed; nothing twice, however often either job runs."""
    from peeklock.spark.jobs import capture, frame, replay

    queue, other = bus.queue(), bus.queue()
    lake = str(tmp_path / "lake")
    for number in range(2):
        bus.send(queue, [f"body {n}" for n in range(30)], ids=[f"c{number}-{n}" for n in range(30)])
        assert run(capture, queue, *reached(bus), "--out", lake, "--max-messages", "20") == 0
        assert bus.peek(queue) == []
    table = frame.read_table(spark, lake)
    assert table.count() == 60
    assert table.select("message_id").distinct().count() == 60
    given = [*reached(bus), "--lake", lake, "--to", other, "--id", f"l-{queue}"]
    given += ["--where", "message_id like 'c1-%'", "--batch-size", "20"]
    given += ["--out", str(tmp_path / "replay")]
    for _ in range(2):
        assert run(replay, *given) == 0
        assert sorted(bus.bodies(other)) == sorted(f"body {n}" for n in range(30))


def test_a_lake_is_replayed_on_in_the_batches_that_it_was_begun_with(
    spark: "SparkSession", bus: Bus, tmp_path: Path
) -> None:
    """R-D3: it was interrupted, and goes on at another rate; other rows are another replay."""
    from peeklock.spark.jobs import frame
    from peeklock.spark.jobs.replay import FromLake, ReplayChoice, ReplayRun

    queue = bus.queue()
    lake = str(tmp_path / "lake")
    rows = [(number, f"m-{number}", f"body {number}") for number in range(10)]
    columns = "sequence_number long, message_id string, body string"
    spark.createDataFrame(rows, columns).write.parquet(lake)
    reach = frame.Bus(bus.connection_string, bus.process.http_port)

    def again(where: str = "") -> ReplayRun:
        return ReplayRun(
            "on", ReplayChoice(where), reach, queue, frame.TableFolder(str(tmp_path / "out"))
        )

    class Interrupted(Exception):
        pass

    class Interrupting:
        """Sends two batches, and dies before anybody hears of the second."""

        def __init__(self) -> None:
            self._replay = again()
            self.id, self.target, self.wish = self._replay.id, queue, self._replay.wish
            self.place = self._replay.place

        def send(self, chosen: Any, batch: int, run: str) -> int:
            count = self._replay.send(chosen, batch, run)
            if batch == 1:
                raise Interrupted
            return count

    interrupting: Any = Interrupting()
    with pytest.raises(Interrupted):
        FromLake(interrupting, lake, 4).run(frame.JobRun("replay"))
    FromLake(again(), lake, 3).run(frame.JobRun("replay"))
    assert bus.bodies(queue) == sorted(body for _, _, body in rows)
    with pytest.raises(frame.Impossible, match="another --id"):
        FromLake(again("sequence_number > 3"), lake, 4).run(frame.JobRun("replay"))


def test_a_table_whose_rows_nobody_can_tell_apart_is_refused(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from peeklock.spark.jobs import frame
    from peeklock.spark.jobs.replay import FromLake, ReplayChoice, ReplayRun

    lake = str(tmp_path / "lake")
    spark.createDataFrame([("q", "body")], "entity string, body string").write.parquet(lake)
    again = ReplayRun(
        "r", ReplayChoice(), frame.Bus("", None), "q", frame.TableFolder(str(tmp_path / "out"))
    )
    with pytest.raises(frame.Impossible, match="neither sequence_number nor message_id"):
        FromLake(again, lake, 4).run(frame.JobRun("replay"))


def test_what_cannot_be_replayed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    from peeklock.spark.jobs import replay

    assert run(replay, "--id", "x") == 2
    assert "name an entity with dead letters" in capsys.readouterr().err
    assert run(replay, "t/Subscriptions/s", "--id", "x") == 2
    assert "say where to with --to" in capsys.readouterr().err
