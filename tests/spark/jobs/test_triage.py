"""Triage: what belongs together is one group, what does not is two."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.spark.jobs.made_facts import START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PYTHON = """ValueError: no price for '{}'
Traceback (most recent call last):
  File "/srv/app/main.py", line {}, in run
  File "/srv/app/prices.py", line 88, in look_up
"""
DOTNET = """System.TimeoutException: The operation timed out after {} ms
   at Shop.Stock.Reserve(Order order) in C:\\app\\Stock.cs:line 41
   at Shop.Program.Main()
"""


def letters(spark: "SparkSession", *rows: tuple[Any, ...]) -> "DataFrame":
    from peeklock.spark.jobs.triage import COLUMNS, fingerprinted

    made = [
        (
            entity,
            number,
            f"m-{number}",
            f"s-{number % 2}",
            "order",
            START + timedelta(minutes=20 * number),
            3,
            reason,
            text,
            None,
        )
        for number, (entity, reason, text) in enumerate(rows)
    ]
    return fingerprinted(spark.createDataFrame(made, COLUMNS))


def test_descriptions_of_one_problem_are_one_group(spark: "SparkSession") -> None:
    """R-D3: numbers, ids, instants and quotations do not tell troubles apart; code does."""
    from peeklock.spark.jobs.triage import grouped

    found = grouped(
        letters(
            spark,
            ("orders", "Failed", PYTHON.format("apple", 12)),
            ("orders", "Failed", PYTHON.format("pear", 17)),
            ("orders", "Failed", PYTHON.format("pear", 17).replace("look_up", "guess")),
            ("orders", "Failed", DOTNET.format(500)),
            ("orders", "Failed", DOTNET.format(1_200)),
            ("stock", "Failed", DOTNET.format(80)),
            ("orders", "Odd", "order 2b6e5a54-9d0c-4f0e-8a0b-0c6f2e5d7a11 of 2026-03-01T10:00:00Z"),
            ("orders", "Odd", "order 3FAB5A54-9d0c-4f0e-8a0b-0c6f2e5d7a12 of 2025-01-31 23:59:59"),
            ("orders", None, None),
        )
    ).collect()
    told = [(row.entity, row.messages, row.exception, row.frame, row.description) for row in found]
    timed_out = "System.TimeoutException: The operation timed out after <n> ms"
    no_price = "ValueError: no price for <text>"
    assert sorted(told, key=str) == sorted(
        [
            ("orders", 2, "ValueError", "prices.py:look_up", no_price),
            ("orders", 1, "ValueError", "prices.py:guess", no_price),
            ("orders", 2, "System.TimeoutException", "Shop.Stock.Reserve", timed_out),
            ("stock", 1, "System.TimeoutException", "Shop.Stock.Reserve", timed_out),
            ("orders", 2, None, None, "order <id> of <time>"),
            ("orders", 1, None, None, ""),
        ],
        key=str,
    )
    first = next(row for row in found if row.frame == "prices.py:look_up")
    assert first.samples == ["#1 m-1", "#0 m-0"]
    assert first.sessions == 2


def test_the_trend_is_by_hour_or_day(spark: "SparkSession") -> None:
    from peeklock.spark.jobs.triage import trend_of

    told = letters(spark, *[("orders", "Failed", "x")] * 7).persist()
    hours = trend_of(told, "hour").collect()
    assert [(row.period.hour - hours[0].period.hour, row.messages) for row in hours] == [
        (0, 3),
        (1, 3),
        (2, 1),
    ]
    assert [row.messages for row in trend_of(told, "day").collect()] == [7]
