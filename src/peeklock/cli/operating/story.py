"""`peeklock story`: all that the journals know about one message, in the order it happened."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.output import TABLE, Output, fail, print_json, print_table, progress
from peeklock.client.administration import places

# What each fact means to somebody who asks where a message is.
_WORDS: Final = {
    "send": "sent",
    "schedule": "scheduled",
    "activate": "fell due",
    "deliver": "delivered",
    "complete": "completed",
    "receive_delete": "received and deleted",
    "requeue": "put back, because its receiver left before it was sent",
    "abandon": "given back",
    "lock_lost": "lock lost",
    "defer": "deferred",
    "deadletter": "dead-lettered",
    "renew": "lock renewed",
    "settle_fail": "settled too late, the lock was lost",
    "expire": "expired and dropped",
    "cancel": "its schedule was cancelled",
    "purge": "deleted",
    "duplicate": "dropped as a duplicate",
    "claim": "claimed",
    "unclaim": "no longer claimed",
    "stage": "staged",
    "publish": "published",
    "transfer": "waits to be carried on",
    "take_over": "forwarded to here",
    "change": "changed by a receiver",
}
# New numbers for what had another one, which the description tells.
_RENUMBERED: Final = ("activate", "publish")


def story(
    broker: BrokerAccess,
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="A message id, or a sequence number.")
    ],
    *,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENTITY", show_default="all", help="A queue or topic; may be repeated."
        ),
    ] = None,
    output: Output = "table",
) -> None:
    """Tell what happened to a message, as far back as the journals reach."""
    from peeklock.spark.journal.client import JournalClient, JournalError

    endpoint = broker.http().endpoint
    rows: list[dict[str, Any]] = []
    entities = entity or _all_entities(broker)
    try:
        with (
            JournalClient.of(endpoint) as client,
            progress("reading journals", len(entities)) as advance,
        ):
            for name in entities:
                rows += facts_about(client, name, message)
                advance()
    except JournalError as error:
        raise ConnectionProblem(str(error)) from error
    rows.sort(key=lambda row: (row["at"], row["entity"], row["position"]))
    if not rows:
        fail(
            f"the journals know no message '{message}': it never came, no subscription took it, "
            "or it is longer ago than --journal-retention-ms of the broker"
        )
    if output != TABLE:
        print_json({"facts": rows}, output)
        return
    columns = ["at", "where", "number", "what", "description"]
    print_table(f"Story of '{message}'", columns, [_row(row) for row in rows])


def _all_entities(broker: BrokerAccess) -> list[str]:
    admin = broker.administration()
    queues = [found.name for found in admin.every(places.QUEUES)]
    return queues + [found.name for found in admin.every(places.TOPICS)]


def facts_about(client: Any, entity: str, message: str) -> list[dict[str, Any]]:
    """Find the facts about a message in the journal of one queue or topic."""
    from peeklock.spark.journal.fact_columns import FactColumns

    described = client.describe(entity)
    found: list[dict[str, Any]] = []
    for partition in described.partitions:
        if not partition.is_available:
            continue
        facts = FactColumns(described.entity, partition.index, described.lanes)
        numbers = {int(message)} if message.isdigit() else set()
        after = partition.first
        while after < partition.next:
            page = client.page(entity, partition.index, after)
            for chunk in page.chunks:
                facts.add(chunk, after)
            found += _chosen(facts.take(), message, numbers)
            if page.next <= after:
                break
            after = page.next
    return found + _left_out(found, described)


def _chosen(
    columns: dict[str, list[Any]], message: str, numbers: set[int]
) -> Iterator[dict[str, Any]]:
    """Choose the rows of a message; what is known by a number once stays known by it."""
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        number = row["sequence_number"]
        is_meant = row["message_id"] == message or number in numbers
        if row["op"] in _RENUMBERED and str(row["description"]).isdigit():
            is_meant = is_meant or int(row["description"]) in numbers
        if not is_meant:
            continue
        if number is not None:
            numbers.add(number)
        row["at"] = (
            datetime.fromtimestamp(row["at"] / 1_000_000, tz=UTC).isoformat(
                timespec="milliseconds"
            )[:-6]
            + "Z"
        )
        yield {key: value for key, value in row.items() if value is not None}


def _left_out(found: list[dict[str, Any]], described: Any) -> list[dict[str, Any]]:
    """Name the subscriptions of a topic whose rules did not take what others got."""
    copies = [row for row in found if row["op"] in ("send", "activate") and row.get("sub_entity")]
    if not copies:
        return []
    subscriptions = {
        name for name in described.lanes.values() if name and name.startswith("Subscriptions/")
    }
    subscriptions = {name for name in subscriptions if not name.endswith("$DeadLetterQueue")}
    got = {row["sub_entity"] for row in copies}
    return [
        {**copies[0], "op": "filtered", "sub_entity": name} for name in sorted(subscriptions - got)
    ]


def _row(row: dict[str, Any]) -> list[str]:
    where = "/".join(part for part in (row["entity"], row.get("sub_entity", "")) if part)
    return [row["at"], where, str(row.get("sequence_number", "")), _what(row), _details(row)]


def _what(row: dict[str, Any]) -> str:
    if row["op"] == "filtered":
        return "filtered: no rule took it"
    from peeklock.broker.forwarding.lane_forwarder import CONSUMER as FORWARDING

    words = str(_WORDS.get(row["op"], row["op"]))
    consumer = row.get("consumer")
    if row["op"] == "deliver" and consumer == FORWARDING:
        return "taken to be forwarded"
    if row["op"] == "complete" and consumer == FORWARDING:
        return "forwarded"
    if row["op"] == "deliver" and consumer:
        # The container; the name of its link tells people nothing.
        return f"{words} to {str(consumer).partition('/')[0]}"
    return words


def _details(row: dict[str, Any]) -> str:
    parts = [str(row[key]) for key in ("reason", "description") if row.get(key)]
    if row.get("destination"):
        parts.append(f"to {row['destination']}")
    if row.get("delivery_count"):
        parts.append(f"delivery {row['delivery_count']}")
    return ", ".join(parts)


def add_to(app: typer.Typer) -> None:
    """Give the main command this command."""
    app.command()(asks_broker(story))
