"""Counts that can be added up: minutes to hours, batches to tables, partitions to entities.

A tally is a number of times that something was seen in a minute of a lane. Durations are tallied
by buckets that grow by 2 %, so that percentiles of any sum of minutes are right in their rank and
within 1 % in their value, however far out.
"""

import math
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from peeklock.spark.jobs.facts import (
    BURIAL,
    CARRIED,
    DELIVERING,
    ENTERING,
    LANE,
    LEAVING,
    SETTLING,
    follow,
    is_one_of,
    milliseconds,
)

GROWTH: Final = 1.02
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}

# What is counted, and the facts that count.
COUNTED: Final = {
    "sends": ("send", "publish"),
    "scheduled": ("schedule",),
    "deliveries": DELIVERING,
    "completes": ("complete", "receive_delete"),
    "abandons": ("abandon",),
    "lock_losses": ("lock_lost",),
    "dead_letters": ("deadletter",),
    "deferrals": ("defer",),
    "expired": ("expire",),
    "duplicates": ("duplicate",),
    "renewals": ("renew",),
    "failed_settlements": ("settle_fail",),
    "claims": ("claim",),
}
# What is measured: from entering the lane to the first delivery, from the last delivery to its
# settlement, from entering to completion.
MEASURED: Final = ("wait_ms", "work_ms", "total_ms")
SUMMED: Final = ("bytes_in", "bytes_out")
# Labelled counts, a table of their own.
REASONS: Final = "reason"
DELIVERY_COUNTS: Final = "delivery_count"
ENTERED: Final = "entered"
LEFT: Final = "left"
# Left, and came before the first fact that was read: it was in the backlog at the start.
LEFT_FROM_BEFORE: Final = "left_from_before"

KEY: Final = (*LANE, "minute", "measure", "label", "bucket")


def tally(followed: DataFrame) -> DataFrame:
    """Count what `follow` gave: `KEY` and `amount`."""
    counts = fn.filter(fn.array(*_counts(), *_durations()), lambda one: one["amount"].isNotNull())
    return (
        followed.where(fn.col("op") != CARRIED)
        .select(
            *LANE,
            fn.date_trunc("minute", "at").alias("minute"),
            fn.explode(counts).alias("count"),
        )
        .select(*LANE, "minute", "count.*")
        .groupBy(*KEY)
        .agg(fn.sum("amount").alias("amount"))
    )


def tally_facts(facts: DataFrame) -> DataFrame:
    """Count all facts at once, as a batch job does."""
    return tally(follow(facts))


def _counts() -> list[Column]:
    is_entering = is_one_of((*ENTERING, BURIAL))
    is_from_before = is_one_of(LEAVING) & fn.col("entered_at").isNull()
    counted = [_one(measure, is_one_of(ops)) for measure, ops in COUNTED.items()]
    return [
        *counted,
        _one(ENTERED, is_entering),
        _one(LEFT, is_one_of(LEAVING)),
        _one(LEFT_FROM_BEFORE, is_from_before),
        _one("bytes_in", is_one_of(("send", "publish", "schedule")), amount=fn.col("bytes")),
        _one("bytes_out", is_one_of(DELIVERING), amount=fn.col("bytes")),
        _one(REASONS, fn.col("op") == "deadletter", label=fn.coalesce("reason", fn.lit(""))),
        _one(
            DELIVERY_COUNTS,
            is_one_of(LEAVING) & (fn.col("handed_out") > 0),
            label=fn.col("handed_out").cast("string"),
        ),
    ]


def _durations() -> list[Column]:
    is_first = is_one_of(DELIVERING) & (fn.col("handed_out") == 1)
    is_end_of_work = is_one_of(SETTLING) & fn.col("delivered_at").isNotNull()
    is_completed = is_one_of(("complete", "receive_delete"))
    return [
        _duration("wait_ms", is_first, fn.col("entered_at")),
        _duration("work_ms", is_end_of_work, fn.col("delivered_at")),
        _duration("total_ms", is_completed, fn.col("entered_at")),
    ]


def _one(
    measure: str,
    condition: Column,
    *,
    label: Column | None = None,
    bucket: Column | None = None,
    amount: Column | None = None,
) -> Column:
    """A tally that has no amount where the condition does not hold."""
    return fn.struct(
        fn.lit(measure).alias("measure"),
        (fn.lit("") if label is None else label).alias("label"),
        (fn.lit(0) if bucket is None else bucket).alias("bucket"),
        fn.when(condition, fn.lit(1).cast("long") if amount is None else amount).alias("amount"),
    )


def _duration(measure: str, condition: Column, since: Column) -> Column:
    elapsed_ms = milliseconds("at") - milliseconds(since)
    return _one(measure, condition & since.isNotNull(), bucket=bucket_of(elapsed_ms))


def bucket_of(duration_ms: Column) -> Column:
    """The bucket of a duration; -1 is less than a millisecond."""
    logarithm = fn.ceil(fn.log(duration_ms.cast("double")) / fn.lit(math.log(GROWTH)))
    return fn.when(duration_ms < 1, fn.lit(-1)).otherwise(logarithm).cast("int")


def duration_of(bucket: Column) -> Column:
    """The duration that stands for a bucket: its middle, never 1 % off."""
    middle = fn.pow(fn.lit(GROWTH), bucket) * fn.lit(2 / (GROWTH + 1))
    # Instants are whole milliseconds, and so are short durations.
    exact = fn.when(middle < 40, fn.round(middle)).otherwise(fn.round(middle, 1))
    return fn.when(bucket < 0, fn.lit(0.0)).otherwise(exact)


def ranked(tallies: DataFrame, *by: str) -> DataFrame:
    """Tallies added up by some columns, with the rank that each bucket reaches: `quantile` and
    `total` take it from there."""
    buckets = tallies.groupBy(*by, "measure", "bucket").agg(fn.sum("amount").alias("amount"))
    whole = Window.partitionBy(*by, "measure")
    up_to = whole.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return buckets.withColumns(
        {"rank": fn.sum("amount").over(up_to), "observed": fn.sum("amount").over(whole)}
    )


def total(measure: str) -> Column:
    """How much there is of a measure; an aggregate over what `ranked` gave."""
    return fn.sum(fn.when(fn.col("measure") == measure, fn.col("amount")).otherwise(0))


def quantile(measure: str, share: float) -> Column:
    """The duration that a share of the observations does not exceed; an aggregate as well."""
    is_reached = (fn.col("measure") == measure) & (fn.col("rank") >= share * fn.col("observed"))
    return duration_of(fn.min(fn.when(is_reached, fn.col("bucket")))).cast("double")
