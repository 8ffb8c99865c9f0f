"""`audit`: what was sent against what was received and settled (R-D5)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from peeklock.spark.jobs import frame
from peeklock.spark.jobs.facts.fact_source import FactSource
from peeklock.spark.jobs.facts.table import (
    BURIAL,
    DEAD_LETTERS,
    ENTERING,
    MESSAGE,
    PENDING,
    RENUMBERED,
    follow,
    is_one_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What can become of a message. The first four are wrong, the rest is told.
LOST: Final = "lost"
DUPLICATED: Final = "duplicated"
UNEXPECTED: Final = "unexpected"
OUT_OF_ORDER: Final = "out_of_order"
IN_DOUBT: Final = "in_doubt"
RECOVERED: Final = "recovered"
DEAD: Final = "dead_lettered"
# Expired, purged, or cancelled before it was due.
REMOVED: Final = "removed"
RESTING: Final = "resting"
FINE: Final = "fine"
ELSEWHERE: Final = (DEAD, REMOVED, RESTING)
WRONG: Final = (LOST, DUPLICATED, UNEXPECTED, OUT_OF_ORDER)
VERDICTS: Final = (*WRONG, IN_DOUBT, RECOVERED, DEAD, REMOVED, RESTING, FINE)


def sent_in(table: DataFrame) -> DataFrame:
    """Return a sender's log in the form that is audited: message_id, acked, session_id, sent_order.

    Only `message_id` must be there. A send without an answer has `acked` false or null: it may
    have arrived or not.
    """
    return _in_form(
        table,
        {
            "message_id": (("message_id",), "string", None),
            "acked": (("acked",), "boolean", fn.lit(True)),
            "session_id": (("session_id",), "string", None),
            "sent_order": (("sent_order", "sent_at", "at"), "", None),
        },
        "sent",
    )


def received_in(table: DataFrame) -> DataFrame:
    """Return a receiver's log in the form that is audited: message_id, settled, session_id and
    order.

    Rows with `settled` false are deliveries that were given back, and not counted as received.
    """
    return _in_form(
        table,
        {
            "message_id": (("message_id",), "string", None),
            "settled": (("settled",), "boolean", fn.lit(True)),
            "session_id": (("session_id",), "string", None),
            "received_order": (
                ("received_order", "received_at", "at", "sequence_number"),
                "",
                None,
            ),
        },
        "received",
    )


def _in_form(
    table: DataFrame, columns: dict[str, tuple[tuple[str, ...], str, Column | None]], name: str
) -> DataFrame:
    if "message_id" not in table.columns:
        raise frame.Impossible(f"the table of what was {name} has no column message_id")
    made = []
    for column, (sources, kind, default) in columns.items():
        found = next((source for source in sources if source in table.columns), None)
        value = fn.lit(None) if found is None else fn.col(found)
        if found is None and default is not None:
            value = default
        made.append((value.cast(kind) if kind else _as_order(table, found)).alias(column))
    return table.select(*made)


def _as_order(table: DataFrame, column: str | None) -> Column:
    """Instants (timestamps or ISO 8601 texts) and numbers alike as a number that grows."""
    if column is None:
        return fn.lit(None).cast("long")
    kind = dict(table.dtypes)[column]
    if kind == "string":
        number = fn.expr(f"try_cast(`{column}` as bigint)")
        instant = fn.unix_micros(fn.expr(f"try_cast(`{column}` as timestamp)"))
        text = f"the column {column} has '%s', which is neither a whole number nor an ISO 8601 time"
        wrong = fn.raise_error(fn.format_string(text, fn.col(column)))
        return fn.when(fn.col(column).isNull(), fn.lit(None).cast("long")).otherwise(
            fn.coalesce(number, instant, wrong.cast("long"))
        )
    if kind.startswith("timestamp"):
        return fn.unix_micros(fn.col(column).cast("timestamp"))
    return fn.col(column).cast("long")


def _line() -> Column:
    """Return the queue or subscription that a fact is of, dead letters included."""
    main = fn.regexp_replace("sub_entity", r"/?\$DeadLetterQueue$", "")
    return fn.concat_ws("/", "entity", fn.nullif(main, fn.lit("")))


def identified(followed: DataFrame) -> DataFrame:
    """Facts with an id for every message, and the line that it is of."""
    # Nobody has to give ids; numbers are given once.
    number = fn.concat(fn.lit("#"), fn.col("sequence_number").cast("string"))
    # What was handed out for good and never sent was not received.
    following = fn.lead("op").over(Window.partitionBy(*MESSAGE).orderBy("position"))
    is_unsent = (fn.col("op") == "receive_delete") & (following == "requeue")
    return followed.withColumns(
        {
            "message_id": fn.coalesce("message_id", number),
            "line": _line(),
            "op": fn.when(is_unsent, "deliver").otherwise(fn.col("op")),
        }
    )


def sent_by(followed: DataFrame) -> DataFrame:
    """What a journal says was sent: all of it was acknowledged, or may have been."""
    return followed.where(is_one_of(("send", "publish", "activate"))).select(
        "line",
        "message_id",
        fn.lit(True).alias("acked"),
        "session_id",
        fn.col("position").alias("sent_order"),
    )


def received_by(followed: DataFrame) -> DataFrame:
    """What a journal says was received and settled for good; a dead letter's end is another one."""
    return followed.where(_is_received()).select(
        "line",
        "message_id",
        fn.lit(True).alias("settled"),
        "session_id",
        fn.col("position").alias("received_order"),
    )


def _is_received() -> Column:
    # Of a subscription that was deleted the lane is not known.
    is_dead = fn.coalesce(fn.col("sub_entity").endswith(DEAD_LETTERS), fn.lit(False))
    return is_one_of(("complete", "receive_delete")) & ~is_dead


def ends_by(followed: DataFrame) -> DataFrame:
    """Return how many messages of each id a journal knows to be elsewhere than received."""
    came = fn.bool_or(is_one_of((*ENTERING, BURIAL, *PENDING)))
    fate = (
        fn.when(fn.bool_or(_is_received() | (fn.col("op") == RENUMBERED)), fn.lit(None))
        .when(fn.bool_or(fn.col("op") == BURIAL), DEAD)
        .when(fn.bool_or(is_one_of(("expire", "purge", "cancel"))), REMOVED)
        .when(came, RESTING)
    )
    fates = followed.groupBy("line", "message_id", *MESSAGE).agg(fate.alias("fate"))
    return fates.groupBy("line", "message_id").agg(
        *(fn.count_if(fn.col("fate") == name).alias(name) for name in ELSEWHERE)
    )


def judge(sent: DataFrame, received: DataFrame, ends: DataFrame | None = None) -> DataFrame:
    """Return every message id with its verdict: `message_id`, `sent`, `acked`, `received`,
    `verdict`.

    Where both sides know the line (queue or subscription) of a message, it is part of its id.
    """
    by = _identity(sent, received)
    sent_once = sent.groupBy(*by).agg(
        fn.count("*").alias("sent"), fn.count_if("acked").alias("acked")
    )
    received_once = received.where("settled").groupBy(*by).agg(fn.count("*").alias("received"))
    both = sent_once.join(received_once, by, "full_outer")
    if ends is None:
        ended = both.withColumns({name: fn.lit(0) for name in ELSEWHERE})
    else:
        sums = [fn.sum(name).alias(name) for name in ELSEWHERE]
        ended = both.join(ends.groupBy(*by).agg(*sums), by, "left")
    counts = ("sent", "acked", "received", *ELSEWHERE)
    ended = ended.withColumns({name: fn.coalesce(name, fn.lit(0)) for name in counts})
    accounted = fn.col("received") + fn.col(DEAD) + fn.col(REMOVED) + fn.col(RESTING)
    verdict = (
        fn.when(fn.col("sent") == 0, UNEXPECTED)
        .when(fn.col("received") > fn.col("sent"), DUPLICATED)
        .when((fn.col("received") > 0) & (fn.col("acked") == 0), RECOVERED)
        .when(accounted < fn.col("acked"), LOST)
        .when(fn.col("received") > 0, FINE)
        .when(fn.col(RESTING) > 0, RESTING)
        .when(fn.col(DEAD) > 0, DEAD)
        .when(fn.col(REMOVED) > 0, REMOVED)
        .otherwise(IN_DOUBT)
    )
    return ended.withColumn("verdict", verdict).drop(*ELSEWHERE)


def _identity(sent: DataFrame, received: DataFrame) -> list[str]:
    knows_line = "line" in sent.columns and "line" in received.columns
    return ["message_id", "line"] if knows_line else ["message_id"]


def disordered(sent: DataFrame, received: DataFrame) -> DataFrame:
    """Return messages that were received after one of their session that was sent later."""
    by = _identity(sent, received)
    order = (
        sent.where("session_id is not null")
        .groupBy(*by, "session_id")
        .agg(fn.min("sent_order").alias("sent_order"))
    )
    first = (
        received.where("settled").groupBy(*by).agg(fn.min("received_order").alias("received_order"))
    )
    before = (
        Window.partitionBy(*by[1:], "session_id")
        .orderBy("received_order")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        order.join(first, by)
        .where(fn.col("sent_order").isNotNull() & fn.col("received_order").isNotNull())
        .withColumn("overtaken_by", fn.max("sent_order").over(before))
        .where(fn.col("sent_order") < fn.col("overtaken_by"))
        .select(*by, "session_id", fn.lit(OUT_OF_ORDER).alias("verdict"))
    )


def offending(judged: DataFrame, disorder: DataFrame) -> DataFrame:
    """Return the ids that something is wrong or in doubt with, a row for each."""
    wrong = judged.where(fn.col("verdict").isin(LOST, DUPLICATED, UNEXPECTED, IN_DOUBT))
    return wrong.unionByName(disorder, allowMissingColumns=True)


def summary(judged: DataFrame, disorder: DataFrame) -> dict[str, int]:
    """Return how many messages have each verdict, all verdicts named."""
    counted = judged.groupBy("verdict").count().union(disorder.groupBy("verdict").count())
    found = {row["verdict"]: int(row["count"]) for row in counted.collect()}
    return {verdict: found.get(verdict, 0) for verdict in VERDICTS}


# --- the job

app = frame.job("audit")


@app.command()
def audit(
    *,
    connection_string: frame.ConnectionString = "",
    http_port: frame.HttpPort = None,
    entity: frame.Entities = None,
    facts: frame.Facts = "",
    sent: Annotated[
        str,
        typer.Option(
            envvar="PEEKLOCK_SENT",
            help="A table of what was sent: message_id, and acked, session_id, sent_order.",
            show_default="what the journal says",
        ),
    ] = "",
    received: Annotated[
        str,
        typer.Option(
            envvar="PEEKLOCK_RECEIVED",
            help="A table of what was received: message_id, and settled, session_id, received_at.",
            show_default="what the journal says",
        ),
    ] = "",
    journal: Annotated[
        bool,
        typer.Option(
            help="Whether a journal is asked where both tables are given; it tells lost messages "
            "from those that rest, expired or are dead."
        ),
    ] = True,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A verdict that is no failure, such as duplicated; may be repeated."),
    ] = None,
    out: frame.Out = "audit",
    table_format: frame.Form = "parquet",
    master: frame.Master = "",
) -> None:
    """Find what was lost, duplicated, unexpected or out of order. Ends with 1 if anything was."""
    allowed = set(allow or ())
    if strange := allowed - set(VERDICTS):
        raise frame.Impossible(f"there is no verdict '{strange.pop()}': {', '.join(VERDICTS)}")
    work = frame.JobRun("audit", master)
    source = FactSource(connection_string, http_port, entity, facts)
    uses_journal = journal or not (sent and received)
    if uses_journal:
        source.check()
    spark = work.spark
    with work.progress.step("comparing"):
        counts, wrong = _audit(spark, source if uses_journal else None, sent, received)
    place = frame.TableFolder(out, table_format)
    rows = [{"verdict": verdict, "messages": count} for verdict, count in counts.items()]
    place.write(work.spark.createDataFrame(rows, "verdict string, messages long"), "verdicts")
    place.write(wrong, "offending")
    frame.print_rows("verdicts", [row for row in rows if row["messages"]])
    failures = [v for v in WRONG if counts[v] and v not in allowed]
    work.tell(f"the offending ids are in {place.path('offending')}")
    if failures:
        work.tell("found " + ", ".join(f"{counts[v]:,} {v}" for v in failures))
        raise typer.Exit(frame.FOUND)


def _audit(
    spark: "SparkSession", source: FactSource | None, sent_path: str, received_path: str
) -> tuple[dict[str, int], DataFrame]:
    followed, ends = None, None
    if source is not None:
        followed = identified(follow(source.read(spark).drop("body"))).persist()
        ends = ends_by(followed)
    sent = sent_in(frame.read_table(spark, sent_path)) if sent_path else sent_by(_known(followed))
    received = (
        received_in(frame.read_table(spark, received_path))
        if received_path
        else received_by(_known(followed))
    )
    judged = judge(sent, received, ends).persist()
    disorder = disordered(sent, received).persist()
    return summary(judged, disorder), offending(judged, disorder)


def _known(followed: DataFrame | None) -> DataFrame:
    assert followed is not None, "without both tables there is a journal"
    return followed


def main(arguments: Sequence[str] | None = None, program: str = "") -> NoReturn:
    """Run the job."""
    frame.run(app, arguments, program)


if __name__ == "__main__":
    main()
