"""Help is whole at the width of any terminal, and shells can complete it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from peeklock.cli.main import app

WIDTH = "72"
CUT_OFF = re.compile(r"\w\.\.\.|\u2026")
# Jobs of the pipeline have help of their own.
ELSEWHERE = ("pipeline",)


def commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """All commands, by the words that are typed."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        if name not in ELSEWHERE:
            yield from commands(command, *path, name)


ALL = list(commands(typer.main.get_command(app)))


def test_there_are_many() -> None:
    assert len(ALL) > 40


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_no_help_is_cut_off(path: tuple[str, ...]) -> None:
    width = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH}
    done = CliRunner().invoke(app, [*path, "--help"], env=width)
    assert done.exit_code == 0, done.output
    # Arguments that can be repeated have dots behind their names.
    said = done.output.replace("[ARGS]...", "").replace("ENTITY...", "")
    assert CUT_OFF.findall(said) == []


def test_shells_complete_commands() -> None:
    typed = {"COMP_WORDS": "peeklock cont", "COMP_CWORD": "1"}
    asked = {"_PEEKLOCK_COMPLETE": "complete_bash", **typed}
    done = CliRunner().invoke(app, [], env=asked, prog_name="peeklock")
    assert done.output.split() == ["context"]
