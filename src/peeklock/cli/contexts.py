"""`peeklock context`: brokers under a name, so that nobody types a connection string twice.

They rest in `peeklock/contexts.json` below the user's directory of configurations, which only the
user may read, because keys are in it.
"""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, final

import typer

from peeklock.cli.connection import ConnectionProblem, parse_connection
from peeklock.cli.help import CommandGroup
from peeklock.cli.output import TABLE, Output, fail, print_json, print_table, say

app = CommandGroup("Brokers under a name, with which all commands reach them.")

_FIELDS: Final = ("connection_string", "http_port", "amqp_port", "tls", "ca")


@final
@dataclass(slots=True)
class Contexts:
    """All that is kept: the contexts by name, and the one in use."""

    current: str = ""
    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)

    def get(self, name: str) -> dict[str, Any]:
        """Return a context, or say which there are."""
        if name in self.by_name:
            return self.by_name[name]
        there = ", ".join(sorted(self.by_name)) or "there are none yet"
        raise ConnectionProblem(
            f"there is no context '{name}' ({there}); `peeklock context add {name} "
            "--connection-string TEXT` makes it"
        )


def contexts_file() -> Path:
    """Return where contexts rest."""
    return Path(typer.get_app_dir("peeklock")) / "contexts.json"


def read_contexts() -> Contexts:
    """Read what is kept; without the file there is nothing."""
    path = contexts_file()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError) as error:
        raise ConnectionProblem(
            f"the contexts in '{path}' cannot be read: {error}; mend that file or remove it"
        ) from error
    found = document.get("contexts") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ConnectionProblem(f"'{path}' has no contexts; mend that file or remove it")
    return Contexts(str(document.get("current") or ""), found)


def write_contexts(contexts: Contexts) -> None:
    """Keep them; a crash leaves the file as it was before."""
    path = contexts_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    document = {"current": contexts.current, "contexts": contexts.by_name}
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def context_names(incomplete: str = "") -> list[str]:
    """List the names that begin so, for the shell."""
    try:
        return sorted(name for name in read_contexts().by_name if name.startswith(incomplete))
    except ConnectionProblem:
        return []  # A shell that completes has no place for errors.


Name: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=context_names),
]


@app.command()
def add(
    name: Name,
    *,
    connection_string: Annotated[
        str, typer.Option(help="Host and key; - reads it from standard input.")
    ],
    http_port: Annotated[int | None, typer.Option(min=1, max=65535)] = None,
    amqp_port: Annotated[int | None, typer.Option(min=1, max=65535)] = None,
    tls: Annotated[bool | None, typer.Option("--tls/--no-tls", help="Whether to encrypt.")] = None,
    ca: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The authority to trust.")
    ] = None,
    output: Output = "table",
) -> None:
    """Keep a broker under a name; the first one is used from then on. A known name is replaced."""
    if connection_string == "-":
        connection_string = sys.stdin.readline().strip()
    try:
        parse_connection(connection_string)
        contexts = read_contexts()
    except ConnectionProblem as problem:
        fail(str(problem))
    given = (
        connection_string,
        http_port,
        amqp_port,
        tls,
        None if ca is None else str(ca.absolute()),
    )
    chosen = {key: value for key, value in zip(_FIELDS, given, strict=True) if value is not None}
    contexts.by_name[name] = chosen
    contexts.current = contexts.current or name
    write_contexts(contexts)
    use_it = "is used" if contexts.current == name else f"`peeklock context use {name}` uses it"
    say(output, {"added": name}, f"added '{name}' ({contexts_file()}); {use_it}")


@app.command("list")
def list_contexts(*, output: Output = "table") -> None:
    """List the contexts; keys are not shown."""
    try:
        contexts = read_contexts()
        shown = [_shown(name, contexts) for name in sorted(contexts.by_name)]
    except ConnectionProblem as problem:
        fail(str(problem))
    if output != TABLE:
        print_json({"contexts": shown}, output)
        return
    columns = ["", "name", "host", "rule"]
    rows = [["*" if one["current"] else "", one["name"], one["host"], one["rule"]] for one in shown]
    print_table("Contexts", columns, rows)


@app.command()
def use(name: Name, *, output: Output = "table") -> None:
    """Let commands reach this broker unless they are told otherwise."""
    try:
        contexts = read_contexts()
        contexts.get(name)
    except ConnectionProblem as problem:
        fail(str(problem))
    contexts.current = name
    write_contexts(contexts)
    say(output, {"current": name}, f"'{name}' is used")


@app.command()
def remove(name: Name, *, output: Output = "table") -> None:
    """Forget a broker; where it was the one in use, none is."""
    try:
        contexts = read_contexts()
        contexts.get(name)
    except ConnectionProblem as problem:
        fail(str(problem))
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = ""
    write_contexts(contexts)
    say(output, {"removed": name}, f"removed '{name}'")


def _shown(name: str, contexts: Contexts) -> dict[str, Any]:
    connection = parse_connection(str(contexts.by_name[name].get("connection_string", "")))
    port = f":{connection.port}" if connection.port else ""
    return {
        "name": name,
        "current": name == contexts.current,
        "host": f"{connection.host}{port}",
        "rule": connection.rule_name or "(a token)",
    }
