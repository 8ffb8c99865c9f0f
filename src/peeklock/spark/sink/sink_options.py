"""The options of the sink: what errors say, the reference prints and writers are told."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, final
from uuid import uuid4

from pyspark.sql.types import (
    DataType,
    DayTimeIntervalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from peeklock.client.connections.connection_string import connection_parts
from peeklock.spark.option_table import BOTH, CHOICE, NUMBER, OPTIONS, TEXT, WRITE, Option
from peeklock.spark.options import (
    Access,
    Given,
    OptionProblem,
    access_of,
    consumer_of,
    place_of,
)
from peeklock.spark.schema import MESSAGE_COLUMNS

SEND: Final = "send"
SETTLE: Final = "settle"
AUTO: Final = "auto"
STAGE: Final = "stage"
IDS: Final = "ids"

SINK_OPTIONS: Final = (
    Option(
        "operation",
        CHOICE,
        SEND,
        WRITE,
        "Send rows as messages, or settle the claimed messages that rows name.",
        choices=(SEND, SETTLE),
    ),
    Option(
        "exactlyOnce",
        CHOICE,
        AUTO,
        WRITE,
        "How a repeated write is kept from sending twice: staged on the broker and published with "
        "the batch, or by message ids that the entity remembers. `auto` asks the broker.",
        choices=(AUTO, STAGE, IDS),
    ),
    Option(
        "idColumns",
        TEXT,
        "",
        WRITE,
        "Columns, with commas between, whose values make the message id of rows that have none. "
        "Without it the id is the row's place: query, batch, partition, row.",
    ),
    Option(
        "writeId",
        TEXT,
        "",
        WRITE,
        "Names a batch write, so that its repeat sends nothing again. Streams have their query's.",
    ),
    Option(
        "batchId",
        NUMBER,
        "0",
        WRITE,
        "The number of a batch write within its `writeId`; it must grow. For foreachBatch.",
    ),
    Option(
        "maxMessagesPerSecond",
        NUMBER,
        "",
        WRITE,
        "A budget for all tasks together, divided by `writers`.",
        low=1,
    ),
    Option(
        "writers",
        NUMBER,
        "",
        WRITE,
        "How many tasks share `maxMessagesPerSecond`: the partitions of what is written, as "
        "`coalesce(n)` makes them.",
        low=1,
        high=100_000,
    ),
    Option(
        "requireDuplicateDetection",
        CHOICE,
        "warn",
        WRITE,
        "What to do when ids are to keep a repeat out and the entity does not remember them.",
        choices=("warn", "fail", "ignore"),
    ),
    Option(
        "consumerId",
        TEXT,
        "",
        WRITE,
        "Whose claims `operation=settle` ends: that of the query which read them.",
        aliases=("readerName",),
    ),
)

# With the numbers behind it, it must not become longer than the id of a message may be.
_WRITE_ID_MAX: Final = 64
_TEXTS: Final = (StringType,)
# What a message can be told, and the types that say it; a body that is neither is sent as JSON.
SEND_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": (DataType,),
    "message_id": _TEXTS,
    "session_id": _TEXTS,
    "partition_key": _TEXTS,
    "subject": _TEXTS,
    "correlation_id": _TEXTS,
    "content_type": _TEXTS,
    "to": _TEXTS,
    "reply_to": _TEXTS,
    "reply_to_session_id": _TEXTS,
    "scheduled_enqueue_time": (TimestampType, TimestampNTZType),
    "time_to_live": (IntegralType, DayTimeIntervalType),
    "application_properties": (MapType,),
    "properties_json": _TEXTS,
    "entity": _TEXTS,
}
SETTLE_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "sequence_number": (IntegralType,),
    "action": _TEXTS,
    "reason": _TEXTS,
    "description": _TEXTS,
}
_SETTLE_NEEDS: Final = ("sequence_number", "action")


@final
@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What one writer was told, checked and complete; goes to the executors."""

    access: Access
    # Where everything goes; empty where the column `entity` says it for each row.
    entity: str
    operation: str
    exactly_once: str
    id_columns: tuple[str, ...]
    write_id: str
    batch_id: int
    # The share of each task; 0 is no limit.
    per_second: float
    duplicates: str
    consumer_id: str
    ledger: str
    columns: tuple[str, ...]


def sink_options(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    """Read the options of a writer and look at its columns, or say what is wrong with them."""
    given = Given(options, WRITE, _TABLE)
    access = access_of(given)
    operation = given.text("operation")
    id_columns = tuple(filter(None, (name.strip() for name in given.text("idColumns").split(","))))
    entity = _entity(given, access)
    columns = _columns(schema, operation, id_columns, entity)
    if streaming and (given.text("writeId") or given.number("batchId")):
        raise OptionProblem("writeId and batchId are for batches: a stream has its query's")
    if len(given.text("writeId")) > _WRITE_ID_MAX:
        raise OptionProblem(f"writeId has more than {_WRITE_ID_MAX} characters")
    rate, writers = given.number("maxMessagesPerSecond", 0), given.number("writers", 0)
    if rate and not writers:
        raise OptionProblem(
            "maxMessagesPerSecond needs option writers: a task knows nothing of the others, so "
            "that `df.coalesce(n)` and writers=n have to go together"
        )
    return SinkOptions(
        access=access,
        entity=entity,
        operation=operation,
        exactly_once=given.text("exactlyOnce"),
        id_columns=id_columns,
        # One that nobody knows: retries of its tasks are the same write, another write is not.
        write_id=given.text("writeId") or uuid4().hex,
        batch_id=given.number("batchId"),
        per_second=rate / writers if rate else 0.0,
        duplicates=given.text("requireDuplicateDetection"),
        consumer_id=consumer_of(given, entity),
        ledger=given.text("ledger"),
        columns=columns,
    )


# Claims are settled where they were made, so that the place is named as it is for reading.
_PLACES: Final = ("subscription", "subQueue", "ledger")
_TABLE: Final = (
    *(option for option in OPTIONS if option.use == BOTH),
    *(replace(option, use=WRITE) for option in OPTIONS if option.name in _PLACES),
    *SINK_OPTIONS,
)


def _entity(given: Given, access: Access) -> str:
    queue, topic = given.text("queue") or given.path, given.text("topic")
    subscription, sub_queue = given.text("subscription"), given.text("subQueue")
    if queue and given.path and queue != given.path:
        raise OptionProblem(f"option queue is '{queue}', and save() says '{given.path}'")
    if queue and topic:
        raise OptionProblem("give a queue or a topic, not both")
    entity = queue or topic or connection_parts(access.connection_string).get("entitypath", "")
    if given.text("operation") == SETTLE:
        if bool(topic) != bool(subscription):
            raise OptionProblem("topic and subscription go together where messages are settled")
        return place_of(given, entity) if entity else ""
    if subscription or sub_queue:
        raise OptionProblem("nobody sends to a subscription or a subQueue: name a queue or a topic")
    return entity


def _columns(
    schema: StructType, operation: str, id_columns: tuple[str, ...], entity: str
) -> tuple[str, ...]:
    known = SETTLE_COLUMNS if operation == SETTLE else SEND_COLUMNS
    names = {field.name for field in schema.fields}
    for field in schema.fields:
        kinds = known.get(field.name)
        if kinds is not None and not isinstance(field.dataType, kinds):
            raise OptionProblem(f"column {field.name} cannot be {field.dataType.simpleString()}")
        # The source has more columns than are written, and its rows should need no trimming.
        is_known = field.name in MESSAGE_COLUMNS or field.name in id_columns
        if kinds is None and not is_known:
            raise OptionProblem(
                f"there is no place for column '{field.name}'; known are: {', '.join(known)}"
            )
    if operation == SETTLE:
        _require(names, _SETTLE_NEEDS, "to settle")
        if not entity:
            raise OptionProblem("no entity: give option queue, or topic and subscription")
    else:
        _require(names, ("body",), "to send")
        _require(names, id_columns, "for idColumns")
        if not entity and "entity" not in names:
            raise OptionProblem("no entity: give option queue or topic, or a column 'entity'")
    return tuple(field.name for field in schema.fields)


def _require(names: set[str], wanted: tuple[str, ...], purpose: str) -> None:
    missing = [name for name in wanted if name not in names]
    if missing:
        raise OptionProblem(f"column '{missing[0]}' is needed {purpose}")
