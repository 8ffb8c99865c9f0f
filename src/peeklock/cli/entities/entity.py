"""`peeklock queue`, `topic` and `subscription`: entities made, seen, changed and deleted."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

import typer

from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.entities.entity_options import choosing
from peeklock.cli.help import CommandGroup
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
    text_of,
)
from peeklock.client.administration import atom, places
from peeklock.client.administration.atom import Description
from peeklock.client.administration.errors import ResourceExistsError
from peeklock.client.administration.places import ResourcePath

queue_app = CommandGroup("The queues of a running broker.")
topic_app = CommandGroup("The topics of a running broker.")
subscription_app = CommandGroup("The subscriptions of a topic on a running broker.")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
TopicName: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
SubscriptionName: TypeAlias = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.")
]
Skip: TypeAlias = Annotated[int, typer.Option(min=0, help="Leave out so many at the beginning.")]
Top: TypeAlias = Annotated[
    int | None, typer.Option(min=1, show_default="all", help="List at most so many.")
]

_PAGE: Final = 100
# The columns of a list: a title, and where it is found.
_COLUMNS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    atom.QUEUE: (
        ("status", "Status"),
        ("active", "ActiveMessageCount"),
        ("scheduled", "ScheduledMessageCount"),
        ("dead letters", "DeadLetterMessageCount"),
        ("bytes", "SizeInBytes"),
        ("availability", "EntityAvailabilityStatus"),
    ),
    atom.TOPIC: (
        ("status", "Status"),
        ("subscriptions", "SubscriptionCount"),
        ("scheduled", "ScheduledMessageCount"),
        ("bytes", "SizeInBytes"),
        ("availability", "EntityAvailabilityStatus"),
    ),
    atom.SUBSCRIPTION: (
        ("status", "Status"),
        ("active", "ActiveMessageCount"),
        ("dead letters", "DeadLetterMessageCount"),
        ("availability", "EntityAvailabilityStatus"),
    ),
}


_CONTENTS: Final = {
    "subscriptions": "SubscriptionCount",
    "active messages": "ActiveMessageCount",
    "scheduled messages": "ScheduledMessageCount",
    "dead letters": "DeadLetterMessageCount",
}


# --- what all kinds do alike


def create_entity(
    broker: BrokerAccess,
    place: ResourcePath,
    chosen: dict[str, Any],
    output: str,
    first_rule: Description | None = None,
) -> None:
    """Make an entity and tell what it is."""
    admin = broker.administration()
    try:
        admin.create(place, Description(place.kind, place.path, chosen), first_rule)
    except ResourceExistsError as error:
        words = " ".join(place.path.split("/Subscriptions/"))
        raise ConnectionProblem(
            f"{place.told} exists already, or the name is that of something else (`peeklock "
            f"{place.kind} update {words}` changes it, `peeklock {place.kind} delete {words}` "
            "makes room)"
        ) from error
    show_entity(broker, place, output)


def update_entity(
    broker: BrokerAccess, place: ResourcePath, chosen: dict[str, Any], output: str
) -> None:
    """Change some properties of an entity and leave the others."""
    admin = broker.administration()
    known = admin.get(place)
    changed = Description(place.kind, known.name, known.values | chosen, keys=known.keys)
    admin.update(place, changed)
    show_entity(broker, place, output)


def show_entity(broker: BrokerAccess, place: ResourcePath, output: str) -> None:
    """Tell everything about an entity."""
    found = broker.administration().get(place)
    if output != TABLE:
        print_json(told(found), output)
        return
    rows = [[name, text_of(value)] for name, value in {**found.values, **found.runtime}.items()]
    rows += [[f"authorization rule {key.name}", repr(key)] for key in found.keys]
    print_table(f"{place.kind.capitalize()} '{place.path}'", ["property", "value"], rows)


def list_entities(
    broker: BrokerAccess, place: ResourcePath, skip: int, top: int | None, output: str
) -> None:
    """List entities with their counts, page by page."""
    admin = broker.administration()
    found: list[Description] = []
    with progress(f"listing {place.kind}s") as advance:
        while top is None or len(found) < top:
            wanted = _PAGE if top is None else min(_PAGE, top - len(found))
            page = admin.page(place, skip + len(found), wanted)
            found += page.entries
            advance(len(page.entries))
            if not page.has_more or not page.entries:
                break
    if output != TABLE:
        print_json({f"{place.kind}s": [told(entity) for entity in found]}, output)
        return
    columns = _COLUMNS[place.kind]
    rows = [
        [
            entity.name,
            *(text_of({**entity.values, **entity.runtime}.get(key)) for _, key in columns),
        ]
        for entity in found
    ]
    titles = ["name", *(title for title, _ in columns)]
    print_table(f"{place.kind.capitalize()}s", titles, rows)


def delete_entity(
    broker: BrokerAccess, place: ResourcePath, output: str, *, yes: bool, dry_run: bool
) -> None:
    """Delete an entity with all that is in it, unless only asked what that is."""
    admin = broker.administration()
    if dry_run or not yes:
        # Looked up first: nobody is asked about what is not there.
        contents = _contents(admin.get(place))
        if dry_run:
            text = f"would delete {place.told}{contents}"
            say(output, {"would_delete": place.path}, text)
            return
        confirm(f"Delete {place.told}{contents} for good?", yes=yes)
    admin.delete(place)
    if output != TABLE:
        print_json({"deleted": place.path}, output)
    else:
        typer.echo(f"deleted {place.told}")


def _contents(found: Description) -> str:
    counts = {name: found.runtime.get(key) for name, key in _CONTENTS.items()}
    texts = [f"{count:,} {name}" for name, count in counts.items() if count]
    return f" with {', '.join(texts)}" if texts else ""


def told(found: Description) -> dict[str, Any]:
    """Return a description as JSON; keys are told by export alone."""
    rules = [{"Name": key.name, "Rights": _rights(key)} for key in found.keys]
    return {
        "Name": found.name,
        "Properties": found.values,
        **({"AuthorizationRules": rules} if rules else {}),
        "Runtime": found.runtime,
    }


def _rights(key: Any) -> list[str]:
    from peeklock.auth.rights import rights_names

    return rights_names(key.rights)


# --- queues and topics


def _make_commands(app: typer.Typer, kind: str, place_of: Callable[..., ResourcePath]) -> None:
    """Give a kind of entity that has one name its commands."""
    everything = places.QUEUES if kind == atom.QUEUE else places.TOPICS

    @app.command(help=f"Make a {kind}.")
    @asks_broker
    @choosing(kind)
    def create(
        broker: BrokerAccess, name: Name, *, chosen: dict[str, Any], output: Output = "table"
    ) -> None:
        create_entity(broker, place_of(name), chosen, output)

    @app.command("list", help=f"List the {kind}s with their counts.")
    @asks_broker
    def list_all(
        broker: BrokerAccess, *, skip: Skip = 0, top: Top = None, output: Output = "table"
    ) -> None:
        list_entities(broker, everything, skip, top, output)

    @app.command(help=f"Tell everything about a {kind}: properties, counts, availability.")
    @asks_broker
    def show(broker: BrokerAccess, name: Name, *, output: Output = "table") -> None:
        show_entity(broker, place_of(name), output)

    @app.command(help=f"Change properties of a {kind}; those that are not given stay.")
    @asks_broker
    @choosing(kind, for_update=True)
    def update(
        broker: BrokerAccess, name: Name, *, chosen: dict[str, Any], output: Output = "table"
    ) -> None:
        update_entity(broker, place_of(name), chosen, output)

    @app.command(help=f"Delete a {kind} with all that is in it.")
    @asks_broker
    def delete(
        broker: BrokerAccess,
        name: Name,
        *,
        yes: Yes = False,
        dry_run: DryRun = False,
        output: Output = "table",
    ) -> None:
        delete_entity(broker, place_of(name), output, yes=yes, dry_run=dry_run)


_make_commands(queue_app, atom.QUEUE, places.queue)
_make_commands(topic_app, atom.TOPIC, places.topic)


# --- subscriptions


@subscription_app.command("create")
@asks_broker
@choosing(atom.SUBSCRIPTION)
def create_subscription(
    broker: BrokerAccess,
    topic: TopicName,
    name: SubscriptionName,
    *,
    chosen: dict[str, Any],
    output: Output = "table",
) -> None:
    """Make a subscription; its first rule takes everything."""
    create_entity(broker, places.subscription(topic, name), chosen, output)


@subscription_app.command("list")
@asks_broker
def list_subscriptions(
    broker: BrokerAccess,
    topic: TopicName,
    *,
    skip: Skip = 0,
    top: Top = None,
    output: Output = "table",
) -> None:
    """List the subscriptions of a topic with their counts."""
    list_entities(broker, places.subscriptions(topic), skip, top, output)


@subscription_app.command("show")
@asks_broker
def show_subscription(
    broker: BrokerAccess, topic: TopicName, name: SubscriptionName, *, output: Output = "table"
) -> None:
    """Tell everything about a subscription: properties, counts, availability."""
    show_entity(broker, places.subscription(topic, name), output)


@subscription_app.command("update")
@asks_broker
@choosing(atom.SUBSCRIPTION, for_update=True)
def update_subscription(
    broker: BrokerAccess,
    topic: TopicName,
    name: SubscriptionName,
    *,
    chosen: dict[str, Any],
    output: Output = "table",
) -> None:
    """Change properties of a subscription; those that are not given stay."""
    update_entity(broker, places.subscription(topic, name), chosen, output)


@subscription_app.command("delete")
@asks_broker
def delete_subscription(
    broker: BrokerAccess,
    topic: TopicName,
    name: SubscriptionName,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = "table",
) -> None:
    """Delete a subscription with its rules and all that is in it."""
    place = places.subscription(topic, name)
    delete_entity(broker, place, output, yes=yes, dry_run=dry_run)
