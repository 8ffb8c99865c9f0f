"""Which facts a job looks at: those of the entities that were named."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.jobs.made_facts import MadeFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_subscription_is_named_with_its_dead_letters_and_no_other(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from peeklock.spark.jobs.facts.fact_source import FactSource

    made_facts = MadeFacts("Events")
    for lane in ("Subscriptions/ab", "Subscriptions/a", "Subscriptions/A/$DeadLetterQueue", None):
        made_facts.send(0, sub_entity=lane)
    made_facts.table(spark).write.parquet(str(tmp_path / "facts"))
    source = FactSource("", None, ["events/Subscriptions/a"], str(tmp_path / "facts"))
    found = [row.sub_entity for row in source.read(spark).orderBy("position").collect()]
    assert found == ["Subscriptions/a", "Subscriptions/A/$DeadLetterQueue"]
