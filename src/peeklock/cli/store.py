"""`peeklock store`: the stores of a running broker, seen and switched."""

from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

import typer

from peeklock.cli.connection import (
    DEVELOPMENT,
    HTTP_PORT_DEFAULT,
    ConnectionOption,
    ConnectionProblem,
    HttpPortOption,
    parse_connection,
)
from peeklock.cli.output import Output, fail, print_json, print_table

app = typer.Typer(help="The stores of a running broker.", no_args_is_help=True)

Name: TypeAlias = Annotated[str, typer.Argument(help="The name of a store, such as store-2.")]


@app.command("list")
def list_stores(
    *,
    connection_string: ConnectionOption = DEVELOPMENT,
    http_port: HttpPortOption = HTTP_PORT_DEFAULT,
    output: Output = "table",
) -> None:
    """List the stores and tell which are online."""
    _ask(connection_string, http_port, output, "GET", "/$stores")


@app.command()
def offline(
    name: Name,
    *,
    connection_string: ConnectionOption = DEVELOPMENT,
    http_port: HttpPortOption = HTTP_PORT_DEFAULT,
    output: Output = "table",
) -> None:
    """Take a store away: the broker closes its files, and the rest goes on without it."""
    path = f"/$stores/{quote(name, safe='')}/offline"
    _ask(connection_string, http_port, output, "POST", path)


@app.command()
def online(
    name: Name,
    *,
    make: Annotated[
        bool,
        typer.Option(
            "--make", help="Start with an empty store where its files are missing for good."
        ),
    ] = False,
    connection_string: ConnectionOption = DEVELOPMENT,
    http_port: HttpPortOption = HTTP_PORT_DEFAULT,
    output: Output = "table",
) -> None:
    """Bring a store back."""
    path = f"/$stores/{quote(name, safe='')}/online"
    _ask(connection_string, http_port, output, "POST", f"{path}?make=true" if make else path)


def _ask(connection_string: str, http_port: int, output: str, method: str, path: str) -> None:
    try:
        document = parse_connection(connection_string).ask(http_port, method, path)
        rows = [_row(store) for store in document["stores"]]
    except ConnectionProblem as problem:
        fail(str(problem))
    except (KeyError, TypeError):
        fail("the broker's answer cannot be read: is it of another version?")
    if output == "json":
        print_json(document)
    else:
        print_table("Stores", ["name", "state", "reason"], rows)


def _row(store: dict[str, Any]) -> list[str]:
    return [str(store["name"]), str(store["state"]), str(store["text"])]
