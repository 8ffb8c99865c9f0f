"""`triage`: the dead letters of all entities, grouped by what went wrong (R-D3)."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Final, Literal, NoReturn

import typer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from peeklock.client.administration.atom import TOPIC
from peeklock.spark.jobs import frame
from peeklock.spark.jobs.namespace import ListedEntity, NamespaceListing
from peeklock.spark.jobs.pages.page import check_place, write_page
from peeklock.spark.jobs.pages.sections import triage_section

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# What makes two descriptions of one problem differ, and what stands in its place. In this order:
# an instant is full of numbers, and so is an identifier.
_MASKS: Final = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
    (r"(?i)\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b", "<id>"),
    (r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b", "<address>"),
    (r"(?i)\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", "<hex>"),
    (r"'[^']*'|\"[^\"]*\"", "<text>"),
    (r"[-+]?\d+([.,]\d+)*", "<n>"),
    (r"\s+", " "),
)
# `System.TimeoutException: ...`, `ValueError: ...`, `java.lang.IllegalStateException`
_EXCEPTION: Final = r"\b((?:[A-Za-z_][\w$]*\.)*[A-Z][\w$]*(?:Exception|Error|Fault|Failure))\b"
# The innermost frame: the last one of Python's, the first one of Java's and .NET's.
_PYTHON_FRAMES: Final = r'File "(?:[^"]*[/\\])?([^"/\\]+)", line \d+, in ([\w<>]+)'
_OTHER_FRAME: Final = r"(?m)^\s*at ([\w.$<>`]+)\s*\("
_DESCRIBED_MAX: Final = 300
SAMPLES: Final = 3
# Entities that are looked at side by side, each by a connection of its own.
_TASKS_MAX: Final = 32
COLUMNS: Final = (
    "entity string, sequence_number long, message_id string, session_id string, subject string, "
    "enqueued_time timestamp, delivery_count int, dead_letter_reason string, "
    "dead_letter_description string, dead_letter_source string"
)


def masked(text: Column) -> Column:
    """Return a description without what differs from case to case: instants, ids, numbers,
    quotations."""
    first = fn.substring_index(fn.trim(text), "\n", 1)
    short = reduce(lambda value, mask: fn.regexp_replace(value, mask[0], mask[1]), _MASKS, first)
    return fn.substring(fn.trim(short), 1, _DESCRIBED_MAX)


def exception_in(text: Column) -> Column:
    """Return the class of the exception that a description tells of, or nothing."""
    return fn.nullif(fn.regexp_extract(text, _EXCEPTION, 1), fn.lit(""))


def frame_in(text: Column) -> Column:
    """Return the place in the code where it happened, or nothing."""
    frames = fn.regexp_extract_all(text, fn.lit(_PYTHON_FRAMES), fn.lit(1))
    functions = fn.regexp_extract_all(text, fn.lit(_PYTHON_FRAMES), fn.lit(2))
    python = fn.concat_ws(
        ":", fn.try_element_at(frames, fn.lit(-1)), fn.try_element_at(functions, fn.lit(-1))
    )
    other = fn.regexp_extract(text, _OTHER_FRAME, 1)
    return fn.coalesce(fn.nullif(python, fn.lit("")), fn.nullif(other, fn.lit("")))


def fingerprinted(letters: DataFrame) -> DataFrame:
    """Dead letters with what tells their troubles apart."""
    described = fn.coalesce("dead_letter_description", fn.lit(""))
    reason = fn.coalesce("dead_letter_reason", fn.lit(""))
    parts = letters.withColumns(
        {
            "reason": reason,
            "description": masked(described),
            "exception": exception_in(described),
            "frame": frame_in(described),
        }
    )
    whole = fn.concat_ws("\u0001", "reason", "description", "exception", "frame")
    return parts.withColumn("fingerprint", fn.substring(fn.sha2(whole, 256), 1, 12))


def grouped(letters: DataFrame) -> DataFrame:
    """Return each trouble of each entity once: how often, since when, where, and three samples of
    it."""
    groups = letters.groupBy("fingerprint", "entity", "reason", "description", "exception", "frame")
    sample = fn.struct("enqueued_time", "sequence_number", "message_id")
    samples = fn.slice(fn.sort_array(fn.collect_list(sample), asc=False), 1, SAMPLES)
    return groups.agg(
        fn.count("*").alias("messages"),
        fn.min("enqueued_time").alias("first_seen"),
        fn.max("enqueued_time").alias("last_seen"),
        fn.approx_count_distinct("session_id").alias("sessions"),
        fn.max("delivery_count").alias("deliveries_max"),
        fn.array_compact(fn.slice(fn.array_sort(fn.collect_set("subject")), 1, SAMPLES)).alias(
            "subjects"
        ),
        fn.transform(samples, _sample_name).alias("samples"),
    ).orderBy(fn.desc("messages"), "entity", "fingerprint")


def _sample_name(sample: Column) -> Column:
    number = fn.concat(fn.lit("#"), sample["sequence_number"].cast("string"))
    return fn.concat_ws(" ", number, sample["message_id"])


def trend_of(letters: DataFrame, period: str) -> DataFrame:
    """Dead letters by hour or day, of each entity and fingerprint."""
    by = (fn.date_trunc(period, "enqueued_time").alias("period"), "entity", "fingerprint", "reason")
    return letters.groupBy(*by).agg(fn.count("*").alias("messages")).orderBy("period", "entity")


def dead_letters(spark: "SparkSession", bus: frame.Bus, entities: list[ListedEntity]) -> DataFrame:
    """Return what lies in the dead-letter queues, looked at and left where it is."""
    if not entities:
        return spark.createDataFrame([], COLUMNS)
    wanted = [
        (entity.path, {**bus.options, **entity.options, "mode": "peek", "subQueue": "deadLetter"})
        for entity in entities
    ]
    # One query for all of them: a source for each is planned one after the other.
    rows = spark.createDataFrame(wanted, "path string, options map<string, string>")
    # By ranges, which are even: a task would have several of them otherwise, and another one none.
    parted = rows.repartitionByRange(min(len(wanted), _TASKS_MAX), "path")
    return parted.mapInArrow(_looked_at, COLUMNS)


def _looked_at(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """In a task: the dead letters of the entities that its rows name."""
    import pyarrow as pa

    from peeklock.spark.options import source_options
    from peeklock.spark.schema import MESSAGE_COLUMNS, Columns, struct_of
    from peeklock.spark.source.peek import PeekReader

    names = [column.split()[0] for column in COLUMNS.split(", ")]
    columns = Columns(struct_of({name: MESSAGE_COLUMNS[name] for name in names}), MESSAGE_COLUMNS)
    for batch in batches:
        for row in batch.to_pylist():
            options = {name.lower(): value for name, value in row["options"]}
            reader = PeekReader(source_options(options, streaming=False), columns)
            for part in reader.partitions():
                for found in reader.read(part):
                    # The path that people know, whatever the source calls it.
                    entity = pa.array([row["path"]] * found.num_rows, pa.string())
                    yield found.set_column(names.index("entity"), "entity", entity)


def with_dead_letters(bus: frame.Bus, paths: list[str] | None) -> list[ListedEntity]:
    """Return the queues and subscriptions that were named, or all of them, if they have dead
    letters."""
    there = [entity for entity in NamespaceListing(bus).entities() if entity.kind != TOPIC]
    if paths:
        known = {entity.path.lower(): entity for entity in there}
        missing = [path for path in paths if path.lower() not in known]
        if missing:
            raise frame.Impossible(f"there is no queue or subscription '{missing[0]}'")
        there = [known[path.lower()] for path in paths]
    # What is empty is not asked; a namespace has thousands of them.
    return [entity for entity in there if entity.dead_letter_count != 0]


# --- the job

app = frame.job("triage")


@app.command()
def triage(
    *,
    connection_string: frame.ConnectionString = "",
    http_port: frame.HttpPort = None,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            envvar="PEEKLOCK_ENTITY",
            help="A queue or TOPIC/Subscriptions/NAME to look at; may be given several times.",
            show_default="all of the namespace",
        ),
    ] = None,
    letters: Annotated[
        str,
        typer.Option(
            envvar="PEEKLOCK_LETTERS",
            help="A table of captured dead letters to look at instead of the queues.",
        ),
    ] = "",
    trend: Annotated[
        Literal["hour", "day"], typer.Option(help="What the trend is counted by.")
    ] = "hour",
    out: frame.Out = "triage",
    table_format: frame.Form = "parquet",
    page: Annotated[
        str,
        typer.Option(
            help="The page to write, a local file.", show_default="triage.html below the output"
        ),
    ] = "",
    master: frame.Master = "",
) -> None:
    """Group dead letters by fingerprint, with samples and a trend, as tables and as a page."""
    place = frame.TableFolder(out, table_format)
    target = page or place.path("triage.html")
    check_place(target, "--page")
    work = frame.JobRun("triage", master)
    bus = frame.Bus(connection_string, http_port)
    if not letters:
        bus.check()
    if letters:
        found = frame.read_table(work.spark, letters)
    else:
        entities = with_dead_letters(bus, entity)
        work.tell(f"{len(entities):,} dead-letter queues have something in them")
        found = dead_letters(work.spark, bus, entities)
    told = fingerprinted(found).persist()
    with work.progress.step("grouping dead letters"):
        place.write(grouped(told), "groups")
        place.write(trend_of(told, trend), "trend")
    groups = frame.shown(place.read(work.spark, "groups").orderBy(fn.desc("messages")), 10_000)
    trends = frame.shown(place.read(work.spark, "trend").orderBy("period"), 50_000)
    frame.print_rows("dead letters", [_short(group) for group in groups[:20]])
    write_page(
        target,
        "Dead letters",
        "Looked at, and left where they are.",
        [triage_section(groups, trends)],
    )
    work.tell(
        f"{sum(group['messages'] for group in groups):,} dead letters in {len(groups):,} "
        f"groups; the page is {target}"
    )


def _short(group: dict[str, object]) -> dict[str, object]:
    names = ("entity", "reason", "description", "messages", "first_seen", "last_seen")
    return {name: group[name] for name in names}


def main(arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run the job."""
    frame.run(app, arguments, program)


if __name__ == "__main__":
    main()
