"""Everything that a client was told: where the broker is, how to get there, who the client is."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict, Unpack, final
from urllib.parse import urlsplit

from peeklock.amqp.dialect import WEBSOCKET_PATH
from peeklock.client.connections.connection_string import (
    ConnectionString,
    address_of,
    parse_connection_string,
)
from peeklock.client.connections.endpoints import amqp_port, http_port, trusting
from peeklock.client.connections.proxy import HttpProxy
from peeklock.client.connections.retrying import RetryPolicy
from peeklock.client.credentials import (
    AnyCredential,
    Credential,
    SasKey,
    SasToken,
    credential_of,
)

# What is announced to the broker: it must say something within this time.
IDLE_TIMEOUT_S: Final = 60.0
CA_OPTION: Final = "connection_verify"


class ConnectionOptions(TypedDict, total=False):
    """How a broker is reached."""

    is_websocket: bool
    # Where to connect to instead: `host`, `host:port` or a URL.
    custom_endpoint: str | None
    # An HTTP proxy to go by.
    proxy: HttpProxy | None
    # The authority to trust, or a context that knows.
    ca_file: str | Path | None
    ssl_context: ssl.SSLContext | None
    # What the user calls the option that names the authority, for texts.
    ca_option: str
    retry: RetryPolicy | None
    idle_timeout_s: float
    # The broker must read what it is sent within this time.
    socket_timeout_s: float | None
    # What stands before our own name in the connection's properties.
    user_agent: str
    # Whether frames are written to the log.
    is_traced: bool
    # Whether all links to entities are on one AMQP session, for transactions over several of them.
    is_one_session: bool


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ClientConfig:
    """Where, how and who; made by `from_connection_string` or `for_namespace`."""

    # The namespace as the broker knows it, and what is really connected to.
    host: str
    address: str
    port: int
    credential: Credential
    # None sends everything in clear.
    ssl_context: ssl.SSLContext | None = None
    ca_option: str = CA_OPTION
    is_websocket: bool = False
    websocket_path: str = WEBSOCKET_PATH
    proxy: HttpProxy | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    idle_timeout_s: float = IDLE_TIMEOUT_S
    socket_timeout_s: float | None = None
    user_agent: str = ""
    is_traced: bool = False
    is_one_session: bool = False
    # The entity that the connection string is for, empty where it names none.
    entity_path: str = ""

    def __post_init__(self) -> None:
        if self.socket_timeout_s is not None and self.socket_timeout_s <= 0:
            raise ValueError("socket_timeout must be greater than 0")

    @staticmethod
    def from_connection_string(text: str, **options: Unpack[ConnectionOptions]) -> "ClientConfig":
        """Read a connection string; ValueError says what is wrong with it.

        With UseDevelopmentEmulator=true nothing is encrypted, unless an authority is named here.
        """
        read = parse_connection_string(text)
        is_trusting = options.get("ca_file") is not None or options.get("ssl_context") is not None
        return ClientConfig.of_connection(
            read, is_plain=read.is_plain and not is_trusting, **options
        )

    @staticmethod
    def of_connection(
        read: ConnectionString,
        *,
        is_plain: bool,
        port: int | None = None,
        **options: Unpack[ConnectionOptions],
    ) -> "ClientConfig":
        """Take a connection string that was read, and another port than its own if one is given."""
        return _config(
            read.host,
            port or read.port,
            SasToken(read.token) if read.token else SasKey(read.rule_name, read.key),
            is_local=read.is_plain,
            is_plain=is_plain,
            entity_path=read.entity_path,
            options=options,
        )

    @staticmethod
    def for_namespace(
        fully_qualified_namespace: str,
        credential: AnyCredential,
        *,
        is_plain: bool = False,
        **options: Unpack[ConnectionOptions],
    ) -> "ClientConfig":
        """Name a namespace, `name.servicebus.windows.net` say, and who the client is."""
        host, port, _ = _parts(fully_qualified_namespace)
        return _config(
            host,
            port,
            credential_of(credential),
            is_local=is_plain,
            is_plain=is_plain,
            entity_path="",
            options=options,
        )


def _config(
    host: str,
    port: int | None,
    credential: Credential,
    *,
    is_local: bool,
    is_plain: bool,
    entity_path: str,
    options: ConnectionOptions,
) -> ClientConfig:
    address, path = address_of(host), WEBSOCKET_PATH
    custom = options.get("custom_endpoint")
    if custom is not None:
        # It says where to connect to; the broker is still called by its own name.
        address, custom_port, custom_path = _parts(custom)
        port = custom_port or port
        path = custom_path or path
    is_websocket = options.get("is_websocket", False)
    usual = http_port if is_websocket else amqp_port
    context = options.get("ssl_context")
    if context is None and not is_plain:
        context = trusting(options.get("ca_file"))
    return ClientConfig(
        host=host,
        address=address,
        port=port or usual(is_local=is_local),
        credential=credential,
        ssl_context=None if is_plain else context,
        ca_option=options.get("ca_option", CA_OPTION),
        is_websocket=is_websocket,
        websocket_path=path,
        proxy=options.get("proxy"),
        retry=options.get("retry") or RetryPolicy(),
        idle_timeout_s=options.get("idle_timeout_s", IDLE_TIMEOUT_S),
        socket_timeout_s=options.get("socket_timeout_s"),
        user_agent=options.get("user_agent", ""),
        is_traced=options.get("is_traced", False),
        is_one_session=options.get("is_one_session", False),
        entity_path=entity_path,
    )


def _parts(text: str) -> tuple[str, int | None, str]:
    """Read `host`, `host:port` or a URL: host, port, path."""
    try:
        parts = urlsplit(text if "://" in text else f"sb://{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"'{text}' is not a host or an address: {error}") from error
    if not host:
        raise ValueError(f"'{text}' names no host")
    return host, port, parts.path.rstrip("/")
