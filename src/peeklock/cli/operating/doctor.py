"""`peeklock doctor`: what may be wrong with this installation, this broker and its entities."""

import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import typer

from peeklock.cli.broker_access import BrokerAccess, advised, asks_broker
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.operating.overview import asked, depths
from peeklock.cli.output import TABLE, Output, print_json, print_table
from peeklock.client.exceptions import ServiceBusError
from peeklock.version import VERSION, is_compiled

GOOD: Final = "good"
LOOK: Final = "look"
BAD: Final = "bad"

_FREE_BYTES_LOW: Final = 1 << 30
_CONNECT_S: Final = 5.0
# As programs that check something end which found it.
_FOUND_SOMETHING: Final = 3


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, how it is, and what to do about it."""

    what: str
    found: str
    text: str
    advice: str = ""


def doctor(broker: BrokerAccess, *, output: Output = "table") -> None:
    """Look for what may be wrong, and say what to do about it; ends with 3 where something is."""
    findings = list(_findings(broker))
    if output != TABLE:
        told = [
            {"what": f.what, "found": f.found, "text": f.text, "advice": f.advice} for f in findings
        ]
        print_json({"findings": told}, output)
    else:
        rows = [[f.what, f.found, f.text, f.advice] for f in findings]
        print_table("Doctor", ["", "found", "description", "advice"], rows)
    if any(finding.found == BAD for finding in findings):
        raise typer.Exit(_FOUND_SOMETHING)


def _findings(broker: BrokerAccess) -> Iterator[Finding]:
    yield from _of_this_machine()
    ports = {"AMQP": broker.amqp_port, "HTTP": broker.http_port}
    closed = [name for name, port in ports.items() if not _answers(broker.connection.address, port)]
    for name in closed:
        where = f"{broker.connection.host}:{ports[name]}"
        option = f"--{name.lower()}-port"
        advice = f"start it (`peeklock serve`), or say where it is ({option}, --context)"
        yield Finding(f"{name} port", BAD, f"nobody listens on {where}", advice)
    if closed:
        return
    yield Finding("ports", GOOD, f"AMQP {ports['AMQP']} and HTTP {ports['HTTP']} answer")
    try:
        broker.administration().namespace()
    except (ServiceBusError, ConnectionProblem) as error:
        text = advised(error) if isinstance(error, ServiceBusError) else str(error)
        yield Finding("key", BAD, text, "use a key with the right Manage")
        return
    yield Finding("key", GOOD, f"'{broker.connection.rule_name}' may manage the namespace")
    yield from _of_the_broker(broker)
    yield from _of_entities(broker)


def _of_this_machine() -> Iterator[Finding]:
    form = "compiled" if is_compiled() else "plain Python"
    text = f"{VERSION}, {form}, Python {sys.version.split()[0]}"
    advice = "" if is_compiled() else "a C compiler and `make compile` make it several times faster"
    yield Finding("this program", GOOD if is_compiled() else LOOK, text, advice)
    free = shutil.disk_usage(".").free
    is_low = free < _FREE_BYTES_LOW
    advice = "below --free-bytes-min a broker here refuses sends" if is_low else ""
    yield Finding("disk here", LOOK if is_low else GOOD, f"{free / (1 << 30):.1f} GiB free", advice)


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_S):
            return True
    except OSError:
        return False


def _of_the_broker(broker: BrokerAccess) -> Iterator[Finding]:
    ready = asked(broker, "/ready")
    if ready is not None:
        yield Finding("ready", GOOD, _text(ready))
    stores = asked(broker, "/$stores")
    for store in [] if stores is None else stores["stores"]:
        if store["state"] == "online":
            yield Finding(store["name"], GOOD, "online")
        else:
            advice = (
                f"`peeklock store online {store['name']}` brings it back; on a stopped broker "
                "`peeklock store check` tells what is damaged"
            )
            yield Finding(store["name"], BAD, store["text"] or "offline", advice)


def _text(document: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in document.items())


def _of_entities(broker: BrokerAccess) -> Iterator[Finding]:
    is_well = True
    for depth in depths(broker):
        dead = depth.counts["dead letters"]
        if dead:
            is_well = False
            advice = f"`peeklock dead-letter list {depth.path}` tells why"
            yield Finding(depth.path, LOOK, f"{dead:,} dead letters", advice)
        if depth.status not in ("Active", ""):
            is_well = False
            words = " ".join(depth.path.split("/Subscriptions/"))
            advice = f"`peeklock {depth.kind} update {words} --status Active` lets it work again"
            yield Finding(depth.path, LOOK, f"is {depth.status}", advice)
        if depth.counts["transfer"]:
            is_well = False
            count = depth.counts["transfer"]
            advice = "the destination is full, disabled or missing"
            yield Finding(depth.path, LOOK, f"{count:,} messages wait to be forwarded", advice)
    if is_well:
        yield Finding("entities", GOOD, "none is disabled or has dead letters")


def add_to(app: typer.Typer) -> None:
    """Give the main command this command."""
    app.command()(asks_broker(doctor))
