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
ENTERING: Final = ("send", "publish", "activate", "transfer", "requeue")
LEAVING: Final = ("complete", "receive_delete", "expire", "purge", "deadletter")
# What ends a lock, and so a piece of work.
SETTLING: Final = ("complete", "abandon", "defer", "deadletter", "lock_lost")
# Receive and delete is both, a delivery and an end.
DELIVERING: Final = ("deliver",)

DEAD_LETTERS: Final = "$DeadLetterQueue"
# Not in the journal: the other half of `deadletter`, as the dead-letter queue sees it.
BURIAL: Final = "bury"
# Not in the journal: what is known of a message from the batches before.
CARRIED: Final = "carried"
# Not in the journal: a scheduled or staged message gets another number when its time comes.
RENUMBERED: Final = "renumbered"
PENDING: Final = ("schedule", "stage")

LANE: Final = ("entity", "sub_entity", "partition_id")
# A number is given once in an entity; a message that is dead-lettered keeps it.
MESSAGE: Final = ("entity", "partition_id", "sequence_number")
LIFE: Final = (*MESSAGE, "sub_entity")
KEPT: Final = ("message_id", "session_id", "bytes")


def is_one_of(ops: tuple[str, ...]) -> Column:
    """Return whether a fact is of one of these kinds."""
    return fn.col("op").isin(*ops)


def milliseconds(instant: str | Column) -> Column:
    """Return an instant as a number, so that differences are durations."""
    return fn.unix_millis(fn.col(instant) if isinstance(instant, str) else instant)


def completed(facts: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """Facts, and those that follow from them.

    For every dead-lettering there is a second row in the dead-letter queue it led to. Messages that
    waited under another number (scheduled, staged) end under that one, and have under their new
    one the id, session and size that they came with.
    """
    renews = is_one_of(("activate", "publish"))
    old = fn.try_to_number(fn.col("description"), fn.lit("9" * 19)).cast("long")
    # A scheduled message of a topic ends, and its copies are sends of their own.
    is_end = (fn.col("op") == "activate") & fn.col("description").isNull()
    # A stage that nobody published was never in the queue.
    is_dropped = (fn.col("op") == "purge") & fn.coalesce(
        fn.col("reason").startswith("Stage"), fn.lit(False)
    )
    told = facts.withColumns(
        {
            "_old": fn.when(renews, old),
            "op": fn.when(is_end | is_dropped, RENUMBERED).otherwise(fn.col("op")),
        }
    )
    dead = fn.concat_ws("/", fn.nullif(fn.col("sub_entity"), fn.lit("")), fn.lit(DEAD_LETTERS))
    buried = told.where(fn.col("op") == "deadletter").withColumns(
        {"sub_entity": dead, "op": fn.lit(BURIAL)}
    )
    renewed = told.where(fn.col("_old").isNotNull())
    ended = renewed.withColumns({"sequence_number": fn.col("_old"), "op": fn.lit(RENUMBERED)})
    known = _pending(facts, carried)
    renewed = renewed.drop(*KEPT).join(known, ["entity", "partition_id", "_old"], "left")
    rest = told.where(fn.col("_old").isNull())
    whole = rest.unionByName(buried).unionByName(ended).unionByName(renewed)
    return whole.drop("_old")


def _pending(facts: DataFrame, carried: DataFrame | None) -> DataFrame:
    """Return what waits under a number that it will not keep."""
    columns = ("entity", "partition_id", fn.col("sequence_number").alias("_old"), *KEPT)
    pending = facts.where(is_one_of(PENDING)).select(*columns)
    return pending if carried is None else pending.unionByName(carried.select(*columns))


def follow(facts: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """Facts with what came before each of them in the life of its message in its lane.

    `entered_at`: when the message came into the lane, null where that is not in the facts.
    `delivered_at`: when the delivery began that this fact is part of or ends, null where nobody
    holds the message. `handed_out`: how often it was delivered so far, this fact included.
    What only the first fact of a message says (its id, session and size) is said by all of them.
    `carried` is what `unfinished` gave for the batches before.
    """
    rows = completed(facts, carried).withColumns(
        {
            "_entered": fn.when(is_one_of((*ENTERING, BURIAL)), fn.col("at")),
            "_delivered": fn.when(is_one_of(DELIVERING), fn.col("at")),
            "_ended": fn.when(is_one_of(SETTLING), fn.col("position")),
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
    began = fn.struct(fn.col("_delivered").alias("at"), "position")
    rows = rows.withColumn("_began", fn.when(fn.col("_delivered").isNotNull(), began))
    last_began = _latest("_began").over(life)
    # A delivery that was given back is over: what happens to the message afterwards is no work.
    last_ended = fn.coalesce(_latest("_ended").over(_before(LIFE)), fn.lit(-1))
    is_held = has_message & (last_began["position"] > last_ended)
    return rows.withColumns(
        kept
        | {
            "entered_at": fn.when(has_message, _latest("_entered").over(life)),
            "delivered_at": fn.when(is_held, last_began["at"]),
            "handed_out": fn.when(has_message, fn.sum("_handed_out").over(life)),
        }
    ).drop("_entered", "_delivered", "_handed_out", "_ended", "_began")


def _latest(name: str) -> Column:
    return fn.last(name, ignorenulls=True)


def so_far(by: tuple[str, ...]) -> WindowSpec:
    """Return everything up to a fact, in the order of the journal."""
    return _in_order(by).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _before(by: tuple[str, ...]) -> WindowSpec:
    return _in_order(by).rowsBetween(Window.unboundedPreceding, -1)


def _in_order(by: tuple[str, ...]) -> WindowSpec:
    return Window.partitionBy(*by).orderBy("position", fn.col("op") == BURIAL)


def unfinished(followed: DataFrame) -> DataFrame:
    """What `follow` must know of the messages that are still there when the next batch comes."""
    # What tells of no lane (a change, a subscription that is gone) would never end.
    is_life = fn.col("sequence_number").isNotNull() & fn.col("sub_entity").isNotNull()
    lives = followed.where(is_life).groupBy(*LIFE)
    place = fn.col("position")
    return (
        lives.agg(
            *(fn.max_by(name, "position").alias(name) for name in KEPT),
            fn.max_by("entered_at", "position").alias("_entered"),
            fn.max_by(fn.when(~is_one_of(SETTLING), fn.col("delivered_at")), "position").alias(
                "_delivered"
            ),
            fn.max("handed_out").alias("_handed_out"),
            # What was removed and never sent is back.
            (
                fn.coalesce(fn.max(fn.when(is_one_of((*LEAVING, RENUMBERED)), place)), fn.lit(-1))
                > fn.coalesce(fn.max(fn.when(is_one_of(("requeue",)), place)), fn.lit(-1))
            ).alias("_is_gone"),
            fn.max("position").alias("position"),
        )
        .where(~fn.col("_is_gone"))
        .drop("_is_gone")
        .withColumn("op", fn.lit(CARRIED))
    )
