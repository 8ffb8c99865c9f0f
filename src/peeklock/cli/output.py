"""How commands speak: a table for people, JSON for programs, one red line for what went wrong."""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, TypeAlias

import typer

from peeklock.durations import LONGEST_DURATION_MS, parse_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Output: TypeAlias = Annotated[
    Literal["table", "json", "jsonl"],
    typer.Option(
        "--output", "-o", help="A table for people; JSON, or JSON in lines, for programs."
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]

TABLE: Final = "table"
_LINES: Final = "jsonl"
# A column of texts is never made narrower than this; all others are as wide as what is in them.
_TEXT_WIDTH_MIN: Final = 16
# Columns whose texts may be broken or cut; ids, numbers and instants are what people copy.
_TEXTS: Final = frozenset(
    {"body", "description", "reason", "filter", "action", "value", "properties", "what", "advice"}
)
_NUMBERS: Final = frozenset(
    {"number", "deliveries", "active", "scheduled", "dead letters", "bytes", "subscriptions"}
)
_PROGRESS_AFTER_S: Final = 1.0


def fail(text: str) -> NoReturn:
    """Say what went wrong and end with 1."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, style="red", markup=False, soft_wrap=True)
    sys.exit(1)


def print_json(document: Any, output: str = "json") -> None:
    """Print a document; in lines, each entry of its only list is one."""
    if output != _LINES:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    lists = [value for value in document.values() if isinstance(value, list)]
    for line in lists[0] if len(lists) == len(document) == 1 else [document]:
        typer.echo(json.dumps(line, ensure_ascii=False))


def say(output: str, document: dict[str, Any], text: str) -> None:
    """Say what was done, for people or for programs."""
    if output == TABLE:
        typer.echo(text)
    else:
        print_json(document, output)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a title; what is in them is text, whatever it looks like."""
    from rich.console import Console

    console = Console(highlight=False)
    table, width = make_table(title, columns, list(rows))
    if not console.is_terminal and not shutil.get_terminal_size((0, 0)).columns:
        console = _wide(1 << 15)  # Nothing is broken or cut where a program reads it.
    elif width > console.width:
        console = _wide(width)
    console.print(table)


def _wide(width: int) -> "Console":
    from rich.console import Console

    return Console(highlight=False, width=width, soft_wrap=True)


def make_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple["Table", int]:
    """Make a table, and tell how wide it must be for nothing but texts to be broken."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    width = 0
    for index, column in enumerate(columns):
        is_text = column in _TEXTS
        widest = max([len(column), *(len(row[index]) for row in rows)])
        width += min(widest, _TEXT_WIDTH_MIN) if is_text else widest
        table.add_column(
            column,
            overflow="fold",
            no_wrap=not is_text,
            justify="right" if column in _NUMBERS else "left",
        )
    for row in rows:
        cells = [
            Text(cell, style=_style(column, cell))
            for column, cell in zip(columns, row, strict=True)
        ]
        table.add_row(*cells)
    return table, width + 3 * len(columns)


def _style(column: str, cell: str) -> str:
    """Give a colour to what wants to be seen; whether there are any is for Rich to know."""
    if column in _NUMBERS:
        return "dim" if cell == "0" else "bold red" if column == "dead letters" else ""
    if column in ("status", "state", "availability", "found"):
        good = ("active", "available", "online", "good", "ok")
        return "green" if cell.lower() in good else "yellow"
    return ""


def text_of(value: Any) -> str:
    """Write a property for people: yes and no, and never for the longest duration."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and value.startswith("P") and value[1:2].isdigit():
        try:
            return "never" if parse_duration(value) >= LONGEST_DURATION_MS else value
        except ValueError:
            return value
    return "" if value is None else str(value)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something goes for good; where nobody can be asked, --yes must be said."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Nobody can be asked here: --yes does it, --dry-run tells what it would.")
    if not typer.confirm(question, default=False, err=True):
        fail("nothing was done")


class Advance:
    """Is told how far something has come."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self, count: int = 1) -> None:
        """Count what is done."""
        self.done += count


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Advance]:
    """Show how far a command is, on a terminal, once it takes longer than a second."""
    advance = Advance()
    if not sys.stderr.isatty():
        yield advance
        return
    import threading

    is_over = threading.Event()
    thread = threading.Thread(target=_show, args=(text, total, advance, is_over), daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        is_over.set()
        thread.join()


def _show(text: str, total: int | None, advance: Advance, is_over: Any) -> None:
    if is_over.wait(_PROGRESS_AFTER_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        while not is_over.wait(0.1):
            bar.update(task, completed=advance.done)
