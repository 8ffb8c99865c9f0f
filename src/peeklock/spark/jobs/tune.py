"""`tune`: advice by the performance article's rules, from measured rates (R-D4)."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NoReturn

import typer
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from peeklock.durations import parse_duration
from peeklock.spark.jobs import frame, rules
from peeklock.spark.jobs.facts.fact_source import FactSource
from peeklock.spark.jobs.facts.rates import rates
from peeklock.spark.jobs.facts.table import DELIVERING, LIFE, SETTLING, follow, is_one_of, so_far
from peeklock.spark.jobs.facts.tallies import quantile, ranked, tally
from peeklock.spark.jobs.namespace import ListedEntity, NamespaceListing
from peeklock.spark.jobs.rules import ConnectionFigures, LaneFigures

LINE: Final = ("entity", "sub_entity")
ADVICE: Final = (
    "entity string, sub_entity string, connection string, setting string, now string, "
    "advised string, arithmetic string"
)


def measure_lines(followed: DataFrame) -> DataFrame:
    """Rates, receivers, lock losses and the slowest work of each queue and subscription."""
    # Facts without a lane (a change, a subscription that was deleted) are of no line.
    followed = followed.where(fn.col("sub_entity").isNotNull())
    sends = rates(followed.where(is_one_of(("send", "publish"))), *LINE).select(
        *LINE, fn.col("peak_per_s").alias("sent_per_s")
    )
    counts = followed.groupBy(*LINE).agg(
        fn.count_if(is_one_of(DELIVERING)).alias("deliveries"),
        fn.count_if(fn.col("op") == "lock_lost").alias("lock_losses"),
        fn.countDistinct("partition_id").alias("partitions"),
    )
    receivers = _at_once(_with_receiver(followed), *LINE)
    works = ranked(tally(followed), *LINE).groupBy(*LINE)
    work = works.agg(quantile("work_ms", 0.999).alias("work_ms_p999"))
    whole = counts.join(sends, list(LINE), "left").join(work, list(LINE), "left")
    return whole.join(receivers, list(LINE), "left").na.fill(0)


def measure_crews(followed: DataFrame) -> DataFrame:
    """Return what all receivers of each connection processed, in their busiest and slowest
    stretches, and how many messages they held at once."""
    # Who settles is who was handed the message; the fact of the delivery says who that was.
    by = (*LINE, "connection")
    named = _with_receiver(followed).withColumn("connection", _connection("receiver"))
    receivers = _at_once(named, *by)
    done = named.where(is_one_of(("complete", "receive_delete", "deadletter", "defer")))
    speeds = rates(done, *by)
    return receivers.join(speeds, list(by)).join(_held(named, *by), list(by), "left").na.fill(0)


def _held(named: DataFrame, *by: str) -> DataFrame:
    """Return the most messages that were locked at the same time."""
    ends_lock = is_one_of(SETTLING) & fn.col("delivered_at").isNotNull()
    change = fn.when(is_one_of(DELIVERING), 1).when(ends_lock, -1)
    changes = named.withColumn("_change", change).where(fn.col("_change").isNotNull())
    in_order = Window.partitionBy(*by).orderBy("at", "_change")
    so_many = fn.sum("_change").over(in_order.rowsBetween(Window.unboundedPreceding, 0))
    return changes.withColumn("_held", so_many).groupBy(*by).agg(fn.max("_held").alias("held"))


def _with_receiver(followed: DataFrame) -> DataFrame:
    delivered_to = fn.when(is_one_of(DELIVERING), fn.col("consumer"))
    receiver = fn.last("_delivered_to", ignorenulls=True).over(so_far(LIFE))
    known = followed.where(fn.col("sequence_number").isNotNull())
    named = known.withColumn("_delivered_to", delivered_to).withColumn("receiver", receiver)
    return named.where(fn.col("receiver").isNotNull())


def _at_once(facts: DataFrame, *by: str) -> DataFrame:
    """Return how many receivers were at work at the same time; each session has a receiver of its
    own, so that there are many of them one after the other."""
    spans = facts.groupBy(*by, "receiver").agg(
        fn.min("at").alias("_from"), fn.max("at").alias("_to")
    )
    ends = fn.explode(
        fn.array(
            fn.struct(fn.col("_from").alias("at"), fn.lit(1).alias("change")),
            fn.struct(fn.col("_to").alias("at"), fn.lit(-1).alias("change")),
        )
    )
    in_order = Window.partitionBy(*by).orderBy("at", fn.desc("change"))
    so_many = fn.sum("change").over(in_order.rowsBetween(Window.unboundedPreceding, 0))
    changes = spans.select(*by, ends.alias("end")).select(*by, "end.*")
    return (
        changes.withColumn("_so_many", so_many)
        .groupBy(*by)
        .agg(fn.max("_so_many").alias("receivers"))
    )


def _connection(consumer: str) -> Column:
    """Return the connection of a consumer, which is its name up to the first slash."""
    return fn.substring_index(fn.col(consumer), "/", 1)


def advise(
    lines: Sequence[LaneFigures],
    crews: dict[tuple[str, str], list[ConnectionFigures]],
    *,
    goal: str,
    senders: int,
    ceiling_per_s: float,
) -> list[dict[str, str]]:
    """Return everything that should be set otherwise, a row for each setting."""
    rows = []
    for line in lines:
        own = crews.get((line.entity, line.sub_entity), [])
        advised = [(crew.connection, rules.prefetch(line, crew, goal, len(own))) for crew in own]
        if line.deliveries:
            advised.append(("", rules.lock_duration(line)))
        if line.sent_per_s:
            advised += [
                ("", rules.flush_interval(line, senders, goal)),
                ("", rules.partitions(line, ceiling_per_s)),
                ("", rules.batched_store_access(line, goal)),
            ]
        rows += [
            {
                "entity": line.entity,
                "sub_entity": line.sub_entity,
                "connection": connection,
                "setting": advice.setting,
                "now": advice.now,
                "advised": advice.advised,
                "arithmetic": advice.arithmetic,
            }
            for connection, advice in advised
            if advice.now != advice.advised
        ]
    return rows


# --- the job

app = frame.job("tune")


@app.command()
def tune(
    *,
    connection_string: frame.ConnectionString = "",
    http_port: frame.HttpPort = None,
    entity: frame.Entities = None,
    facts: frame.Facts = "",
    goal: Annotated[
        Literal["throughput", "latency"], typer.Option(help="What matters more.")
    ] = "throughput",
    lock_duration: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds that a lock lasts.",
            show_default="what the entity has, else 60",
        ),
    ] = 0.0,
    senders: Annotated[
        int, typer.Option(min=1, help="How many senders there are; the journal does not know.")
    ] = 1,
    partition_ceiling: Annotated[
        float, typer.Option(min=1, help="Messages per second that one partition takes.")
    ] = 10_000.0,
    out: frame.Out = "tune",
    table_format: frame.Form = "parquet",
    master: frame.Master = "",
) -> None:
    """Advise on prefetch, flush interval, lock duration and partitions, and show the arithmetic."""
    work = frame.JobRun("tune", master)
    source = FactSource(connection_string, http_port, entity, facts)
    source.check()
    followed = follow(source.read(work.spark).drop("body")).persist()
    with work.progress.step("reading facts"):
        followed.count()
    entities = [] if facts else NamespaceListing(source.bus).entities()
    described = {entity.path.lower(): entity for entity in entities}
    lines = [_line(row.asDict(), described, lock_duration) for row in _sorted(followed)]
    crews: dict[tuple[str, str], list[ConnectionFigures]] = {}
    for row in measure_crews(followed).orderBy("connection").collect():
        crew = ConnectionFigures(
            row["connection"], row["receivers"], row["peak_per_s"], row["low_per_s"], row["held"]
        )
        crews.setdefault((row["entity"], row["sub_entity"]), []).append(crew)
    rows = advise(lines, crews, goal=goal, senders=senders, ceiling_per_s=partition_ceiling)
    place = frame.TableFolder(out, table_format)
    place.write(work.spark.createDataFrame(rows, ADVICE), "advice")
    frame.print_rows("advice", rows)
    work.tell(f"{len(rows)} pieces of advice are in {place.path('advice')}")


def _sorted(followed: DataFrame) -> list[Any]:
    return measure_lines(followed).orderBy(*LINE).collect()


def _line(row: dict[str, Any], described: dict[str, ListedEntity], lock_s: float) -> LaneFigures:
    path = "/".join(filter(None, (row["entity"], row["sub_entity"]))).lower()
    entity = described.get(path.removesuffix("/$deadletterqueue"))
    own = entity.properties if entity is not None else {}
    # A subscription has the partitions of its topic.
    whole = described.get(row["entity"].lower())
    count = whole.properties.get("PartitionCount") if whole is not None else None
    known = own.get("LockDuration", "")
    if not lock_s:
        lock_s = parse_duration(known) / 1000 if known else rules.PREFETCH_LOCK_S
    return LaneFigures(
        entity=row["entity"],
        sub_entity=row["sub_entity"],
        is_topic=row["sub_entity"].startswith("Subscriptions/"),
        sent_per_s=row["sent_per_s"],
        receivers=row["receivers"],
        deliveries=row["deliveries"],
        lock_losses=row["lock_losses"],
        work_ms_p999=row["work_ms_p999"],
        partitions=count or row["partitions"],
        lock_s=lock_s,
        is_batched=own.get("EnableBatchedOperations", True),
    )


def main(arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run the job."""
    frame.run(app, arguments, program)


if __name__ == "__main__":
    main()
