"""`peeklock dead-letter`: dead letters listed, sent again, moved, deleted, over many entities."""

import re
from collections import Counter
from dataclasses import dataclass
from secrets import token_hex
from typing import Annotated, Any, Final, TypeAlias, final

import typer

from peeklock.cli import values
from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.help import CommandGroup
from peeklock.cli.messages import client_of
from peeklock.cli.operating.dead_letter_jobs import (
    MARK,
    SUFFIX,
    JobLog,
    MessageChoice,
    Resubmission,
    SendRate,
    properties_of,
    take_all,
)
from peeklock.cli.operating.overview import depths
from peeklock.cli.operating.sessions import peeked
from peeklock.cli.output import (
    TABLE,
    DryRun,
    Output,
    Yes,
    confirm,
    print_json,
    print_table,
    progress,
    say,
)
from peeklock.client.administration import places
from peeklock.client.administration.errors import ResourceNotFoundError

app = CommandGroup("Dead letters of one or many entities.")

Entities: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="ENTITY...", help="Queues, or TOPIC/Subscriptions/NAME."),
]
Where: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION",
        show_default="all",
        help="Only those, in the language of rules: \"DeadLetterReason = 'TTLExpired'\".",
    ),
]
Rate: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.1, show_default="no limit", help="At most N in a second."),
]
NewIds: TypeAlias = Annotated[
    bool, typer.Option("--new-ids", help="Give them new message ids; the old one is a property.")
]

# Descriptions differ by ids and numbers where the cause is one.
_VARYING: Final = re.compile(r"[0-9a-fA-F-]{8,}|\d+")


@final
@dataclass(slots=True)
class Group:
    """Dead letters of one entity that died of the same."""

    count: int = 0
    oldest: str = ""
    number: int = 0


@app.command("list")
@asks_broker
def list_dead_letters(
    broker: BrokerAccess,
    entities: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ENTITY...]", help="All that have dead letters, unless given."),
    ] = None,
    *,
    where: Where = None,
    output: Output = "table",
) -> None:
    """Count dead letters by entity, reason and description."""
    choice = MessageChoice.of(where)
    if not entities:
        entities = [depth.path for depth in depths(broker) if depth.counts["dead letters"]]
    groups: dict[tuple[str, str, str], Group] = {}
    with client_of(broker) as client, progress("looking at dead letters") as advance:
        for entity in entities:
            for message in peeked(client, entity + SUFFIX):
                advance()
                if not choice.takes(message):
                    continue
                died_of = message.dead_letter_reason or ""
                described = _VARYING.sub("#", message.dead_letter_error_description or "")
                group = groups.setdefault((entity, died_of, described), Group())
                group.count += 1
                if group.count == 1:
                    enqueued_at = message.enqueued_time_utc
                    group.oldest = "" if enqueued_at is None else f"{enqueued_at:%FT%TZ}"
                    group.number = message.sequence_number or 0
    told = [
        {
            "entity": entity,
            "reason": died_of,
            "count": group.count,
            "oldest": group.oldest,
            "number": group.number,
            "description": described,
        }
        for (entity, died_of, described), group in sorted(groups.items())
    ]
    if output != TABLE:
        print_json({"dead_letters": told}, output)
        return
    if not told:
        typer.echo("no dead letters")
        return
    columns = ["entity", "reason", "count", "oldest", "number", "description"]
    print_table("Dead letters", columns, [[str(one[key]) for key in columns] for one in told])


@app.command()
@asks_broker
def resubmit(
    broker: BrokerAccess,
    entities: Entities,
    *,
    to: Annotated[
        str | None,
        typer.Option(show_default="where it died", help="A queue or topic that gets them."),
    ] = None,
    where: Where = None,
    rate: Rate = None,
    new_ids: NewIds = False,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Send dead letters again to their queue; each is gone here when it is there."""
    _carry(broker, "resubmit", entities, to, where, rate, new_ids, dry_run, output)


@app.command()
@asks_broker
def move(
    broker: BrokerAccess,
    entities: Entities,
    *,
    to: Annotated[str, typer.Option(help="The queue or topic that gets them.")],
    where: Where = None,
    rate: Rate = None,
    new_ids: NewIds = False,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Move dead letters to another queue or topic."""
    _carry(broker, "move", entities, to, where, rate, new_ids, dry_run, output)


def _carry(
    broker: BrokerAccess,
    verb: str,
    entities: list[str],
    to: str | None,
    where: str | None,
    rate: float | None,
    new_ids: bool,
    dry_run: bool,
    output: str,
) -> None:
    choice = MessageChoice.of(where)
    targets = {entity: to or _own_queue(entity) for entity in entities}
    for target in set(targets.values()):
        _refuse_duplicates(broker, target, new_ids)
    job = f"job-{token_hex(5)}"
    log, pace = JobLog(job, verb), SendRate(rate)
    done: Counter[str] = Counter()
    with client_of(broker, is_one_session=True) as client:
        for entity, target in targets.items():
            numbers = _chosen(client, entity, choice)
            done[entity] = len(numbers)
            if dry_run or not numbers:
                continue
            receiver = client.get_queue_receiver(entity + SUFFIX)
            parted = _is_partitioned(broker, entity)
            resubmission = Resubmission(client, receiver, target, job, log, new_ids, parted)
            with progress(f"{verb} '{entity}'", len(numbers)) as advance:

                def moved(
                    messages: Any, resubmission: Any = resubmission, advance: Any = advance
                ) -> None:
                    resubmission.move(messages)
                    advance(len(messages))

                done[entity] = take_all(receiver, numbers, pace, moved)
            receiver.close()
    told = [
        {"entity": entity, "target": targets[entity], "count": count}
        for entity, count in done.items()
    ]
    _tell(verb, told, job, dry_run, output)


def _tell(verb: str, told: list[dict[str, Any]], job: str, dry_run: bool, output: str) -> None:
    if output != TABLE:
        named = {"dry_run": True} if dry_run else {"job": job}
        print_json({**named, "dead_letters": told}, output)
        return
    title = f"Would {verb}" if dry_run else f"{verb.capitalize()}: {job}"
    rows = [[one["entity"], one["target"], str(one["count"])] for one in told]
    print_table(title, ["entity", "to", "count"], rows)
    total = sum(one["count"] for one in told)
    if total and not dry_run and verb == "resubmit":
        typer.echo(f"`peeklock dead-letter undo {job}` takes back what nobody has received")


@app.command()
@asks_broker
def purge(
    broker: BrokerAccess,
    entities: Entities,
    *,
    where: Where = None,
    rate: Rate = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Delete dead letters for good."""
    choice, pace = MessageChoice.of(where), SendRate(rate)
    done: Counter[str] = Counter()
    with client_of(broker) as client:
        found = {entity: _chosen(client, entity, choice) for entity in entities}
        total = sum(map(len, found.values()))
        if dry_run:
            counts = {entity: len(numbers) for entity, numbers in found.items()}
            say(output, {"would_delete": counts}, f"would delete {total:,} dead letters")
            return
        confirm(f"Delete {total:,} dead letters of {', '.join(entities)} for good?", yes=yes)
        for entity, numbers in found.items():
            receiver = client.get_queue_receiver(entity + SUFFIX)
            with progress(f"purging '{entity}'", len(numbers)) as advance:

                def gone(messages: Any, receiver: Any = receiver, advance: Any = advance) -> None:
                    receiver.complete_messages(messages)
                    advance(len(messages))

                done[entity] = take_all(receiver, numbers, pace, gone)
            receiver.close()
    say(output, {"deleted": dict(done)}, f"deleted {done.total():,} dead letters")


@app.command()
@asks_broker
def undo(
    broker: BrokerAccess,
    job: Annotated[str, typer.Argument(metavar="JOB", help="What resubmit has printed.")],
    *,
    output: Output = "table",
) -> None:
    """Dead-letter again what a resubmit has sent and nobody has received yet."""
    lines = JobLog(job).read()
    foreign = {line["target"] for line in lines if line["source"] != line["target"] + SUFFIX}
    if foreign:
        names = ", ".join(sorted(foreign))
        raise ConnectionProblem(
            "only what was resubmitted to its own queue can be dead-lettered there again; what "
            f"'{job}' has sent to {names} stays there"
        )
    back = 0
    with client_of(broker) as client:
        for target in sorted({line["target"] for line in lines}):
            known = {line["number"]: line for line in lines if line["target"] == target}
            back += _take_back(client, job, target, known)
    sent = len({(line["source"], line["number"]) for line in lines})
    text = f"{back:,} are dead letters again, {sent - back:,} were received or are locked"
    say(output, {"back": back, "gone": sent - back}, text)


def _take_back(client: Any, job: str, target: str, known: dict[int, dict[str, Any]]) -> int:
    there = {
        message.sequence_number or 0
        for message in peeked(client, target)
        if _mark(message).startswith(f"{job}/")
    }
    receiver = client.get_queue_receiver(target)

    def die(messages: Any) -> None:
        for message in messages:
            line = known.get(int(_mark(message).partition("/")[2]), {})
            receiver.dead_letter_message(message, line.get("reason"), line.get("description"))

    with progress(f"taking back from '{target}'", len(there)):
        done = take_all(receiver, there, SendRate(None), die)
    receiver.close()
    return done


def _mark(message: Any) -> str:
    found = properties_of(message).get(MARK, "")
    return found.decode() if isinstance(found, bytes) else str(found)


def _chosen(client: Any, entity: str, choice: MessageChoice) -> set[int]:
    with progress(f"looking at dead letters of '{entity}'") as advance:
        found: set[int] = set()
        for message in peeked(client, entity + SUFFIX):
            advance()
            if choice.takes(message):
                found.add(message.sequence_number or 0)
    return found


def _own_queue(entity: str) -> str:
    if "/subscriptions/" in entity.lower():
        raise values.wrong("--to", f"say where to: the subscription '{entity}' cannot be sent to")
    return entity


def _is_partitioned(broker: BrokerAccess, entity: str) -> bool:
    """Tell whether transactions of an entity need a key; of a subscription, its topic knows."""
    at = entity.lower().find("/subscriptions/")
    place = places.queue(entity) if at < 0 else places.topic(entity[:at])
    return bool(broker.administration().get(place).values.get("EnablePartitioning"))


def _refuse_duplicates(broker: BrokerAccess, target: str, new_ids: bool) -> None:
    """Refuse what would be dropped on arrival: a dead letter has an id that was seen before."""
    if new_ids:
        return
    admin = broker.administration()
    for place in (places.queue(target), places.topic(target)):
        try:
            found = admin.get(place)
        except ResourceNotFoundError:
            continue
        except ConnectionProblem:
            return
        if found.values.get("RequiresDuplicateDetection"):
            raise ConnectionProblem(
                f"'{target}' drops messages whose ids it has seen, and has seen these: --new-ids "
                "gives them others"
            )
        return
