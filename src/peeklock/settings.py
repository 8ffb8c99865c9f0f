"""What was chosen at the start: read once, typed, passed down; only here from outside."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

EMBEDDED: Final = "embedded"
MEMORY: Final = "memory"

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
@dataclass(slots=True, init=False)
class Settings:
    """The choices of one broker; the command line has checked each of them."""

    data: Final[Path]
    config: Final[Path | None]
    host: Final[str]
    amqp_port: Final[int]
    http_port: Final[int]
    # Further ports for clients that cannot be told one; None where there is none.
    amqps_port: Final[int | None]
    https_port: Final[int | None]
    is_tls: Final[bool]
    # Somebody's own certificate, instead of one of the development authority.
    tls_certificate: Final[Path | None]
    tls_key: Final[Path | None]
    tls_names: Final[tuple[str, ...]]
    store: Final[str]
    stores: Final[int]
    journal_retention_ms: Final[int]
    journal_retention_bytes: Final[int]
    free_bytes_min: Final[int]
    # What backlogs may take in memory; 0: a share of what there is.
    memory_max: Final[int]
    entities_max: Final[int]
    partitioned_entities_max: Final[int]
    # Of each namespace.
    connections_max: Final[int]
    http_connections_max: Final[int]
    # Names by which clients may call a broker on loopback, and sites whose pages may use it, beside
    # those that are known.
    allowed_hosts: Final[tuple[str, ...]]
    allowed_origins: Final[tuple[str, ...]]
    # How long a client may leave unread what is written to it.
    write_timeout_ms: Final[int]
    # For benchmarks: what a slower disk would take for each commit, on top of what this one takes.
    commit_delay_ms: Final[int]
    allow_development_key: Final[bool]
    log_level: Final[str]

    def __init__(
        self,
        *,
        data: Path = Path("data"),
        config: Path | None = None,
        host: str = HOST,
        amqp_port: int = AMQP_PORT,
        http_port: int = HTTP_PORT,
        amqps_port: int | None = None,
        https_port: int | None = None,
        is_tls: bool = True,
        tls_certificate: Path | None = None,
        tls_key: Path | None = None,
        tls_names: tuple[str, ...] = (),
        store: str = EMBEDDED,
        stores: int = 1,
        journal_retention_ms: int = JOURNAL_RETENTION_MS,
        journal_retention_bytes: int = JOURNAL_RETENTION_BYTES,
        free_bytes_min: int = FREE_BYTES_MIN,
        memory_max: int = 0,
        entities_max: int = ENTITIES_MAX,
        partitioned_entities_max: int = PARTITIONED_ENTITIES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        http_connections_max: int = HTTP_CONNECTIONS_MAX,
        allowed_hosts: tuple[str, ...] = (),
        allowed_origins: tuple[str, ...] = (),
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        commit_delay_ms: int = 0,
        allow_development_key: bool = False,
        log_level: str = "info",
    ) -> None:
        self.data = data
        self.config = config
        self.host = host
        self.amqp_port = amqp_port
        self.http_port = http_port
        self.amqps_port = amqps_port
        self.https_port = https_port
        self.is_tls = is_tls
        self.tls_certificate = tls_certificate
        self.tls_key = tls_key
        self.tls_names = tls_names
        self.store = store
        self.stores = stores
        self.journal_retention_ms = journal_retention_ms
        self.journal_retention_bytes = journal_retention_bytes
        self.free_bytes_min = free_bytes_min
        self.memory_max = memory_max
        self.entities_max = entities_max
        self.partitioned_entities_max = partitioned_entities_max
        self.connections_max = connections_max
        self.http_connections_max = http_connections_max
        self.allowed_hosts = allowed_hosts
        self.allowed_origins = allowed_origins
        self.write_timeout_ms = write_timeout_ms
        self.commit_delay_ms = commit_delay_ms
        self.allow_development_key = allow_development_key
        self.log_level = log_level

    def is_loopback(self) -> bool:
        """Tell whether only this machine can reach the listeners; of names only localhost can."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
