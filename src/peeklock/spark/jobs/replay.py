"""`replay`: dead letters or archived messages are sent again, filtered and at a rate (R-D3)."""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, final
from uuid import uuid4

import typer
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from peeklock.client.administration.atom import SUBSCRIPTION
from peeklock.spark.jobs import frame
from peeklock.spark.jobs.namespace import ListedEntity, entity_at
from peeklock.spark.schema import MESSAGE_COLUMNS
from peeklock.spark.sink.sink_options import SEND_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the broker wrote on a message when it died; it says nothing of its next life.
DEAD_LETTER_PROPERTIES: Final = ("DeadLetterReason", "DeadLetterErrorDescription")
REPLAYED_FROM: Final = "x-replayed-from"
VIEW: Final = "messages"
# Known to the source or the lake, and nothing that can be sent. Where a message was to go and when
# it was to appear is decided anew.
_LEFT_BEHIND: Final = (frozenset(MESSAGE_COLUMNS) - frozenset(SEND_COLUMNS)) | {
    "entity",
    "scheduled_enqueue_time",
    "date",
    "hour",
}
# What tells archived messages of an entity apart, so that batches are the same every time.
_TOLD_APART_BY: Final = ("sequence_number", "message_id")
_BATCH: Final = 1_000
_SHOWN: Final = 20
_SHOWN_COLUMNS: Final = ("message_id", "session_id", "subject", "dead_letter_reason")


@final
@dataclass(frozen=True, slots=True)
class ReplayChoice:
    """Which messages are sent again, and how they are changed."""

    where: str = ""
    select: str = ""
    transform: str = ""
    new_ids: str = ""

    def chosen(self, messages: DataFrame) -> DataFrame:
        """Return the messages that are to be sent again, as they are."""
        return messages.where(self.where) if self.where else messages

    def made(self, chosen: DataFrame) -> DataFrame:
        """What is sent for them: without the marks of death, and changed as was wished."""
        rows = _revived(chosen)
        if self.new_ids:
            rows = _renamed(rows, self.new_ids)
        if self.select:
            rows = _overridden(rows, self.select)
        if self.transform:
            rows.createOrReplaceTempView(VIEW)
            rows = rows.sparkSession.sql(self.transform)
        return rows.drop(*(name for name in rows.columns if name in _LEFT_BEHIND))


def _revived(rows: DataFrame) -> DataFrame:
    if "application_properties" not in rows.columns:
        return rows
    # The typed form of the properties may stay: the map says which of them there are.
    kept = fn.map_filter(
        "application_properties", lambda name, _: ~name.isin(*DEAD_LETTER_PROPERTIES)
    )
    return rows.withColumn("application_properties", kept)


def _renamed(rows: DataFrame, prefix: str) -> DataFrame:
    number = fn.col("sequence_number").cast("string")
    # Where it came from is a property more; one that was there is replaced.
    others = fn.map_filter("application_properties", lambda name, _: name != REPLAYED_FROM)
    origin = fn.create_map(fn.lit(REPLAYED_FROM), fn.coalesce("message_id", number))
    return rows.withColumns(
        {
            "application_properties": fn.map_concat(
                fn.coalesce(others, fn.create_map().cast("map<string,string>")), origin
            ),
            "message_id": fn.concat(fn.lit(f"{prefix}-"), number),
        }
    )


def _overridden(rows: DataFrame, select: str) -> DataFrame:
    """Columns by SQL, `upper(subject) AS subject, 'x' AS to`; all others stay."""
    rows.createOrReplaceTempView(VIEW)
    changed = rows.sparkSession.sql(f"SELECT {select} FROM {VIEW}")
    kept = [name for name in rows.columns if name not in changed.columns]
    return rows.sparkSession.sql(f"SELECT {', '.join([*map(_quoted, kept), select])} FROM {VIEW}")


def _quoted(name: str) -> str:
    return f"`{name}`"


@final
@dataclass(slots=True)
class ReplayRun:
    """A replay that can be begun again under its name: what was sent is not sent twice."""

    id: str
    wish: ReplayChoice
    bus: frame.Bus
    target: str
    place: frame.TableFolder
    rate: int = 0
    writers: int = 2
    sent: int = field(default=0)

    def send(self, chosen: DataFrame, batch: int, run: str) -> int:
        """Note what is about to be sent, then send it, all or nothing.

        Batches are counted within a run: a batch that was sent in it is not sent again.
        """
        count = chosen.count()
        if not count:
            return 0
        # Before it is sent, so that nothing is sent that is not in the list; after a crash some
        # originals may be in it twice.
        noted = chosen.withColumns(
            {"replay_id": fn.lit(self.id), "replayed_to": fn.lit(self.target)}
        )
        noted.write.mode("append").parquet(self.place.path("undo"))
        options = {
            "queue": self.target,
            # Names are limited, and the run is enough to tell them apart.
            "writeId": f"replay/{self.id[:44]}{run}",
            "batchId": str(batch),
        }
        if self.rate:
            options |= {"maxMessagesPerSecond": str(self.rate), "writers": str(self.writers)}
        made = self.wish.made(chosen).coalesce(self.writers)
        made.write.format("servicebus").options(**self.bus.options, **options).mode("append").save()
        self.sent += count
        return count


@final
class FromDeadLetters:
    """Dead letters are claimed, sent, and completed after that; the others stay where they are."""

    def __init__(self, replay: ReplayRun, entity: ListedEntity, batch_size: int) -> None:
        self._replay = replay
        self._entity = entity
        self._batch_size = batch_size
        self._run = ""

    @property
    def _where(self) -> dict[str, str]:
        bus = self._replay.bus.options
        return {**bus, **self._entity.options, "subQueue": "deadLetter"}

    @property
    def _reader(self) -> str:
        return f"replay/{self._replay.id}"[:128]

    def look(self, spark: "SparkSession") -> DataFrame:
        """Return what would be replayed."""
        rows = spark.read.format("servicebus").options(**self._where, mode="peek").load()
        return self._replay.wish.chosen(rows)

    def run(self, work: frame.JobRun) -> None:
        """Replay all that is there now."""
        checkpoint = self._replay.place.path(f"checkpoint/{self._replay.id}")
        self._run = f"/{_run_of(work.spark, checkpoint)}"
        query = (
            work.spark.readStream.format("servicebus")
            .options(
                **self._where,
                mode="claim",
                settlement="manual",
                consumerId=self._reader,
                maxMessagesPerTrigger=str(self._batch_size),
            )
            .load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        work.await_query(query.start())
        self._release()

    def _take(self, batch: DataFrame, number: int) -> None:
        rows = batch.persist()
        chosen = self._replay.wish.chosen(rows)
        self._replay.send(chosen, number, self._run)
        # Only now: the broker has what was sent.
        done = chosen.select("sequence_number", fn.lit("complete").alias("action"))
        done.write.format("servicebus").options(
            **self._where, operation="settle", consumerId=self._reader
        ).mode("append").save()
        rows.unpersist()

    def _release(self) -> None:
        """Give back what was claimed and not wanted; its delivery count is what it was."""
        from peeklock.spark.options import source_options
        from peeklock.spark.source.claim_stream import open_claim_keeper

        options = source_options(
            {
                name.lower(): value
                for name, value in {
                    **self._where,
                    "mode": "claim",
                    "consumerId": self._reader,
                }.items()
            },
            streaming=True,
        )
        keeper = open_claim_keeper(options, options.ledger)
        keeper.enter()
        keeper.settle([claimed.number for claimed in keeper.listed()], "released")


def _run_of(spark: "SparkSession", checkpoint: str) -> str:
    """Name the run that a checkpoint belongs to, with a name that is kept in it.

    Without the checkpoint batches are counted anew. Under the name of the run before the broker
    would take them for batches that it has, and the originals would be completed for nothing.
    """
    place = f"{checkpoint}/_run"
    named = spark.createDataFrame([(uuid4().hex[:12],)], "run string")
    try:
        known = spark.read.schema("run string").parquet(place).agg(fn.min("run")).collect()[0][0]
    except AnalysisException:
        known = None  # There is no such table before the first run.
    if known is None:
        named.write.mode("append").parquet(place)
        known = spark.read.schema("run string").parquet(place).agg(fn.min("run")).collect()[0][0]
    return str(known)


@final
class FromLake:
    """Archived messages are sent again, in batches of the same messages each time."""

    def __init__(self, replay: ReplayRun, table: str, batch_size: int) -> None:
        self._replay = replay
        self._table = table
        self._batch_size = batch_size

    def look(self, spark: "SparkSession") -> DataFrame:
        """Return what would be replayed."""
        return self._replay.wish.chosen(frame.read_table(spark, self._table))

    def run(self, work: frame.JobRun) -> None:
        """Replay it, from the first batch that is not done."""
        rows = self.look(work.spark)
        if not any(name in rows.columns for name in _TOLD_APART_BY):
            raise frame.Impossible("the table has neither sequence_number nor message_id")
        known = [name for name in ("entity", *_TOLD_APART_BY) if name in rows.columns]
        size, run = self._plan(work.spark, rows.count())
        number = fn.row_number().over(Window.orderBy(*known)) - 1
        batched = rows.withColumn("_batch", fn.floor(number / fn.lit(size))).persist()
        last = batched.agg(fn.max("_batch")).collect()[0][0]
        for batch in range(self._first(work.spark), -1 if last is None else last + 1):
            chosen = batched.where(f"_batch = {batch}").drop("_batch")
            count = self._replay.send(chosen, batch, run)
            done = work.spark.createDataFrame([(batch, count)], "batch long, messages long")
            done.write.mode("append").parquet(self._done)
            work.progress.show(f"batch {batch + 1} of {last + 1}: {count:,} messages are sent")

    def _plan(self, spark: "SparkSession", rows: int) -> tuple[int, str]:
        """Return the size of the batches and the name of the run, as they were when it began.

        Batches are known by their numbers. Of other rows, or in another size, a batch with the same
        number has other messages, and those of it that were not sent would be taken for sent.
        """
        replay = self._replay
        wish = json.dumps([self._table, replay.target, rows, *astuple(replay.wish)])
        place = replay.place.path(f"plan/{replay.id}")
        columns = "wish string, size long, run string"
        try:
            known = spark.read.schema(columns).parquet(place).orderBy("run").collect()
        except AnalysisException:
            known = []  # There is no such table before the first run.
        if not known:
            run = f"/{uuid4().hex[:12]}"
            begun = spark.createDataFrame([(wish, self._batch_size, run)], columns)
            begun.coalesce(1).write.mode("append").parquet(place)
            return self._batch_size, run
        if known[0]["wish"] != wish:
            raise frame.Impossible(
                f"replay '{replay.id}' was begun with other rows, another target or other options "
                "than these; to begin another one give it another --id"
            )
        return int(known[0]["size"]), str(known[0]["run"])

    @property
    def _done(self) -> str:
        return self._replay.place.path(f"done/{self._replay.id}")

    def _first(self, spark: "SparkSession") -> int:
        try:
            done = spark.read.parquet(self._done).agg(fn.max("batch")).collect()[0][0]
        except AnalysisException:
            return 0  # There is no such table before the first batch.
        return 0 if done is None else int(done) + 1


# --- the job

app = frame.job("replay")


@app.command()
def replay(
    entity: Annotated[
        str,
        typer.Argument(
            envvar="PEEKLOCK_ENTITY",
            help="The queue or TOPIC/Subscriptions/NAME whose dead letters are sent again.",
            show_default=False,
        ),
    ] = "",
    *,
    connection_string: frame.ConnectionString = "",
    http_port: frame.HttpPort = None,
    replay_id: Annotated[
        str,
        typer.Option(
            "--id",
            envvar="PEEKLOCK_REPLAY_ID",
            help="The name of this replay. One that was interrupted goes on under the same name.",
        ),
    ],
    lake: Annotated[
        str, typer.Option(envvar="PEEKLOCK_LAKE", help="A captured table to replay instead.")
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            help="The queue or topic to send to.",
            show_default="where the dead letters come from, if that is a queue",
        ),
    ] = "",
    where: Annotated[
        str, typer.Option(help="Which messages, as SQL: dead_letter_reason = 'NoAddress'.")
    ] = "",
    select: Annotated[
        str, typer.Option(help="Columns that change, as SQL: upper(subject) AS subject.")
    ] = "",
    transform: Annotated[
        str, typer.Option(help="All that is sent, as SQL: SELECT * FROM messages.")
    ] = "",
    new_ids: Annotated[
        bool,
        typer.Option(
            "--new-ids",
            help="Give new message ids, and the old ones as property x-replayed-from.",
        ),
    ] = False,
    rate: Annotated[int, typer.Option(min=0, help="Most messages per second; 0 is no limit.")] = 0,
    batch_size: Annotated[
        int,
        typer.Option(min=0, help="Messages of one batch.", show_default="1000, or of one second"),
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, and change nothing.")
    ] = False,
    out: frame.Out = "replay",
    master: frame.Master = "",
) -> None:
    """Send messages again; dead letters are completed after their successors were accepted."""
    if bool(entity) is bool(lake):
        raise frame.Impossible("name an entity with dead letters, or a table with --lake")
    source = entity_at(entity) if entity else None
    is_queue = source is not None and source.kind != SUBSCRIPTION
    target = to or (entity if is_queue else "")
    if not target:
        raise frame.Impossible("say where to with --to: a subscription cannot be sent to")
    wish = ReplayChoice(where, select, transform, f"replay-{replay_id}" if new_ids else "")
    bus = frame.Bus(connection_string, http_port)
    again = ReplayRun(replay_id, wish, bus, target, frame.TableFolder(out), rate)
    # A batch appears all at once, so that a second's worth is the finest that a rate can be.
    size = batch_size or (min(rate, _BATCH) if rate else _BATCH)
    bus.check()
    work = frame.JobRun("replay", master)
    messages = FromDeadLetters(again, source, size) if source else FromLake(again, lake, size)
    # What is wrong in the SQL is told before anything is claimed, not by a stream that fails.
    _ = wish.made(messages.look(work.spark)).columns
    if dry_run:
        found = messages.look(work.spark).persist()
        wish.made(found).limit(1).collect()
        columns = [name for name in _SHOWN_COLUMNS if name in found.columns]
        frame.print_rows("would be sent", frame.shown(found.select(*columns), _SHOWN))
        work.tell(f"{found.count():,} messages would be sent to {target}")
        return
    messages.run(work)
    work.tell(f"{again.sent:,} messages are sent to {target}; the originals are in {out}/undo")


def main(arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run the job."""
    frame.run(app, arguments, program)


if __name__ == "__main__":
    main()
