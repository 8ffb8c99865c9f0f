"""Counts that can be added up: minutes to hours, batches to tables, partitions to entities.

A tally is a number of times that something was seen in a minute of a lane. Durations are tallied
by buckets that grow by 2 %, so that percentiles of any sum of minutes are right in their rank and
within 1 % in their value, however far out.
"""

import math
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from peeklock.spark.jobs.facts.table import (
    BURIAL,
    DELIVERING,
    ENTERING,
    LANE,
    LEAVING,
    SETTLING,
    follow,
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
    return (
        followed.select(
            *LANE,
            fn.date_trunc("minute", "at").alias("minute"),
            fn.explode(_tallied()).alias("count"),
        )
        .select(*LANE, "minute", "count.*")
        .where(fn.col("amount").isNotNull())
        .groupBy(*KEY)
        .agg(fn.sum("amount").alias("amount"))
    )


def tally_facts(facts: DataFrame) -> DataFrame:
    """Count all facts at once, as a batch job does."""
    return tally(follow(facts))


def _tallied() -> Column:
    """Return the tallies of a fact, by its kind; most kinds have few, and only those are looked
    at."""
    counted = {op for ops in COUNTED.values() for op in ops}
    kinds = sorted(counted.union(ENTERING, LEAVING, SETTLING, DELIVERING, (BURIAL,)))
    first, *others = ((fn.col("op") == kind, fn.array(*_tallies_of(kind))) for kind in kinds)
    return reduce(lambda chosen, case: chosen.when(*case), others, fn.when(*first))


def _tallies_of(op: str) -> list[Column]:
    tallies = [_one(measure) for measure, ops in COUNTED.items() if op in ops]
    if op in (*ENTERING, BURIAL):
        tallies.append(_one(ENTERED))
    if op in LEAVING:
        delivered = fn.col("handed_out")
        tallies += [
            _one(LEFT),
            _one(LEFT_FROM_BEFORE, fn.col("entered_at").isNull()),
            _one(DELIVERY_COUNTS, delivered > 0, label=delivered.cast("string")),
        ]
    if op in ("send", "publish", "schedule"):
        tallies.append(_one("bytes_in", amount=fn.col("bytes")))
    if op in DELIVERING:
        tallies.append(_one("bytes_out", amount=fn.col("bytes")))
        tallies.append(_duration("wait_ms", "entered_at", fn.col("handed_out") == 1))
    if op in SETTLING:
        tallies.append(_duration("work_ms", "delivered_at"))
    if op in COUNTED["completes"]:
        tallies.append(_duration("total_ms", "entered_at"))
    if op == "deadletter":
        tallies.append(_one(REASONS, label=fn.coalesce("reason", fn.lit(""))))
    return tallies


def _one(
    measure: str,
    condition: Column | None = None,
    *,
    label: Column | None = None,
    bucket: Column | None = None,
    amount: Column | None = None,
) -> Column:
    """Return a tally that has no amount where the condition does not hold."""
    value = fn.lit(1).cast("long") if amount is None else amount
    return fn.struct(
        fn.lit(measure).alias("measure"),
        (fn.lit("") if label is None else label).alias("label"),
        (fn.lit(0) if bucket is None else bucket).alias("bucket"),
        (value if condition is None else fn.when(condition, value)).alias("amount"),
    )


def _duration(measure: str, since: str, condition: Column | None = None) -> Column:
    elapsed_ms = milliseconds("at") - milliseconds(since)
    is_known = fn.col(since).isNotNull()
    is_meant = is_known if condition is None else is_known & condition
    return _one(measure, is_meant, bucket=bucket_of(elapsed_ms))


def bucket_of(duration_ms: Column) -> Column:
    """Return the bucket of a duration; -1 is less than a millisecond."""
    logarithm = fn.ceil(fn.log(duration_ms.cast("double")) / fn.lit(math.log(GROWTH)))
    return fn.when(duration_ms < 1, fn.lit(-1)).otherwise(logarithm).cast("int")


def duration_of(bucket: Column) -> Column:
    """Return the duration that stands for a bucket: its middle, never 1 % off."""
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
    """Return how much there is of a measure; an aggregate over what `ranked` gave."""
    return fn.sum(fn.when(fn.col("measure") == measure, fn.col("amount")).otherwise(0))


def quantile(measure: str, share: float) -> Column:
    """Return the duration that a share of the observations does not exceed; an aggregate as
    well."""
    is_reached = (fn.col("measure") == measure) & (fn.col("rank") >= share * fn.col("observed"))
    return duration_of(fn.min(fn.when(is_reached, fn.col("bucket")))).cast("double")
