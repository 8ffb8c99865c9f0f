"""The command `peeklock`; each command imports its package when called, so that help is quick."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from peeklock import settings as chosen
from peeklock.cli import (
    certificate,
    contexts,
    messages,
    options,
    pipeline,
    reload,
    store,
)
from peeklock.cli.entities import entity, import_export, rule_commands
from peeklock.cli.help import CommandGroup
from peeklock.cli.operating import backup, dead_letters, doctor, overview, sessions, story
from peeklock.cli.output import fail
from peeklock.node_description import NodeDescription
from peeklock.settings import Settings

# As a shell tells of a program that a closed pipe has ended.
_SIGPIPE: Final = 141

app = CommandGroup("A durable message broker that the official Service Bus clients use unmodified.")
app.add_typer(contexts.app, name="context")
app.add_typer(entity.queue_app, name="queue")
app.add_typer(entity.topic_app, name="topic")
app.add_typer(entity.subscription_app, name="subscription")
app.add_typer(rule_commands.app, name="rule")
app.add_typer(dead_letters.app, name="dead-letter")
app.add_typer(store.app, name="store")
app.add_typer(pipeline.app, name="pipeline")
app.command("certificate")(certificate.show)
app.command("reload")(reload.reload)
messages.add_to(app)
overview.add_to(app)
sessions.add_to(app)
story.add_to(app)
doctor.add_to(app)
backup.add_to(app)
import_export.add_to(app)


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        app(prog_name="peeklock")
    except BrokenPipeError:
        # Whoever read it has seen enough, as in `peeklock peek orders | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_SIGPIPE)


def _print_version(value: bool) -> None:
    if value:
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
            callback=_print_version,
            is_eager=True,
            help="Print the version, and whether the hot modules are compiled.",
        ),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


@app.command()
def serve(
    *,
    data: options.Data = Path("data"),
    config: options.Config = None,
    backups: options.Backups = None,
    host: options.Host = chosen.HOST,
    amqp_port: options.AmqpPort = chosen.AMQP_PORT,
    http_port: options.HttpPort = chosen.HTTP_PORT,
    amqps_port: options.AmqpsPort = None,
    https_port: options.HttpsPort = None,
    tls: options.Tls = "on",
    tls_certificate: options.TlsCertificate = None,
    tls_key: options.TlsKey = None,
    tls_name: options.TlsName = None,
    store: options.Store = None,
    stores: options.Stores = 1,
    nodes: options.Nodes = 1,
    node_description: options.Description = None,
    journal_retention_ms: options.JournalRetentionMs = chosen.JOURNAL_RETENTION_MS,
    journal_retention_bytes: options.JournalRetentionBytes = chosen.JOURNAL_RETENTION_BYTES,
    free_bytes_min: options.FreeBytesMin = chosen.FREE_BYTES_MIN,
    memory_max: options.MemoryMax = 0,
    entities_max: options.EntitiesMax = chosen.ENTITIES_MAX,
    partitioned_entities_max: options.PartitionedEntitiesMax = chosen.PARTITIONED_ENTITIES_MAX,
    connections_max: options.ConnectionsMax = chosen.CONNECTIONS_MAX,
    http_connections_max: options.HttpConnectionsMax = chosen.HTTP_CONNECTIONS_MAX,
    allowed_host: options.AllowedHost = None,
    allowed_origin: options.AllowedOrigin = None,
    write_timeout_ms: options.WriteTimeoutMs = chosen.WRITE_TIMEOUT_MS,
    commit_delay_ms: options.CommitDelayMs = 0,
    allow_development_key: options.AllowDevelopmentKey = False,
    testing: options.Testing = False,
    log_level: options.LogLevel = "info",
) -> None:
    """Serve until SIGTERM or Ctrl-C; then links are closed and everything is flushed."""
    if (tls_certificate is None) is not (tls_key is None):
        raise typer.BadParameter("--tls-certificate and --tls-key are given together or not at all")
    databases = tuple(each for each in store or () if options.is_address_of_database(each))
    if databases and stores > 1:
        raise typer.BadParameter("--stores counts embedded stores; repeat --store for databases")
    if testing and nodes > 1:
        raise typer.BadParameter("--testing moves the clock of one process; leave out --nodes")
    # Told by the parent to each of its nodes, and by nobody else.
    node = None if node_description is None else NodeDescription.read(node_description)
    settings = Settings(
        data=data,
        # In full: who is told of it by a reload stands in another directory.
        config=None if config is None else config.absolute(),
        backups=backups,
        host=host,
        amqp_port=amqp_port,
        http_port=http_port,
        amqps_port=amqps_port,
        https_port=https_port,
        is_tls=tls == "on",
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_names=tuple(tls_name or ()),
        store=chosen.POSTGRES if databases else (store or [chosen.EMBEDDED])[0],
        stores=(len(databases) or stores) if node is None else node.stores,
        databases=databases,
        nodes=nodes,
        node=node,
        journal_retention_ms=journal_retention_ms,
        journal_retention_bytes=journal_retention_bytes,
        free_bytes_min=free_bytes_min,
        memory_max=memory_max,
        entities_max=entities_max,
        partitioned_entities_max=partitioned_entities_max,
        connections_max=connections_max,
        http_connections_max=http_connections_max,
        allowed_hosts=tuple(allowed_host or ()),
        allowed_origins=tuple(allowed_origin or ()),
        write_timeout_ms=write_timeout_ms,
        commit_delay_ms=commit_delay_ms,
        allow_development_key=allow_development_key,
        is_testing=testing,
        log_level=log_level,
    )
    _serve(settings)


def _serve(settings: Settings) -> None:
    from peeklock import server
    from peeklock.configuration.content import ConfigurationError
    from peeklock.store.store import StoreError

    try:
        if settings.nodes > 1 and settings.node is None:
            from peeklock.supervisor import supervise

            supervise(settings)
        else:
            server.serve(settings, at_end=server.end_process)
    except ConfigurationError as error:
        fail(str(error))
    except (OSError, StoreError) as error:
        # A port that is taken, a directory that is in use or damaged: one line, no traceback.
        fail(f"cannot serve: {error}")
