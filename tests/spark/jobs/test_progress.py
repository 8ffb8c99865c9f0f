"""Progress: one line, calm and honest."""

import io
import json
import socket
from typing import Any

import pytest

from peeklock.spark.jobs import frame
from peeklock.spark.jobs.progress import Batches, Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def event(batch: int, rows: int, **offsets: Any) -> dict[str, Any]:
    source = {name: json.dumps(offset) for name, offset in offsets.items()}
    return {"batchId": batch, "numInputRows": rows, "sources": [source]}


def test_rows_rate_backlog_and_time_left() -> None:
    time = Time()
    batches = Batches(time)
    time.now = 10.0
    assert batches.take(event(0, 5_000, latestOffset={"active": 55_000}))
    assert batches.line() == "5,000 rows, 500/s, 55,000 left, about 1 min 50 s"
    assert not batches.take(event(0, 5_000, latestOffset={"active": 55_000}))
    time.now = 20.0
    assert batches.take(event(1, 5_000, latestOffset={"active": 0}))
    assert batches.line() == "10,000 rows, 500/s, 0 left"


def test_the_backlog_of_a_journal_is_its_positions_behind_the_batch() -> None:
    time = Time()
    batches = Batches(time)
    time.now = 1.0
    batches.take(event(0, 10, endOffset={"p": {"0": 10}}, latestOffset={"next": {"0": 25, "1": 5}}))
    assert batches.line() == "10 rows, 10/s, 20 left, about 2 s"


def test_a_source_that_does_not_tell_has_no_backlog() -> None:
    batches = Batches(Time())
    batches.take(event(0, 10, endOffset={"x": 1}, latestOffset="nonsense"))
    assert "left" not in batches.line()


def test_a_terminal_has_one_line_that_changes() -> None:
    stream, time = Terminal(), Time()
    progress = Progress("capture", stream, time)
    progress.show("1 rows")
    progress.show("2 rows")
    progress.say("done")
    assert stream.getvalue() == ("capture: 1 rows\r\x1b[2Kcapture: 2 rows\r\x1b[2Kcapture: done\n")


def test_elsewhere_a_line_is_written_every_ten_seconds() -> None:
    stream, time = io.StringIO(), Time()
    progress = Progress("capture", stream, time)
    for now in range(21):
        time.now = float(now)
        progress.show(f"{now} rows")
    assert stream.getvalue().splitlines() == [
        "capture: 0 rows",
        "capture: 10 rows",
        "capture: 20 rows",
    ]


def test_a_step_that_takes_long_says_how_long() -> None:
    stream, time = io.StringIO(), Time()
    progress = Progress("tune", stream, time)
    with progress.step("reading facts"):
        time.now = 7.0
    with progress.step("adding up"):
        pass
    assert stream.getvalue().splitlines() == [
        "tune: reading facts ...",
        "tune: reading facts: done in 7 s",
    ]


def test_durations_are_written_as_people_say_them() -> None:
    assert [duration(s) for s in (0.4, 89, 90, 3_599, 7_260)] == [
        "0 s",
        "89 s",
        "1 min 30 s",
        "59 min 59 s",
        "2 h 01 min",
    ]


def test_a_broker_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;"
    with pytest.raises(frame.Impossible, match=f"no broker answers at localhost:{port}"):
        frame.Bus(text, None).check()
