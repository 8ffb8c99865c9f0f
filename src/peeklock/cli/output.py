"""How commands speak: a table for people, JSON for programs, one red line for what went wrong."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

import typer

Output: TypeAlias = Annotated[
    Literal["table", "json"],
    typer.Option("--output", "-o", help="A table for people, or JSON for programs."),
]


def fail(text: str) -> NoReturn:
    """Say what went wrong and end with 1."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, style="red", markup=False, soft_wrap=True)
    sys.exit(1)


def print_json(document: Any) -> None:
    """Print a document."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a title; what is in them is text, whatever it looks like."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
