"""The journal as a table: one row for each message and fact, and the life of a message in it."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn
from pyspark.sql.window import WindowSpec

SCHEMA: Final = (
    "at timestamp, entity string, sub_entity string, partition_id int, position long, op string, "
    "sequence_number long, message_id string, session_id string, delivery_count int, bytes long, "
    "consumer string, reason string, description string, destination string, body binary"
)

# What brings a message into a lane, and what takes it away for good.
ENTERING: Final = ("send", "publish", "activate", "transfer")
LEAVING: Final = ("complete", "receive_delete", "expire", "purge", "deadletter")
# What ends a lock, and so a piece of work.
SETTLING: Final = ("complete", "abandon", "defer", "deadletter", "lock_lost")
DELIVERING: Final = ("deliver", "receive_delete")

DEAD_LETTERS: Final = "$DeadLetterQueue"
# Not in the journal: the other half of `deadletter`, as the dead-letter queue sees it.
BURIAL: Final = "bury"
# Not in the journal: what is known of a message from the batches before.
CARRIED: Final = "carried"

LANE: Final = ("entity", "sub_entity", "partition_id")
# A number is given once in an entity; a message that is dead-lettered keeps it.
MESSAGE: Final = ("entity", "partition_id", "sequence_number")
LIFE: Final = (*MESSAGE, "sub_entity")
KEPT: Final = ("message_id", "session_id", "bytes")


def is_one_of(ops: tuple[str, ...]) -> Column:
    """Whether a fact is of one of these kinds."""
    return fn.col("op").isin(*ops)


def milliseconds(instant: str | Column) -> Column:
    """An instant as a number, so that differences are durations."""
    return fn.unix_millis(fn.col(instant) if isinstance(instant, str) else instant)


def with_burials(facts: DataFrame) -> DataFrame:
    """Facts, and for every dead-lettering a second row in the dead-letter queue it led to."""
    dead = fn.concat_ws("/", fn.nullif(fn.col("sub_entity"), fn.lit("")), fn.lit(DEAD_LETTERS))
    buried = facts.where(fn.col("op") == "deadletter").withColumns(
        {"sub_entity": dead, "op": fn.lit(BURIAL)}
    )
    return facts.unionByName(buried)


def follow(facts: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """Facts with what came before each of them in the life of its message in its lane.

    `entered_at`: when the message came into the lane, null where that is not in the facts.
    `delivered_at`: when it was handed out last. `handed_out`: how often so far, this fact included.
    What only the first fact of a message says (its id, session and size) is said by all of them.
    `carried` is what `unfinished` gave for the batches before.
    """
    rows = with_burials(facts).withColumns(
        {
            "_entered": fn.when(is_one_of((*ENTERING, BURIAL)), fn.col("at")),
            "_delivered": fn.when(is_one_of(DELIVERING), fn.col("at")),
            "_handed_out": fn.when(is_one_of(DELIVERING), 1).otherwise(0).cast("long"),
        }
    )
    if carried is not None:
        rows = rows.unionByName(carried, allowMissingColumns=True)
    message = so_far(MESSAGE)
    life = so_far(LIFE)
    # Facts without a message (a session's state, a dropped duplicate) would all be one life.
    has_message = fn.col("sequence_number").isNotNull()
    kept = {
        name: fn.coalesce(name, fn.when(has_message, _latest(name).over(message))) for name in KEPT
    }
    return rows.withColumns(
        kept
        | {
            "entered_at": fn.when(has_message, fn.last("_entered", ignorenulls=True).over(life)),
            "delivered_at": fn.when(
                has_message, fn.last("_delivered", ignorenulls=True).over(life)
            ),
            "handed_out": fn.when(has_message, fn.sum("_handed_out").over(life)),
        }
    ).drop("_entered", "_delivered", "_handed_out")


def _latest(name: str) -> Column:
    return fn.last(name, ignorenulls=True)


def so_far(by: tuple[str, ...]) -> WindowSpec:
    """Everything up to a fact, in the order of the journal."""
    in_order = Window.partitionBy(*by).orderBy("position", fn.col("op") == BURIAL)
    return in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def unfinished(followed: DataFrame) -> DataFrame:
    """What `follow` must know of the messages that are still there when the next batch comes."""
    lives = followed.where(fn.col("sequence_number").isNotNull()).groupBy(*LIFE)
    return (
        lives.agg(
            *(fn.max_by(name, "position").alias(name) for name in KEPT),
            fn.max_by("entered_at", "position").alias("_entered"),
            fn.max_by("delivered_at", "position").alias("_delivered"),
            fn.max("handed_out").alias("_handed_out"),
            fn.bool_or(is_one_of(LEAVING)).alias("_is_gone"),
            fn.max("position").alias("position"),
        )
        .where(~fn.col("_is_gone") & fn.col("_entered").isNotNull())
        .drop("_is_gone")
        .withColumn("op", fn.lit(CARRIED))
    )
