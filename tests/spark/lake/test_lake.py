"""Lakes are written exactly once, whatever is repeated, and anybody can read them (R-D1)."""

import json
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from peeklock.spark import lake
from peeklock.spark.lake.files import Contribution, Files, Layout, divided
from peeklock.spark.lake.lake_writers import LakeBatchWriter, layout_of
from peeklock.spark.lake.tables import (
    LakeBatch,
    LakeProblem,
    commit_delta,
    commit_parquet,
    gathered,
)
from peeklock.spark.options import OptionProblem
from tests.spark.structs import struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "sequence_number long, enqueued_time timestamp, entity string, body binary"
DAY = datetime(2026, 11, 15, 10, 30, tzinfo=UTC)
NEXT = datetime(2026, 11, 16, 0, 0, tzinfo=UTC)


def rows(*some: tuple[int, datetime | None, str | None]) -> pa.RecordBatch:
    numbers, instants, entities = zip(*some, strict=True)
    return pa.record_batch(
        {
            "sequence_number": pa.array(numbers, pa.int64()),
            "enqueued_time": pa.array(instants, pa.timestamp("us", tz="UTC")),
            "entity": pa.array(entities, pa.string()),
            "body": pa.array([b"%d" % number for number in numbers], pa.binary()),
        }
    )


def layout(path: Path, *, kind: str = "delta", **options: str) -> Layout:
    given = {"path": str(path), "kind": kind, **options}
    return layout_of(given, struct(SCHEMA), False)


def contribution(
    place: Layout, *batches: pa.RecordBatch, batch: int = 0, partition: int = 0
) -> Contribution:
    """What a task would tell the driver."""
    files = Files(place)
    for one in batches:
        files.write(one)
    done = files.finish()
    schema = b"" if files.schema is None else files.schema.serialize().to_pybytes()
    return Contribution("query-1", batch, partition, done, schema)


def together(*some: Contribution) -> LakeBatch:
    batch = gathered(some)
    assert batch is not None
    return batch


def parquet_files(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob("*.parquet"))


# --- without Spark: what tasks and driver do


def test_rows_are_divided_by_entity_day_and_hour(tmp_path: Path) -> None:
    some = rows((1, DAY, "a/b"), (2, NEXT, "a/b"), (3, DAY, None), (4, DAY, "a/b"), (5, None, "c"))
    found = {
        values: part.column("sequence_number").to_pylist()
        for values, part in divided(some, layout(tmp_path))
    }
    assert found == {
        ("a/b", date(2026, 11, 15), 10): [1, 4],
        ("a/b", date(2026, 11, 16), 0): [2],
        (None, date(2026, 11, 15), 10): [3],
        ("c", None, None): [5],
    }


def test_a_delta_table_has_each_batch_once(tmp_path: Path) -> None:
    place = layout(tmp_path)
    first = contribution(place, rows((1, DAY, "q"), (2, NEXT, "q/$DeadLetterQueue")))
    second = contribution(place, rows((3, DAY, "q")), partition=1)
    assert commit_delta(place, together(first, second))
    # The driver ended before Spark had noted the commit: the tasks write the batch again.
    again = contribution(place, rows((1, DAY, "q"), (2, NEXT, "q/$DeadLetterQueue"), (3, DAY, "q")))
    assert not commit_delta(place, together(again))
    assert commit_delta(place, together(contribution(place, rows((4, DAY, "q")), batch=1)))
    table = DeltaTable(str(tmp_path)).to_pyarrow_table()
    found = sorted(
        zip(
            *(table[name].to_pylist() for name in ("sequence_number", "entity", "hour")),
            strict=True,
        )
    )
    assert found == [(1, "q", 10), (2, "q/$DeadLetterQueue", 0), (3, "q", 10), (4, "q", 10)]
    assert len(parquet_files(tmp_path)) == 4, "the files of the repeat are gone"
    last = DeltaTable(str(tmp_path)).history(1)[0]
    assert (last["peeklock.batch"], last["peeklock.rows"]) == ("1", "1")


def test_instants_are_utc_in_whatever_zone_a_session_shows_them(tmp_path: Path) -> None:
    place = layout(tmp_path)
    batch = rows((1, NEXT, "q"))
    shown = batch.column("enqueued_time").cast(pa.timestamp("us", tz="Europe/Berlin"))
    batch = batch.set_column(1, "enqueued_time", shown)
    assert commit_delta(place, together(contribution(place, batch)))
    (found,) = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert (found["enqueued_time"], found["date"], found["hour"]) == (NEXT, date(2026, 11, 16), 0)


def test_rows_that_do_not_fit_the_table_are_refused(tmp_path: Path) -> None:
    place = layout(tmp_path)
    commit_delta(place, together(contribution(place, rows((1, DAY, "q")))))
    more = rows((2, DAY, "q")).append_column("colour", pa.array(["red"]))
    other = rows((2, DAY, "q")).set_column(3, "body", pa.array(["text"]))
    elsewhere = layout(tmp_path, partitionBy="date")
    for where, batch, problem in (
        (place, more, "has no column 'colour'"),
        (place, other, "column 'body' is"),
        (elsewhere, rows((2, DAY, "q")), "is divided by entity, date, hour, not by date"),
    ):
        with pytest.raises(LakeProblem, match=problem):
            commit_delta(where, together(contribution(where, batch, batch=1)))
    assert DeltaTable(str(tmp_path)).version() == 1


def test_orphans_of_killed_tasks_are_removed(tmp_path: Path) -> None:
    place = layout(tmp_path)
    assert commit_delta(place, together(contribution(place, rows((1, DAY, "q")))))
    contribution(place, rows((2, DAY, "q")))
    assert len(parquet_files(tmp_path)) == 2
    old = DAY.timestamp() - 365 * 86_400
    for name in parquet_files(tmp_path):
        os.utime(tmp_path / name, (old, old))
    removed = lake.remove_orphans(str(tmp_path))
    assert len(removed) == 1
    assert DeltaTable(str(tmp_path)).to_pyarrow_table()["sequence_number"].to_pylist() == [1]


def test_files_end_at_their_size(tmp_path: Path) -> None:
    place = layout(tmp_path, maxFileSize="1k")
    noise = pa.array([os.urandom(2_000) for _ in range(3)], pa.binary())
    batch = rows(*[(number, DAY, "q") for number in range(3)]).set_column(3, "body", noise)
    files = contribution(place, *[batch.slice(at, 1) for at in range(3)]).files
    assert [file.rows for file in files] == [1, 1, 1]
    assert [(file.first_sequence, file.last_sequence) for file in files] == [(0, 0), (1, 1), (2, 2)]


def test_parquet_of_a_repeated_batch_takes_the_place_of_the_first(tmp_path: Path) -> None:
    place = layout(tmp_path, kind="parquet")
    two = [contribution(place, rows((number, DAY, "t/s")), partition=number) for number in (0, 1)]
    assert ds.dataset(str(tmp_path), format="parquet", partitioning="hive").count_rows() == 0
    commit_parquet(place, together(*two))
    # The same rows in one task: the second file of the first try must not stay.
    one = contribution(place, rows((0, DAY, "t/s"), (1, DAY, "t/s")))
    commit_parquet(place, together(one))
    assert parquet_files(tmp_path) == [
        "entity=t%2Fs/date=2026-11-15/hour=10/query-1-000000000000-00000.parquet"
    ]
    table = ds.dataset(str(tmp_path), format="parquet", partitioning="hive").to_table()
    assert sorted(table["sequence_number"].to_pylist()) == [0, 1]
    assert set(table["entity"].to_pylist()) == {"t/s"}
    (manifest,) = (tmp_path / "_manifest").iterdir()
    told = json.loads(manifest.read_text())
    assert (told["rows"], told["first_sequence_number"], told["last_sequence_number"]) == (2, 0, 1)


def test_a_parquet_commit_that_ended_in_between_is_completed_by_the_next(tmp_path: Path) -> None:
    place = layout(tmp_path, kind="parquet")
    broken = [contribution(place, rows((number, DAY, "q")), partition=number) for number in (0, 1)]
    batch = together(*broken)
    # One of the files is gone, so that the commit fails after the manifest and the first file.
    (tmp_path / batch.files[1].name).unlink()
    with pytest.raises(FileNotFoundError):
        commit_parquet(place, batch)
    commit_parquet(place, together(contribution(place, rows((0, DAY, "q"), (1, DAY, "q")))))
    visible = [name for name in parquet_files(tmp_path) if not Path(name).name.startswith(".")]
    found = [pq.read_table(tmp_path / name)["sequence_number"].to_pylist() for name in visible]
    assert found == [[0, 1]]


def test_three_tries_of_a_parquet_commit_leave_one(tmp_path: Path) -> None:
    """The second try ends before it has deleted what the first one left."""
    place = layout(tmp_path, kind="parquet")
    first = [contribution(place, rows((number, DAY, "q")), partition=number) for number in range(3)]
    commit_parquet(place, together(*first))
    whole = rows(*[(number, DAY, "q") for number in range(3)])
    second = together(contribution(place, whole))
    (tmp_path / second.files[0].name).unlink()
    with pytest.raises(FileNotFoundError):
        commit_parquet(place, second)
    commit_parquet(place, together(contribution(place, whole)))
    found = [pq.read_table(tmp_path / name)["sequence_number"] for name in parquet_files(tmp_path)]
    assert [one.to_pylist() for one in found] == [[0, 1, 2]]


def test_a_failing_task_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Any:
        yield rows((1, DAY, "q"))
        raise OSError("the disk is on fire")

    place = layout(tmp_path)
    writer = LakeBatchWriter(place)
    with pytest.raises(OSError, match="fire"):
        writer.write(failing())
    assert parquet_files(tmp_path) == []
    laid = writer.write(iter([rows((1, DAY, "q"))]))
    writer.abort([laid, None])
    assert parquet_files(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "schema", "problem"),
    [
        ({}, SCHEMA, "no path"),
        ({"path": "x", "kind": "orc"}, SCHEMA, "kind is one of delta, parquet"),
        ({"path": "x", "partitionBy": "colour"}, SCHEMA, "no column 'colour'"),
        ({"path": "x", "partitionBy": "hour"}, "body binary", "no column 'hour'"),
        ({"path": "x"}, f"{SCHEMA}, date string", "have a column 'date'.* one of enqueued_time"),
        ({"path": "x", "partitionBy": "hour"}, f"{SCHEMA}, Hour int", "have a column 'Hour'"),
    ],
)
def test_wrong_options_are_told(options: dict[str, str], schema: str, problem: str) -> None:
    with pytest.raises(OptionProblem, match=problem):
        layout_of(options, struct(schema), False)


def test_without_the_columns_a_lake_is_not_divided() -> None:
    plain = layout_of({"path": "x"}, struct("body binary"), False)
    assert plain.partition_by == ()


@pytest.mark.parametrize(
    ("own", "options", "divided_by"),
    [
        # There is no instant that they could be made of.
        ("date string, hour int", {"partitionBy": "date"}, ["date"]),
        # There is one, and nothing is made of it.
        ("date string, hour int, enqueued_time timestamp", {"partitionBy": "entity"}, ["entity"]),
        ("hour int, enqueued_time timestamp", {"partitionBy": "date"}, ["date"]),
    ],
)
def test_a_day_and_an_hour_of_the_rows_own_are_kept(
    own: str, options: dict[str, str], divided_by: list[str], tmp_path: Path
) -> None:
    columns = f"entity string, {own}"
    place = layout_of({"path": str(tmp_path), **options}, struct(columns), False)
    values = {"entity": "q", "date": "monday", "hour": 7, "enqueued_time": DAY}
    some = {name: [values[name]] for name in columns.replace(",", "").split()[::2]}
    assert commit_delta(place, together(contribution(place, pa.RecordBatch.from_pydict(some))))
    table = DeltaTable(str(tmp_path))
    assert table.metadata().partition_columns == divided_by
    (row,) = table.to_pyarrow_table().to_pylist()
    made = {} if "date" in some else {"date": DAY.date()}
    assert row == {name: values[name] for name in some} | made


# --- with Spark


@pytest.fixture
def source(spark: "SparkSession", tmp_path: Path) -> Callable[[int, int], None]:
    """Adds files with rows to a directory that streams are read from."""
    directory = tmp_path / "in"
    directory.mkdir()

    def add(first: int, count: int) -> None:
        some = rows(*[(number, DAY, f"q-{number % 2}") for number in range(first, first + count)])
        pq.write_table(pa.Table.from_batches([some]), directory / f"{first:05}.parquet")

    return add


def run(spark: "SparkSession", tmp_path: Path, kind: str) -> None:
    stream = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in"))
    )
    query = lake.write_stream(
        stream,
        str(tmp_path / "out"),
        kind=kind,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )
    assert query.awaitTermination(100)
    assert query.exception() is None


def numbers(tmp_path: Path, kind: str) -> list[int]:
    path = str(tmp_path / "out")
    table = (
        DeltaTable(path).to_pyarrow_table()
        if kind == "delta"
        else ds.dataset(path, format="parquet", partitioning="hive").to_table()
    )
    found: list[int] = sorted(table["sequence_number"].to_pylist())
    return found


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_query_that_forgot_its_last_commit_writes_nothing_twice(
    spark: "SparkSession", tmp_path: Path, source: Callable[[int, int], None], kind: str
) -> None:
    """R-D1: found by Spark under its name, exactly once across a restart, read without Spark."""
    source(0, 50)
    source(50, 50)
    run(spark, tmp_path, kind)
    assert numbers(tmp_path, kind) == list(range(100))
    # As if the driver had ended after the commit and before Spark's note of it.
    commits = tmp_path / "checkpoint" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink()
    source(100, 10)
    run(spark, tmp_path, kind)
    assert numbers(tmp_path, kind) == list(range(110))


def test_a_table_is_read_with_the_values_of_its_log(spark: "SparkSession", tmp_path: Path) -> None:
    """Directories cannot be named as entities are; jobs see the names that entities have."""
    from peeklock.spark.jobs import frame
    from peeklock.spark.jobs.facts.fact_source import FactSource

    place = layout(tmp_path)
    some = rows((1, DAY, "t/Subscriptions/s"), (2, NEXT, "t-Subscriptions-s"), (3, DAY, None))
    commit_delta(place, together(contribution(place, some)))
    found = frame.read_table(spark, str(tmp_path)).orderBy("sequence_number")
    assert found.columns == [*SCHEMA.replace(",", "").split()[::2], "date", "hour"]
    assert [(row.entity, str(row.date), row.hour) for row in found.collect()] == [
        ("t/Subscriptions/s", "2026-11-15", 10),
        ("t-Subscriptions-s", "2026-11-16", 0),
        (None, "2026-11-15", 10),
    ]
    with pytest.raises(frame.Impossible, match="without --stream"):
        FactSource("", None, None, str(tmp_path)).stream(spark)


def test_files_that_a_filter_excludes_are_not_read(spark: "SparkSession", tmp_path: Path) -> None:
    from peeklock.spark.jobs import frame

    place = layout(tmp_path)
    some = rows((1, DAY, "t/Subscriptions/s"), (2, NEXT, "q"))
    commit_delta(place, together(contribution(place, some)))
    [unread] = tmp_path.glob("*/date=2026-11-16/*/*.parquet")
    unread.write_bytes(b"whoever reads this fails")
    left = frame.read_table(spark, str(tmp_path)).where("date = date'2026-11-15' and hour = 10")
    assert [(row.sequence_number, row.entity) for row in left.collect()] == [
        (1, "t/Subscriptions/s")
    ]


def test_entities_that_look_like_numbers_keep_their_names(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from peeklock.spark.jobs import frame

    place = layout(tmp_path, kind="parquet")
    commit_parquet(place, together(contribution(place, rows((1, DAY, "007"), (2, DAY, "12")))))
    found = frame.read_table(spark, str(tmp_path)).orderBy("sequence_number").collect()
    assert [(row.entity, row.hour, bytes(row.body)) for row in found] == [
        ("007", 10, b"1"),
        ("12", 10, b"2"),
    ]
