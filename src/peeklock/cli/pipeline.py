"""`peeklock pipeline`: the jobs on Spark, each with the options of its own program."""

import importlib
from typing import Final

import typer

from peeklock.cli.help import CommandGroup

# Spelled here as well, because help must not wait for Spark; a test compares.
JOBS: Final = {
    "capture": "Archive a queue, subscription or journal into Parquet or Delta.",
    "triage": "Group the dead letters of all entities by what went wrong.",
    "replay": "Send dead letters or archived messages again.",
    "rollup": "Rates, latencies, lock losses and backlog by minute and hour.",
    "skew": "How evenly partitions and sessions are loaded, and what if.",
    "tune": "Advice for clients and entities, with the arithmetic.",
    "audit": "Sent against received against settled: lost, duplicated, out of order.",
    "report": "One page of the tables that the other jobs wrote.",
}
# What jobs are made of, and what brings it.
_NEEDED: Final = ("pyspark", "pyarrow", "deltalake", "jinja2", "matplotlib")
_INSTALL: Final = "pip install '.[pipeline]' in a clone of Peeklock brings it"
# 1 is what a job ends with that found something.
_IMPOSSIBLE: Final = 2

app = CommandGroup("Jobs on Spark: archive, repair, measure, check.")


def _add(name: str, text: str) -> None:
    # Everything after the name belongs to the job, even --help.
    @app.command(
        name,
        help=text,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def command(context: typer.Context) -> None:
        _run(name, context.args)


def _run(name: str, arguments: list[str]) -> None:
    try:
        module = importlib.import_module(f"peeklock.spark.jobs.{name}")
        module.main(arguments, f"peeklock pipeline {name}")
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        text = f"the pipeline needs {package}, which is not installed: {_INSTALL}"
        typer.secho(text, err=True, fg="red")
        raise typer.Exit(_IMPOSSIBLE) from None


for _name, _text in JOBS.items():
    _add(_name, _text)
