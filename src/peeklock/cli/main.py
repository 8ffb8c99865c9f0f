"""The command `peeklock`: its options, and which of them come from the environment."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from peeklock import settings as defaults
from peeklock.settings import Settings

# Each command imports its room when it is called: `--version` and `--help` wait for no broker.
app = typer.Typer(
    help="A durable message broker that the official Service Bus clients use unmodified.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line and leave with its exit code."""
    app(prog_name="peeklock")


def _print_version(*, wanted: bool) -> None:
    if wanted:
        from peeklock.version import describe

        typer.echo(describe())
        raise typer.Exit


@app.callback()
def peeklock(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda wanted: _print_version(wanted=wanted),
            is_eager=True,
            help="Print the version, and whether the hot modules are compiled.",
        ),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


@app.command()
def serve(
    *,
    data: Annotated[
        Path,
        typer.Option(
            envvar="PEEKLOCK_DATA",
            file_okay=False,
            help="Directory that keeps the messages; made when it is missing.",
        ),
    ] = Path("data"),
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="PEEKLOCK_CONFIG",
            exists=True,
            dir_okay=False,
            help="The emulator's Config.json: queues to create or update, authorization rules.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(envvar="PEEKLOCK_HOST", help="Address to listen on.")
    ] = defaults.HOST,
    amqp_port: Annotated[
        int,
        typer.Option(
            envvar="PEEKLOCK_AMQP_PORT", min=0, max=65535, help="Port for AMQP; 0 takes a free one."
        ),
    ] = defaults.AMQP_PORT,
    http_port: Annotated[
        int,
        typer.Option(
            envvar="PEEKLOCK_HTTP_PORT", min=0, max=65535, help="Port for HTTP; 0 takes a free one."
        ),
    ] = defaults.HTTP_PORT,
    store: Annotated[
        Literal["embedded", "memory"],
        typer.Option(
            envvar="PEEKLOCK_STORE", help="Where messages rest: on disk, or in memory for tests."
        ),
    ] = "embedded",
    journal_retention_ms: Annotated[
        int,
        typer.Option(
            envvar="PEEKLOCK_JOURNAL_RETENTION_MS", min=0, help="How long the journal is kept."
        ),
    ] = defaults.JOURNAL_RETENTION_MS,
    journal_retention_bytes: Annotated[
        int,
        typer.Option(
            envvar="PEEKLOCK_JOURNAL_RETENTION_BYTES",
            min=0,
            help="How much of the journal is kept, per store.",
        ),
    ] = defaults.JOURNAL_RETENTION_BYTES,
    free_bytes_min: Annotated[
        int,
        typer.Option(
            envvar="PEEKLOCK_FREE_BYTES_MIN",
            min=0,
            help="Free space on disk below which sends are refused; settling goes on.",
        ),
    ] = defaults.FREE_BYTES_MIN,
    allow_development_key: Annotated[
        bool,
        typer.Option(
            "--allow-development-key",
            envvar="PEEKLOCK_ALLOW_DEVELOPMENT_KEY",
            help="Serve the well-known development key on an address that others can reach.",
        ),
    ] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(envvar="PEEKLOCK_LOG_LEVEL", help="The least that is logged."),
    ] = "info",
) -> None:
    """Serve until SIGTERM or Ctrl-C; then links are closed, everything is flushed."""
    settings = Settings(
        data=data,
        config=config,
        host=host,
        amqp_port=amqp_port,
        http_port=http_port,
        store=store,
        journal_retention_ms=journal_retention_ms,
        journal_retention_bytes=journal_retention_bytes,
        free_bytes_min=free_bytes_min,
        allow_development_key=allow_development_key,
        log_level=log_level,
    )
    _serve(settings)


def _serve(settings: Settings) -> None:
    from peeklock import server
    from peeklock.configuration.content import ConfigurationError

    try:
        server.serve(settings)
    except ConfigurationError as error:
        _fail(str(error))
    except OSError as error:
        # A port that is taken, a directory that may not be written: said in one line, no traceback.
        _fail(f"cannot serve: {error}")


def _fail(text: str) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False).print(text, style="red", markup=False, soft_wrap=True)
    sys.exit(1)
