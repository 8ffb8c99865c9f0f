"""`peeklock store`: the stores of a running broker, seen and switched; of a stopped one, examined
and repaired."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from peeklock.cli import options
from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.help import CommandGroup
from peeklock.cli.output import TABLE, Output, fail, print_json, print_table

app = CommandGroup("The stores of a running broker; of a stopped one, what is damaged in them.")

Name: TypeAlias = Annotated[str, typer.Argument(help="The name of a store, such as store-2.")]


@app.command("list")
@asks_broker
def list_stores(
    broker: BrokerAccess,
    *,
    output: Output = "table",
) -> None:
    """List the stores and tell which are online."""
    _ask(broker, output, "GET", "/$stores")


@app.command()
@asks_broker
def offline(
    broker: BrokerAccess,
    name: Name,
    *,
    output: Output = "table",
) -> None:
    """Take a store away: the broker closes its files, and the rest goes on without it."""
    path = f"/$stores/{quote(name, safe='')}/offline"
    _ask(broker, output, "POST", path)


@app.command()
@asks_broker
def online(
    broker: BrokerAccess,
    name: Name,
    *,
    make: Annotated[
        bool,
        typer.Option(
            "--make", help="Start with an empty store where its files are missing for good."
        ),
    ] = False,
    output: Output = "table",
) -> None:
    """Bring a store back."""
    path = f"/$stores/{quote(name, safe='')}/online"
    _ask(broker, output, "POST", f"{path}?make=true" if make else path)


@app.command()
def check(*, data: options.Data = Path("data"), output: Output = "table") -> None:
    """Tell what is damaged in the data of a stopped broker, and what that means.

    Nothing is changed. Ends with 3 where something is damaged.
    """
    from peeklock.cli import damage

    damage.check(data, output)


@app.command()
def repair(*, data: options.Data = Path("data"), output: Output = "table") -> None:
    """Make damaged data of a stopped broker fit for use, without what is lost.

    What is damaged is copied first. A list tells every number that may come again or be missing.
    """
    from peeklock.cli import damage

    damage.repair(data, output)


def _ask(broker: BrokerAccess, output: str, method: str, path: str) -> None:
    document = broker.ask(method, path)
    try:
        rows = [_row(store) for store in document["stores"]]
    except (KeyError, TypeError):
        fail("the broker's answer cannot be read: is it of another version?")
    if output != TABLE:
        print_json(document, output)
    else:
        print_table("Stores", ["name", "state", "reason"], rows)


def _row(store: dict[str, Any]) -> list[str]:
    return [str(store["name"]), str(store["state"]), str(store["text"])]
