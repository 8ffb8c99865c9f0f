"""What was chosen at the start: read once, typed, passed down; only here from outside."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from peeklock.node_description import NodeDescription

EMBEDDED: Final = "embedded"
MEMORY: Final = "memory"
POSTGRES: Final = "postgres"

HOST: Final = "127.0.0.1"
# The emulator's ports, which every client with UseDevelopmentEmulator=true expects.
AMQP_PORT: Final = 5672
HTTP_PORT: Final = 5300

JOURNAL_RETENTION_MS: Final = 3_600_000
JOURNAL_RETENTION_BYTES: Final = 1 << 30
# Room for the settlements, checkpoints and trims that go on after sends are refused.
FREE_BYTES_MIN: Final = 256 << 20

STORES_MAX: Final = 64
# What a namespace of the service holds.
ENTITIES_MAX: Final = 10_000
PARTITIONED_ENTITIES_MAX: Final = 100
CONNECTIONS_MAX: Final = 5_000
HTTP_CONNECTIONS_MAX: Final = 1_000
# Python's blocking client reads only while somebody asks it for messages: an honest one may leave
# bytes unread for as long as a message is worked on.
WRITE_TIMEOUT_MS: Final = 120_000


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The choices of one broker; the command line has checked each of them."""

    data: Path = Path("data")
    config: Path | None = None
    # Where backups are written; None: beside the messages.
    backups: Path | None = None
    host: str = HOST
    amqp_port: int = AMQP_PORT
    http_port: int = HTTP_PORT
    # Further ports for clients that cannot be told one; None where there is none.
    amqps_port: int | None = None
    https_port: int | None = None
    is_tls: bool = True
    # Somebody's own certificate, instead of one of the development authority.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_names: tuple[str, ...] = ()
    store: str = EMBEDDED
    stores: int = 1
    # The databases that are the stores, in their order; the first one has the catalog.
    databases: tuple[str, ...] = ()
    # How many processes serve together.
    nodes: int = 1
    # What a process was told that is one of them.
    node: NodeDescription | None = None
    journal_retention_ms: int = JOURNAL_RETENTION_MS
    journal_retention_bytes: int = JOURNAL_RETENTION_BYTES
    free_bytes_min: int = FREE_BYTES_MIN
    # What backlogs may take in memory; 0: a share of what there is.
    memory_max: int = 0
    entities_max: int = ENTITIES_MAX
    partitioned_entities_max: int = PARTITIONED_ENTITIES_MAX
    # Of each namespace.
    connections_max: int = CONNECTIONS_MAX
    http_connections_max: int = HTTP_CONNECTIONS_MAX
    # Names by which clients may call a broker on loopback, and sites whose pages may use it, beside
    # those that are known.
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    # How long a client may leave unread what is written to it.
    write_timeout_ms: int = WRITE_TIMEOUT_MS
    # For benchmarks: what a slower disk would take for each commit, on top of what this one takes.
    commit_delay_ms: int = 0
    allow_development_key: bool = False
    # Everything rests in memory, and whoever reaches the HTTP port can move the clock and break
    # things: for tests.
    is_testing: bool = False
    log_level: str = "info"

    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the listeners; of names only localhost can."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
