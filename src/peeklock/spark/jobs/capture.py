"""`capture`: an entity archived into a lake, exactly once, to be read and replayed later (R-D2)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

import typer

from peeklock.spark.jobs import frame
from peeklock.spark.jobs.namespace import entity_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOURNAL: Final = "journal"
_TIME_COLUMNS: Final = {JOURNAL: "at"}

app = frame.job("capture")


@app.command()
def capture(
    entity: Annotated[
        str,
        typer.Argument(
            envvar="PEEKLOCK_ENTITY",
            help="A queue, TOPIC/Subscriptions/NAME, or (for the journal) a topic.",
        ),
    ],
    *,
    connection_string: frame.ConnectionString = "",
    http_port: frame.HttpPort = None,
    mode: Annotated[
        Literal["claim", "peek", "journal"],
        typer.Option(
            envvar="PEEKLOCK_MODE",
            help="claim takes messages out, peek leaves them there, journal archives what happened "
            "to them.",
        ),
    ] = "claim",
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Take the dead letters of the entity.")
    ] = False,
    reader: Annotated[
        str,
        typer.Option(
            envvar="PEEKLOCK_READER",
            help="The name that messages are claimed under; one for each capture.",
            show_default="capture and the entity's path",
        ),
    ] = "",
    out: frame.Out = "lake",
    lake_format: Annotated[
        Literal["delta", "parquet"],
        typer.Option("--format", envvar="PEEKLOCK_FORMAT", help="What the lake is made of."),
    ] = "delta",
    partition_by: Annotated[
        str,
        typer.Option(help="Columns that divide the lake.", show_default="entity,date,hour"),
    ] = "",
    max_file_mb: Annotated[
        int, typer.Option(min=1, help="A file is ended at this size, or with its batch.")
    ] = 128,
    max_messages: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Most messages (or facts) of one batch.")
    ] = 50_000,
    max_batch_mb: Annotated[int, typer.Option(min=1, help="Most megabytes of one batch.")] = 256,
    include_body: Annotated[
        bool, typer.Option("--include-body", help="Archive bodies with the journal.")
    ] = False,
    interval: frame.Interval = "",
    checkpoint: Annotated[
        str,
        typer.Option(
            envvar="PEEKLOCK_CHECKPOINT",
            help="Where the capture keeps how far it is; storage that all runs of it see.",
            show_default="OUT_checkpoint, beside the lake",
        ),
    ] = "",
    master: frame.Master = "",
) -> None:
    """Archive a queue, subscription or journal, exactly once; go on where the last run stopped."""
    from peeklock.spark.lake import write_stream

    if dead_letters and mode == JOURNAL:
        raise frame.Impossible("the journal is the whole entity's, with its dead letters")
    bus = frame.Bus(connection_string, http_port)
    options = {
        **bus.options,
        **entity_at(entity).options,
        "mode": mode,
        "maxMessagesPerTrigger": str(max_messages),
        "maxBytesPerTrigger": f"{max_batch_mb}m",
    }
    if mode == "claim":
        options["consumerId"] = reader or f"capture/{entity}"[:128]
    if dead_letters:
        options["subQueue"] = "deadLetter"
    if mode == JOURNAL:
        options["includeBody"] = "true" if include_body else "false"
    bus.check()
    work = frame.JobRun("capture", master)
    trigger: dict[str, Any] = {"availableNow": True}
    if interval:
        trigger = {"processingTime": frame.spark_interval(interval)}
    query = write_stream(
        _messages(work.spark, options),
        out,
        kind=lake_format,
        checkpoint=checkpoint or f"{out.rstrip('/')}_checkpoint",
        trigger=trigger,
        max_file_mb=max_file_mb,
        partition_by=partition_by or None,
        time_column=_TIME_COLUMNS.get(mode, "enqueued_time"),
        query_name=f"capture {entity}",
    )
    work.tell(f"{mode} of {entity} into {out}")
    rows = work.await_query(query)
    work.tell(f"{rows:,} rows went to {out}")


def _messages(spark: "SparkSession", options: dict[str, str]) -> "DataFrame":
    return spark.readStream.format("servicebus").options(**options).load()


def main(arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run the job."""
    frame.run(app, arguments, program)


if __name__ == "__main__":
    main()
