"""`peeklock backup` and `restore`: what a serving broker has at one instant, and its way back."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from peeklock.cli.broker_access import BrokerAccess, asks_broker
from peeklock.cli.connection import ConnectionProblem
from peeklock.cli.output import Output, fail, progress, say

_LOOK_EVERY_S: Final = 0.1


def backup(
    broker: BrokerAccess,
    name: Annotated[
        str,
        typer.Argument(metavar="[NAME]", help="Its name.", show_default="the time, in UTC"),
    ] = "",
    *,
    output: Output = "table",
) -> None:
    """Have a serving broker write a backup, into its directory of backups; nobody waits for it."""
    name = name or datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%SZ")
    broker.ask("POST", f"/$backups/{name}", accepted=202)
    told: dict[str, Any] = {"state": "running"}
    with progress(f"backup '{name}', bytes") as advance:
        while told["state"] == "running":
            time.sleep(_LOOK_EVERY_S)
            told = broker.ask("GET", "/$backups")
            advance.done = int(told.get("bytes", 0))
    if told["state"] != "done" or told["name"] != name:
        raise ConnectionProblem(f"the backup failed: {told.get('error', told)}")
    text = (
        f"wrote '{told['path']}' as of {told['at']}: {told['bytes']:,} bytes of {told['stores']} "
        f"stores\n`peeklock restore {told['path']} --data DIR` makes a data directory of it"
    )
    say(output, told, text)


def restore(
    directory: Annotated[
        Path, typer.Argument(metavar="BACKUP", exists=True, file_okay=False, help="A backup.")
    ],
    *,
    data: Annotated[
        Path,
        typer.Option(
            file_okay=False, help="The data directory to be made; not there yet, or empty."
        ),
    ],
    output: Output = "table",
) -> None:
    """Make a data directory of a backup, after each of its files was found whole."""
    from peeklock.store.backups.backup import read_manifest, restore_backup, total_bytes
    from peeklock.store.store import StoreError

    try:
        size = total_bytes(read_manifest(directory))
        with progress(f"restoring '{directory}', bytes", size) as advance:
            manifest = restore_backup(directory, data, advance)
    except StoreError as error:
        fail(str(error))
    stores = len(manifest.stores)
    further = f" --stores {stores}" if stores > 1 else ""
    text = (
        f"restored '{data}' as of {manifest.at}; `peeklock serve --data {data}{further}` serves it"
    )
    say(output, {"data": str(data), "at": manifest.at, "stores": stores}, text)


def add_to(app: typer.Typer) -> None:
    """Give the main command these commands."""
    app.command()(asks_broker(backup))
    app.command()(restore)
