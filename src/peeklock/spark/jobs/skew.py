"""`skew`: how evenly partitions and keys are loaded, and how it would be with others (R-D4)."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final, NoReturn

import typer
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn
from pyspark.sql.window import WindowSpec

from peeklock.spark.jobs import frame
from peeklock.spark.jobs.facts.fact_source import FactSource
from peeklock.spark.jobs.facts.table import BURIAL, ENTERING, LEAVING, completed, is_one_of
from peeklock.spark.jobs.namespace import ListedEntity, NamespaceListing

# How many partitions an entity can have.
PARTITIONS: Final = (1, 2, 4, 8, 16, 32)
LINE: Final = ("entity", "sub_entity")


def messages_in(facts: DataFrame, key: str) -> DataFrame:
    """Messages as they came in: lane, partition, minute, key (null where turns decide), bytes."""
    return facts.where(is_one_of(("send", "publish"))).select(
        *LINE,
        "partition_id",
        fn.date_trunc("minute", "at").alias("minute"),
        fn.expr(key).cast("string").alias("key"),
        fn.coalesce("bytes", fn.lit(0)).alias("bytes"),
    )


def partitions_of(messages: DataFrame, facts: DataFrame, known: Mapping[str, int]) -> DataFrame:
    """Return every partition of every line, also those that got nothing.

    `known` says how many an entity has, by its name in lower case; of others the highest number
    that any fact tells of is the last one.
    """
    seen = facts.groupBy("entity").agg((fn.max("partition_id") + 1).alias("_seen"))
    said: Column = fn.lit(None).cast("int")
    if known:
        pairs = [fn.lit(each) for pair in known.items() for each in pair]
        said = fn.try_element_at(fn.create_map(*pairs), fn.lower("entity"))
    count = fn.greatest(fn.coalesce(said, "_seen"), "_seen")
    numbers = fn.explode(fn.sequence(fn.lit(0), (count - 1).cast("int")))
    lines = messages.select(*LINE).distinct().join(fn.broadcast(seen), "entity")
    return lines.select(*LINE, numbers.alias("partition_id"))


def by_partition(
    messages: DataFrame, facts: DataFrame, known: Mapping[str, int] = MappingProxyType({})
) -> DataFrame:
    """Return the share of each partition in messages, bytes and backlog; empty ones have none of
    it."""
    change = fn.when(is_one_of((*ENTERING, BURIAL)), 1).when(is_one_of(LEAVING), -1).otherwise(0)
    backlog = (
        completed(facts)
        .groupBy(*LINE, "partition_id")
        .agg(fn.greatest(fn.sum(change), fn.lit(0)).alias("backlog"))
    )
    loads = messages.groupBy(*LINE, "partition_id").agg(
        fn.count("*").alias("messages"), fn.sum("bytes").alias("bytes")
    )
    line = Window.partitionBy(*LINE)
    whole = partitions_of(messages, facts, known).join(loads, [*LINE, "partition_id"], "left")
    filled = whole.join(backlog, [*LINE, "partition_id"], "left").na.fill(0)
    return filled.select(
        *LINE,
        "partition_id",
        "messages",
        _share("messages", line).alias("share"),
        "bytes",
        _share("bytes", line).alias("bytes_share"),
        "backlog",
        _share("backlog", line).alias("backlog_share"),
    )


def _share(name: str, whole: WindowSpec) -> Column:
    return fn.round(fn.try_divide(fn.col(name), fn.sum(name).over(whole)), 6)


def by_key(messages: DataFrame) -> DataFrame:
    """Return how many messages each key has; those without a key are none of them."""
    keyed = messages.where(fn.col("key").isNotNull()).groupBy(*LINE, "key")
    return keyed.agg(fn.count("*").alias("messages"), fn.sum("bytes").alias("bytes"))


def top_keys(keys: DataFrame, count: int) -> DataFrame:
    """Return the keys with the most messages, and their share in those that have a key."""
    line = Window.partitionBy(*LINE)
    rank = fn.row_number().over(line.orderBy(fn.desc("messages"), "key"))
    return (
        keys.withColumns({"rank": rank, "share": _share("messages", line)})
        .where(fn.col("rank") <= count)
        .orderBy(*LINE, "rank")
    )


def gini(loads: DataFrame, by: Sequence[str], amount: str = "messages") -> DataFrame:
    """Return the Gini coefficient of loads: 0 is even, near 1 is all on one.

    With loads x1 <= x2 <= ... <= xn it is 2 * sum(i * xi) / (n * sum(xi)) - (n + 1) / n.
    """
    rank = fn.row_number().over(Window.partitionBy(*by).orderBy(amount))
    ranked = loads.withColumn("_rank", rank)
    count, weight = fn.count("*"), fn.sum(fn.col("_rank") * fn.col(amount))
    value = fn.try_divide(2 * weight, count * fn.sum(amount)) - (count + 1) / count
    return ranked.groupBy(*by).agg(
        count.alias("loads"),
        fn.sum(amount).alias(amount),
        fn.max(amount).alias("largest"),
        fn.round(fn.greatest(value, fn.lit(0.0)), 6).alias("gini"),
    )


def hot_minutes(messages: DataFrame, partitions: DataFrame, times: float) -> DataFrame:
    """Minutes in which a partition got several times its even share."""
    minutes = messages.groupBy(*LINE, "partition_id", "minute").agg(fn.count("*").alias("messages"))
    partitions = partitions.groupBy(*LINE).agg(fn.count("*").alias("partitions"))
    share = _share("messages", Window.partitionBy(*LINE, "minute"))
    return (
        minutes.withColumn("share", share)
        .join(fn.broadcast(partitions), list(LINE))
        .withColumn("times_even", fn.round(fn.col("share") * fn.col("partitions"), 3))
        .where((fn.col("partitions") > 1) & (fn.col("times_even") >= times))
        .orderBy(fn.desc("times_even"), *LINE, "minute")
    )


def what_if(messages: DataFrame, keys: DataFrame) -> DataFrame:
    """The largest share and the Gini coefficient if the same messages came to N partitions.

    Keys go where the broker would put them: to the CRC-32 of their UTF-8 bytes, modulo N. What has
    no key goes by turns, evenly.
    """
    counts = fn.explode(fn.array(*(fn.lit(count) for count in PARTITIONS)))
    loose = messages.groupBy(*LINE).agg(fn.count_if(fn.col("key").isNull()).alias("loose"))
    slots = loose.select(*LINE, "loose", counts.alias("partitions")).select(
        "*", fn.explode(fn.sequence(fn.lit(0), fn.col("partitions") - 1)).alias("partition_id")
    )
    placed = (
        keys.select(*LINE, "key", "messages", counts.alias("partitions"))
        .withColumn("partition_id", partition_of("key", fn.col("partitions")))
        .groupBy(*LINE, "partitions", "partition_id")
        .agg(fn.sum("messages").alias("keyed"))
    )
    loads = slots.join(placed, [*LINE, "partitions", "partition_id"], "left").withColumn(
        "messages", fn.coalesce("keyed", fn.lit(0)) + fn.col("loose") / fn.col("partitions")
    )
    spread = gini(loads, (*LINE, "partitions"))
    largest = fn.round(fn.try_divide("largest", "messages"), 6)
    return spread.select(
        *LINE,
        "partitions",
        largest.alias("largest_share"),
        fn.round(largest * fn.col("partitions"), 3).alias("times_even"),
        "gini",
    ).orderBy(*LINE, "partitions")


def partition_counts(entities: Iterable[ListedEntity]) -> dict[str, int]:
    """Return how many partitions each queue and topic has, by its name in lower case."""
    return {
        e.name.lower(): e.properties.get("PartitionCount") or 1 for e in entities if not e.topic
    }


def partition_of(key: str, partitions: Column) -> Column:
    """Return the partition of a key, as the broker has it: `entity/routing.py`, said in SQL."""
    return fn.crc32(fn.encode(fn.col(key), "UTF-8")) % partitions


# --- the job

app = frame.job("skew")


@app.command()
def skew(
    *,
    connection_string: frame.ConnectionString = "",
    http_port: frame.HttpPort = None,
    entity: frame.Entities = None,
    facts: frame.Facts = "",
    key: Annotated[
        str,
        typer.Option(
            envvar="PEEKLOCK_KEY",
            help="What decides on the partition, as SQL over the facts' columns.",
        ),
    ] = "session_id",
    top: Annotated[int, typer.Option(min=1, help="How many keys are named.")] = 20,
    hot: Annotated[
        float, typer.Option(min=1, help="A minute is hot with so many times the even share.")
    ] = 2.0,
    out: frame.Out = "skew",
    table_format: frame.Form = "parquet",
    master: frame.Master = "",
) -> None:
    """Shares of partitions and session keys, Gini, hot minutes, and what if with N partitions."""
    work = frame.JobRun("skew", master)
    source = FactSource(connection_string, http_port, entity, facts)
    source.check()
    rows = source.read(work.spark).persist()
    with work.progress.step("reading facts"):
        rows.count()
    messages = messages_in(rows, key).persist()
    keys = by_key(messages).persist()
    known = {} if facts else partition_counts(NamespaceListing(source.bus).entities())
    partitions = by_partition(messages, rows, known).persist()
    tables = {
        "partitions": partitions.orderBy(*LINE, "partition_id"),
        "partitions_gini": gini(partitions, LINE),
        "keys": top_keys(keys, top),
        "keys_gini": gini(keys, LINE),
        "hot_minutes": hot_minutes(messages, partitions, hot),
        "what_if": what_if(messages, keys),
    }
    place = frame.TableFolder(out, table_format)
    for name, table in tables.items():
        place.write(table, name)
        frame.print_rows(name, frame.shown(place.read(work.spark, name)))
    work.tell(f"{len(tables)} tables are in {out}")


def main(arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run the job."""
    frame.run(app, arguments, program)


if __name__ == "__main__":
    main()
