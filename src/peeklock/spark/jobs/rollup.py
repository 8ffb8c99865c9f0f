"""`rollup`: what happened in every minute and hour of every lane (R-D4)."""

from collections.abc import Sequence
from typing import Annotated, Final, NoReturn, final

import typer
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from peeklock.spark.jobs import frame
from peeklock.spark.jobs.facts.fact_source import FactSource
from peeklock.spark.jobs.facts.table import LANE, follow, unfinished
from peeklock.spark.jobs.facts.tallies import (
    COUNTED,
    DELIVERY_COUNTS,
    ENTERED,
    KEY,
    LEFT,
    LEFT_FROM_BEFORE,
    MEASURED,
    QUANTILES,
    REASONS,
    SUMMED,
    quantile,
    ranked,
    tally,
    tally_facts,
    total,
)

PERIODS: Final = {"minutes": "minute", "hours": "hour"}
LABELLED: Final = (REASONS, DELIVERY_COUNTS)


def roll(tallies: DataFrame, period: str) -> DataFrame:
    """Return one row for each lane and period (minute or hour) of what was tallied."""
    timed = tallies.withColumn("period", fn.date_trunc(period, "minute"))
    by = (*LANE, "period")
    rows = ranked(timed, *by).groupBy(*by)
    names = (*COUNTED, *SUMMED, ENTERED, LEFT, LEFT_FROM_BEFORE)
    rolled = rows.agg(
        *(total(name).alias(name) for name in names),
        *(
            quantile(measure, share).alias(f"{measure}_{name}")
            for measure in MEASURED
            for name, share in QUANTILES.items()
        ),
    )
    return rolled.withColumns(
        {
            "backlog": _backlog(),
            "lock_loss_rate": fn.round(fn.try_divide("lock_losses", "deliveries"), 6),
        }
    ).drop(LEFT_FROM_BEFORE)


def _backlog() -> Column:
    """Return the messages in a lane at the end of each period: what was there, and came, and went.

    What was there before the first fact is known by having left since.
    """
    lane = Window.partitionBy(*LANE)
    so_far = lane.orderBy("period").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return fn.sum(LEFT_FROM_BEFORE).over(lane) + fn.sum(fn.col(ENTERED) - fn.col(LEFT)).over(so_far)


def labelled(tallies: DataFrame, period: str) -> DataFrame:
    """Dead letters by reason and settlements by delivery count: one row for each label."""
    return (
        tallies.where(fn.col("measure").isin(*LABELLED))
        .groupBy(*LANE, fn.date_trunc(period, "minute").alias("period"), "measure", "label")
        .agg(fn.sum("amount").alias("amount"))
    )


def write(tallies: DataFrame, place: frame.TableFolder, watermark: str) -> None:
    """Write the tables of minutes, hours and labels."""
    for table, period in PERIODS.items():
        place.write(with_finality(roll(tallies, period), period, watermark), table)
        place.write(labelled(tallies, period), f"{table}_labels")


def with_finality(rolled: DataFrame, period: str, watermark: str) -> DataFrame:
    """Mark the periods that no later fact will change: facts are in order but for the watermark."""
    newest = fn.max("period").over(Window.partitionBy())
    end = fn.col("period") + fn.expr(f"interval 1 {period}")
    return rolled.withColumn("is_final", end + fn.expr(f"interval {watermark}") <= newest)


@final
class Stream:
    """A rollup that goes on: what was counted and what is unfinished is kept between batches.

    A batch that Spark repeats after a crash overwrites what it wrote before. What is unfinished
    has two slots that take turns, so that the one a batch began with is there when it is repeated.
    """

    def __init__(self, place: frame.TableFolder, watermark: str) -> None:
        self._place = place
        self._watermark = watermark

    def take(self, batch: DataFrame, number: int) -> None:
        """Count one batch of facts and renew the tables."""
        self.count(batch, number)
        write(self.tallies(batch.sparkSession), self._place, self._watermark)

    def count(self, batch: DataFrame, number: int) -> None:
        """Count one batch of facts."""
        spark = batch.sparkSession
        facts = batch.drop("body").persist()
        carried = spark.read.parquet(self._slot(number - 1)) if number else None
        followed = follow(facts, carried).persist()
        tally(followed).coalesce(1).write.mode("overwrite").parquet(
            self._place.path(f"_tallies/batch={number}")
        )
        unfinished(followed).write.mode("overwrite").parquet(self._slot(number))
        followed.unpersist()
        facts.unpersist()

    def has_begun(self, spark: SparkSession) -> bool:
        """Return whether anything was counted: who stops a stream before its first batch has no
        tables."""
        try:
            # Asked for its columns, because a session of Connect looks only then.
            return bool(spark.read.parquet(self._place.path("_tallies")).columns)
        except AnalysisException:
            return False

    def tallies(self, spark: SparkSession) -> DataFrame:
        """Return all that was counted so far."""
        parts = spark.read.parquet(self._place.path("_tallies"))
        return parts.groupBy(*KEY).agg(fn.sum("amount").alias("amount"))

    def _slot(self, number: int) -> str:
        return self._place.path(f"_unfinished/slot={number % 2}")


# --- the job

app = frame.job("rollup")


@app.command()
def rollup(
    *,
    connection_string: frame.ConnectionString = "",
    http_port: frame.HttpPort = None,
    entity: frame.Entities = None,
    facts: frame.Facts = "",
    out: frame.Out = "rollup",
    table_format: frame.Form = "parquet",
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            envvar="PEEKLOCK_STREAM",
            help="Go on from where the last run stopped, not from the start of the journal.",
        ),
    ] = False,
    interval: frame.Interval = "",
    watermark: Annotated[
        str,
        typer.Option(
            envvar="PEEKLOCK_WATERMARK",
            help="A period is final when facts this much younger were seen.",
        ),
    ] = "2m",
    checkpoint: frame.Checkpoint = "",
    master: frame.Master = "",
) -> None:
    """Rates, latency percentiles, lock losses, delivery counts and backlog from the journal."""
    work = frame.JobRun("rollup", master)
    place = frame.TableFolder(out, table_format)
    late = frame.spark_interval(watermark)
    source = FactSource(connection_string, http_port, entity, facts)
    source.check()
    if stream or interval:
        following = Stream(place, late)
        query = (
            source.stream(work.spark)
            .writeStream.foreachBatch(following.take)
            .option("checkpointLocation", checkpoint or place.path("_checkpoint"))
        )
        work.await_query(frame.triggered(query, interval).start())
        if not following.has_begun(work.spark):
            work.tell("nothing is counted yet")
            return
    else:
        tallies = tally_facts(source.read(work.spark)).persist()
        with work.progress.step("counting facts"):
            write(tallies, place, late)
        tallies.unpersist()
    frame.print_rows("the last hour", frame.shown(brief(place.read(work.spark, "hours"))))
    work.tell(f"{place.read(work.spark, 'minutes').count():,} minutes are in {out}")


def brief(hours: DataFrame) -> DataFrame:
    """Return what people look at first: the newest hour, in which the partitions of a lane are
    added up. Those in which nothing happened then still have their backlog."""
    counts = ("sends", "deliveries", "completes", "abandons", "lock_losses", "dead_letters")
    slowest = ("wait_ms_p99", "work_ms_p99")
    is_newest = fn.col("period") == fn.max("period").over(Window.partitionBy())
    partitions = (
        hours.withColumn("is_newest", is_newest)
        .groupBy(*LANE)
        .agg(
            fn.max("is_newest").alias("is_newest"),
            *(fn.sum(fn.when(fn.col("is_newest"), fn.col(c))).alias(c) for c in counts),
            fn.max_by("backlog", "period").alias("backlog"),
            *(fn.max(fn.when(fn.col("is_newest"), fn.col(c))).alias(c) for c in slowest),
        )
    )
    lanes = partitions.groupBy("entity", "sub_entity").agg(
        fn.max("is_newest").alias("is_newest"),
        *(fn.sum(name).alias(name) for name in (*counts, "backlog")),
        *(fn.max(name).alias(name) for name in slowest),
    )
    return lanes.where("is_newest").drop("is_newest").orderBy("entity", "sub_entity")


def main(arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run the job."""
    frame.run(app, arguments, program)


if __name__ == "__main__":
    main()
