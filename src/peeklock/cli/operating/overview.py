"""`peeklock status`, `top` and `connections`: what a broker has and who uses it, seen from outside.

Everything is asked as any client could; what a namespace elsewhere does not answer is left out.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, final

import typer

from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.output import (
    TABLE,
    Output,
    make_table,
    print_json,
    print_table,
    progress,
    text_of,
)
from peeklock.client.administration import places
from peeklock.client.exceptions import ServiceBusError

_COUNTS: Final = {
    "active": "ActiveMessageCount",
    "scheduled": "ScheduledMessageCount",
    "dead letters": "DeadLetterMessageCount",
    "transfer": "TransferMessageCount",
}


@final
@dataclass(frozen=True, slots=True)
class Depth:
    """What an entity holds."""

    kind: str
    path: str
    status: str
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """How many messages it has."""
        return sum(self.counts.values())


def depths(broker: BrokerAccess) -> Iterator[Depth]:
    """Ask for every queue, topic and subscription."""
    admin = broker.administration()
    for found in admin.every(places.QUEUES):
        yield _depth("queue", found.name, found)
    for topic in admin.every(places.TOPICS):
        yield _depth("topic", topic.name, topic)
        for found in admin.every(places.subscriptions(topic.name)):
            yield _depth("subscription", f"{topic.name}/Subscriptions/{found.name}", found)


def _depth(kind: str, path: str, found: Any) -> Depth:
    counts = {name: int(found.runtime.get(key) or 0) for name, key in _COUNTS.items()}
    return Depth(kind, path, str(found.values.get("Status", "")), counts)


def asked(broker: BrokerAccess, path: str) -> dict[str, Any] | None:
    """Ask for what only our broker has; None where nobody knows it."""
    try:
        return broker.ask("GET", path)
    except (ConnectionProblem, ServiceBusError):
        return None


def status(broker: BrokerAccess, *, output: Output = "table") -> None:
    """Tell in a few lines how the broker is: entities, messages, connections, stores."""
    with progress("asking for all entities") as advance:
        found: list[Depth] = []
        for depth in depths(broker):
            found.append(depth)
            advance()
    told: dict[str, Any] = {
        "namespace": broker.administration().namespace().get("Name"),
        "entities": {kind: sum(d.kind == kind for d in found) for kind in _kinds(found)},
        "messages": {name: sum(d.counts[name] for d in found) for name in _COUNTS},
        "disabled": [d.path for d in found if d.status not in ("Active", "")],
    }
    ready = asked(broker, "/ready")
    stores, connections = asked(broker, "/$stores"), asked(broker, "/$connections")
    if ready is not None:
        told["ready"] = ready
    if stores is not None:
        told["stores"] = {store["name"]: store["state"] for store in stores["stores"]}
    if connections is not None:
        told["connections"] = connections["count"]
    if output != TABLE:
        print_json(told, output)
        return
    rows = [[name, _line(value)] for name, value in told.items()]
    print_table("Status", ["", "value"], rows)


def _kinds(found: list[Depth]) -> list[str]:
    return sorted({depth.kind for depth in found})


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_line(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return (
        f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else text_of(value)
    )


def connections(broker: BrokerAccess, *, output: Output = "table") -> None:
    """List who is connected over AMQP, and the links of each."""
    document = broker.ask("GET", "/$connections")
    if output != TABLE:
        print_json({"connections": document["connections"]}, output)
        return
    rows = [
        [one["peer"], one["namespace"], one["container"], link["role"], link["address"]]
        for one in document["connections"]
        for link in one["links"] or [{"role": "", "address": ""}]
    ]
    shown = len(document["connections"])
    title = f"Connections ({document['count']:,})"
    if shown < document["count"]:
        title += f", {shown:,} of them"
    print_table(title, ["peer", "namespace", "container", "role", "address"], sorted(rows))


def top(
    broker: BrokerAccess,
    *,
    interval: Annotated[
        float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")
    ] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, show_default="until Ctrl-C", help="How many looks.")
    ] = None,
    lines: Annotated[int, typer.Option(min=1, help="How many entities are shown.")] = 20,
    output: Output = "table",
) -> None:
    """Show the fullest entities and how fast they fill or empty, again and again."""
    before: dict[str, int] = {}
    looked_at = time.monotonic()
    look = 0
    with _screen(output) as show:
        while True:
            found = sorted(depths(broker), key=lambda depth: (-depth.total, depth.path))
            now = time.monotonic()
            rates = {
                depth.path: (depth.total - before.get(depth.path, depth.total)) / (now - looked_at)
                for depth in found
            }
            show(found[:lines], rates)
            before = {depth.path: depth.total for depth in found}
            looked_at = now
            look += 1
            if look == count:
                break
            time.sleep(interval)


class _screen:  # noqa: N801 - used as a function
    """Where looks are shown: in place on a terminal, one after the other elsewhere."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._live: Any = None

    def __enter__(self) -> "_screen":
        if self._output == TABLE and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(screen=False, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def __call__(self, found: list[Depth], rates: dict[str, float]) -> None:
        if self._output != TABLE:
            entities = [
                {"kind": d.kind, "path": d.path, "counts": d.counts, "change": rates[d.path]}
                for d in found
            ]
            print_json({"entities": entities}, "jsonl" if self._output == "jsonl" else "json")
            sys.stdout.flush()
            return
        columns = ["entity", "kind", "status", *_COUNTS, "change/s"]
        rows = [
            [
                *(d.path, d.kind, d.status),
                *(str(count) for count in d.counts.values()),
                f"{rates[d.path]:+.1f}" if rates[d.path] else "",
            ]
            for d in found
        ]
        if self._live is None:
            print_table("Entities, the fullest first", columns, rows)
        else:
            table, _ = make_table("Entities, the fullest first; Ctrl-C ends", columns, rows)
            self._live.update(table, refresh=True)


def add_to(app: typer.Typer) -> None:
    """Give the main command these commands."""
    for command in (status, connections, top):
        app.command()(asks_broker(command))
