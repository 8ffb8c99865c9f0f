"""How fast something went, measured over whole stretches of ten seconds.

A run of work is a series of facts without a pause of a stretch or more. It is divided into
stretches from its first fact on; the last one is cut off by the end of the run and does not count.
Between two facts the count grows evenly, so a steady pace has the same rate in every stretch.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from peeklock.spark.jobs.facts.table import milliseconds

STRETCH_S: Final = 10
_STRETCH_MS: Final = STRETCH_S * 1000
# Runs shorter than this say nothing about a rate, only about a moment.
_SPAN_MS_MIN: Final = 1000
# Rates are sums of fractions: this is far below what anybody sets, and above what adding up loses.
_DIGITS: Final = 6


def rates(facts: DataFrame, *by: str) -> DataFrame:
    """Return the highest rate (`peak_per_s`) and one that nine in ten stretches reach
    (`low_per_s`), by some columns."""
    steps = _steps(facts, *by).persist()
    whole = _whole_stretches(steps, *by)
    short = _without_stretch(steps, *by)
    rows = short.join(whole, list(by), "left")
    return rows.select(
        *by,
        fn.round(fn.coalesce("_peak", "_short"), _DIGITS).alias("peak_per_s"),
        fn.round(fn.coalesce("_low", "_short"), _DIGITS).alias("low_per_s"),
    )


def _steps(facts: DataFrame, *by: str) -> DataFrame:
    """Return each fact with its run: when that began and ends, and how long ago the fact before
    was."""
    order = Window.partitionBy(*by).orderBy("_at_ms")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = fn.coalesce(fn.col("_gap_ms") >= _STRETCH_MS, fn.lit(True)).cast("int")
    timed = facts.select(*by, milliseconds("at").alias("_at_ms"))
    run = Window.partitionBy(*by, "_run")
    return (
        timed.withColumn("_gap_ms", fn.col("_at_ms") - fn.lag("_at_ms").over(order))
        .withColumn("_is_first", begins == 1)
        .withColumn("_run", fn.sum(begins).over(so_far))
        .withColumn("_end_ms", fn.col("_at_ms") - fn.min("_at_ms").over(run))
        .withColumn("_span_ms", fn.max("_end_ms").over(run))
    )


def _whole_stretches(steps: DataFrame, *by: str) -> DataFrame:
    counted = steps.where(~fn.col("_is_first")).select(
        *by, "_run", "_span_ms", fn.explode(_shares()).alias("_share")
    )
    stretches = (
        counted.where((fn.col("_share.stretch") + 1) * _STRETCH_MS <= fn.col("_span_ms"))
        .groupBy(*by, "_run", "_share.stretch")
        .agg(fn.round(fn.sum("_share.amount") / STRETCH_S, _DIGITS).alias("_per_s"))
    )
    return stretches.groupBy(*by).agg(
        fn.max("_per_s").alias("_peak"), fn.percentile_approx("_per_s", 0.1).alias("_low")
    )


def _shares() -> Column:
    """Return the one or two stretches that a step is part of, and how much of it each of them
    has."""
    start_ms = fn.col("_end_ms") - fn.col("_gap_ms")
    first = fn.floor(start_ms / _STRETCH_MS)
    last = fn.floor(fn.col("_end_ms") / _STRETCH_MS)
    late = fn.try_divide(fn.col("_end_ms") - last * _STRETCH_MS, fn.col("_gap_ms"))
    is_divided = (first < last) & (fn.col("_gap_ms") > 0)
    return fn.when(is_divided, fn.array(_share(first, 1 - late), _share(last, late))).otherwise(
        fn.array(_share(last, fn.lit(1.0)))
    )


def _share(stretch: Column, amount: Column) -> Column:
    return fn.struct(stretch.alias("stretch"), amount.cast("double").alias("amount"))


def _without_stretch(steps: DataFrame, *by: str) -> DataFrame:
    """Return the rate of the longest run, for work that never filled a stretch."""
    runs = steps.groupBy(*by, "_run").agg(
        (fn.count("*") - 1).alias("_steps"), fn.max("_span_ms").alias("_span_ms")
    )
    longest = runs.groupBy(*by).agg(
        fn.max(fn.struct("_span_ms", "_steps")).alias("_longest"),
        fn.max("_steps").alias("_most"),
    )
    per_s = fn.col("_longest._steps") * 1000 / fn.col("_longest._span_ms")
    moment = (fn.col("_most") + 1) / STRETCH_S
    is_run = fn.col("_longest._span_ms") >= _SPAN_MS_MIN
    return longest.select(*by, fn.when(is_run, per_s).otherwise(moment).alias("_short"))
