"""The options of `peeklock serve`: what each takes, which variable sets it, what it means."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import typer

from peeklock.node_description import VARIABLE
from peeklock.settings import STORES_MAX

# What a certificate can say: names with or without a star at their beginning, and addresses.
_TLS_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")


# Where a page is from, as browsers say it; some pages have no such place.
_ORIGIN: Final = re.compile(r"https?://[^/?#\s]+/?|null|\*", re.IGNORECASE)

_ENGINES: Final = ("embedded", "segments", "lmdb", "memory")


def _check_hosts(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        if name != "*" and _TLS_NAME.fullmatch(name) is None:
            raise typer.BadParameter(f"'{name}' is not a host name without a port")
    return names


def _check_origins(origins: list[str] | None) -> list[str] | None:
    for origin in origins or ():
        if _ORIGIN.fullmatch(origin) is None:
            raise typer.BadParameter(f"'{origin}' is no origin such as https://app.example:8443")
    return origins


def _check_stores(stores: list[str] | None) -> list[str] | None:
    for store in stores or ():
        is_database = is_address_of_database(store)
        if not is_database and store not in _ENGINES:
            raise typer.BadParameter(f"'{store}' is neither of {_ENGINES} nor postgres://...")
        if not is_database and len(stores or ()) > 1:
            raise typer.BadParameter(f"'{store}' stands alone: --stores counts those")
    if len(set(stores or ())) < len(stores or ()):
        raise typer.BadParameter("a database can be one store only")
    return stores


def is_address_of_database(store: str) -> bool:
    """Whether a store is a PostgreSQL database."""
    return store.startswith(("postgres://", "postgresql://"))


def _check_tls_names(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        if _TLS_NAME.fullmatch(name) is None:
            raise typer.BadParameter(f"'{name}' is neither a host name nor an address")
    return names


Data: TypeAlias = Annotated[
    Path,
    typer.Option(
        envvar="PEEKLOCK_DATA",
        file_okay=False,
        help="Directory that keeps the messages; made when it is missing.",
    ),
]
Backups: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="PEEKLOCK_BACKUPS",
        file_okay=False,
        help="Directory that backups are written to.",
        show_default="backups, below --data",
    ),
]
Config: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="PEEKLOCK_CONFIG",
        exists=True,
        dir_okay=False,
        help="The emulator's Config.json: namespaces, their entities to create or update, their "
        "authorization rules.",
    ),
]
Host: TypeAlias = Annotated[str, typer.Option(envvar="PEEKLOCK_HOST", help="Address to listen on.")]
AmqpPort: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_AMQP_PORT", min=0, max=65535, help="Port for AMQP; 0 takes a free one."
    ),
]
HttpPort: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_HTTP_PORT", min=0, max=65535, help="Port for HTTP; 0 takes a free one."
    ),
]
AmqpsPort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        envvar="PEEKLOCK_AMQPS_PORT",
        min=0,
        max=65535,
        show_default="none",
        help="Further port, for clients that insist on 5671.",
    ),
]
HttpsPort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        envvar="PEEKLOCK_HTTPS_PORT",
        min=0,
        max=65535,
        show_default="none",
        help="Further port, for clients that insist on 443.",
    ),
]
Tls: TypeAlias = Annotated[
    Literal["on", "off"],
    typer.Option(envvar="PEEKLOCK_TLS", help="Whether every port takes TLS too."),
]
TlsCertificate: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="PEEKLOCK_TLS_CERTIFICATE",
        exists=True,
        dir_okay=False,
        help="Your own certificate (PEM), instead of one that the development authority signs.",
    ),
]
TlsKey: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="PEEKLOCK_TLS_KEY",
        exists=True,
        dir_okay=False,
        help="The key of your own certificate (PEM, without a password).",
    ),
]
TlsName: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        envvar="PEEKLOCK_TLS_NAME",
        callback=_check_tls_names,
        show_default="none",
        help="Another name or address for the development certificate; may be repeated.",
    ),
]
Store: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        envvar="PEEKLOCK_STORE",
        callback=_check_stores,
        show_default="embedded",
        metavar="embedded|segments|lmdb|memory|postgres://...",
        help="Where messages rest: on disk (embedded: segments, or LMDB where that is there), in a "
        "PostgreSQL database each, repeated for several, or in memory for tests.",
    ),
]
Stores: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_STORES",
        min=1,
        max=STORES_MAX,
        help="How many stores keep the messages, each in a directory of its own.",
    ),
]
Nodes: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_NODES",
        min=1,
        max=STORES_MAX,
        help="How many processes serve together, on one port; each has its own stores.",
    ),
]
# What the parent of several nodes tells each of them; nobody else does.
Description: TypeAlias = Annotated[str | None, typer.Option(envvar=VARIABLE, hidden=True)]
JournalRetentionMs: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_JOURNAL_RETENTION_MS",
        min=0,
        help="How long facts stay readable in the journal.",
    ),
]
JournalRetentionBytes: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_JOURNAL_RETENTION_BYTES",
        min=0,
        help="How much of the journal is kept, per store.",
    ),
]
FreeBytesMin: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_FREE_BYTES_MIN",
        min=0,
        help="Free space on disk below which sends are refused; settling goes on.",
    ),
]
MemoryMax: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_MEMORY_MAX",
        min=0,
        help="Bytes of memory that waiting messages may take, beside their bodies; beyond it sends "
        "are refused, and receiving and settling go on. 0: 40 % of what the machine or its cgroup "
        "has.",
    ),
]
EntitiesMax: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_ENTITIES_MAX", min=1, help="How many entities a namespace may have."
    ),
]
PartitionedEntitiesMax: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_PARTITIONED_ENTITIES_MAX",
        min=0,
        help="How many of them may be partitioned.",
    ),
]
ConnectionsMax: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_CONNECTIONS_MAX",
        min=1,
        help="How many AMQP connections a namespace may have.",
    ),
]
HttpConnectionsMax: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_HTTP_CONNECTIONS_MAX",
        min=1,
        help="How many HTTP connections there may be.",
    ),
]
AllowedHost: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        envvar="PEEKLOCK_ALLOWED_HOST",
        callback=_check_hosts,
        show_default="none",
        help="Another name by which HTTP clients may call a broker on loopback; may be repeated.",
    ),
]
AllowedOrigin: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        envvar="PEEKLOCK_ALLOWED_ORIGIN",
        callback=_check_origins,
        show_default="none",
        help="Another site whose web pages may use the broker; may be repeated.",
    ),
]
WriteTimeoutMs: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_WRITE_TIMEOUT_MS",
        min=1,
        help="How long a client may read nothing of what is written to it.",
    ),
]
CommitDelayMs: TypeAlias = Annotated[
    int,
    typer.Option(
        envvar="PEEKLOCK_COMMIT_DELAY_MS",
        min=0,
        help="For benchmarks: let each commit take so much longer, as on a slower disk.",
    ),
]
AllowDevelopmentKey: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-development-key",
        envvar="PEEKLOCK_ALLOW_DEVELOPMENT_KEY",
        help="Serve the well-known development key on an address that others can reach.",
    ),
]
Testing: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--testing",
        envvar="PEEKLOCK_TESTING",
        help="For tests: keep everything in memory, and let whoever reaches the HTTP port move "
        "the clock, let things fail and make namespaces.",
    ),
]
LogLevel: TypeAlias = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(envvar="PEEKLOCK_LOG_LEVEL", help="The least that is logged."),
]
