"""Everything that a client was told: where the broker is, how to get there, who the client is."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

from peeklock.client.connection_string import address_of, parse_connection_string
from peeklock.client.credentials import (
    AnyCredential,
    Credential,
    SasKey,
    SasToken,
    credential_of,
)
from peeklock.client.retrying import RetryPolicy
from peeklock.settings import AMQP_PORT, HTTP_PORT

AMQPS_PORT: Final = 5671
HTTPS_PORT: Final = 443
WEBSOCKET_PATH: Final = "/$servicebus/websocket"
# What is announced to the broker: it must say something within this time.
IDLE_TIMEOUT_S: Final = 60.0


@final
@dataclass(slots=True, init=False)
class ClientConfig:
    """Where, how and who; made by `from_connection_string` or `for_namespace`."""

    # The namespace as the broker knows it, and what is really connected to.
    host: Final[str]
    address: Final[str]
    port: Final[int]
    credential: Final[Credential]
    # None sends everything in clear.
    ssl_context: Final[ssl.SSLContext | None]
    is_websocket: Final[bool]
    websocket_path: Final[str]
    retry: Final[RetryPolicy]
    idle_timeout_s: Final[float]
    # Whether all links to entities are on one AMQP session, for transactions over several of them.
    is_one_session: Final[bool]
    # The entity that the connection string is for, empty where it names none.
    entity_path: Final[str]

    def __init__(
        self,
        *,
        host: str,
        address: str,
        port: int,
        credential: Credential,
        ssl_context: ssl.SSLContext | None = None,
        is_websocket: bool = False,
        websocket_path: str = WEBSOCKET_PATH,
        retry: RetryPolicy | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        is_one_session: bool = False,
        entity_path: str = "",
    ) -> None:
        self.host = host
        self.address = address
        self.port = port
        self.credential = credential
        self.ssl_context = ssl_context
        self.is_websocket = is_websocket
        self.websocket_path = websocket_path
        self.retry = RetryPolicy() if retry is None else retry
        self.idle_timeout_s = idle_timeout_s
        self.is_one_session = is_one_session
        self.entity_path = entity_path

    @staticmethod
    def from_connection_string(
        text: str,
        *,
        is_websocket: bool = False,
        custom_endpoint: str | None = None,
        ca_file: str | Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
        retry: RetryPolicy | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        is_one_session: bool = False,
    ) -> "ClientConfig":
        """Read a connection string.

        With UseDevelopmentEmulator=true nothing is encrypted, unless an authority is named here.
        """
        read = parse_connection_string(text)
        is_plain = read.is_plain and ca_file is None and ssl_context is None
        credential: Credential
        credential = SasToken(read.token) if read.token else SasKey(read.rule_name, read.key)
        return _config(
            host=read.host,
            port=read.port,
            has_usual_ports=read.is_plain,
            is_plain=is_plain,
            credential=credential,
            is_websocket=is_websocket,
            custom_endpoint=custom_endpoint,
            ca_file=ca_file,
            ssl_context=ssl_context,
            retry=retry,
            idle_timeout_s=idle_timeout_s,
            is_one_session=is_one_session,
            entity_path=read.entity_path,
        )

    @staticmethod
    def for_namespace(
        fully_qualified_namespace: str,
        credential: AnyCredential,
        *,
        is_plain: bool = False,
        is_websocket: bool = False,
        custom_endpoint: str | None = None,
        ca_file: str | Path | None = None,
        ssl_context: ssl.SSLContext | None = None,
        retry: RetryPolicy | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        is_one_session: bool = False,
    ) -> "ClientConfig":
        """Name a namespace, `name.servicebus.windows.net` say, and who the client is."""
        host, port = _host_and_port(fully_qualified_namespace)
        return _config(
            host=host,
            port=port,
            has_usual_ports=is_plain,
            is_plain=is_plain,
            credential=credential_of(credential),
            is_websocket=is_websocket,
            custom_endpoint=custom_endpoint,
            ca_file=ca_file,
            ssl_context=ssl_context,
            retry=retry,
            idle_timeout_s=idle_timeout_s,
            is_one_session=is_one_session,
            entity_path="",
        )


def _config(
    *,
    host: str,
    port: int | None,
    has_usual_ports: bool,
    is_plain: bool,
    credential: Credential,
    is_websocket: bool,
    custom_endpoint: str | None,
    ca_file: str | Path | None,
    ssl_context: ssl.SSLContext | None,
    retry: RetryPolicy | None,
    idle_timeout_s: float,
    is_one_session: bool,
    entity_path: str,
) -> ClientConfig:
    address, path = address_of(host), WEBSOCKET_PATH
    if custom_endpoint is not None:
        # It says where to connect to; the broker is still called by its own name.
        address, custom_port, custom_path = _custom(custom_endpoint)
        port = custom_port or port
        path = custom_path or path
    if port is None:
        usual = HTTP_PORT if is_websocket else AMQP_PORT
        encrypted = HTTPS_PORT if is_websocket else AMQPS_PORT
        port = usual if has_usual_ports else encrypted
    if not is_plain and ssl_context is None:
        ssl_context = trusting(ca_file)
    return ClientConfig(
        host=host,
        address=address,
        port=port,
        credential=credential,
        ssl_context=None if is_plain else ssl_context,
        is_websocket=is_websocket,
        websocket_path=path,
        retry=retry,
        idle_timeout_s=idle_timeout_s,
        is_one_session=is_one_session,
        entity_path=entity_path,
    )


def trusting(ca_file: str | Path | None) -> ssl.SSLContext:
    """Make a context that trusts an authority, or those that the system trusts."""
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise ValueError(f"the authority in {ca_file} cannot be read: {error}") from error


def _host_and_port(text: str) -> tuple[str, int | None]:
    host, port, _ = _custom(text)
    return host, port


def _custom(text: str) -> tuple[str, int | None, str]:
    """Read `host`, `host:port` or a URL."""
    try:
        parts = urlsplit(text if "://" in text else f"sb://{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"'{text}' is not a host or an address: {error}") from error
    if not host:
        raise ValueError(f"'{text}' names no host")
    return host, port, parts.path.rstrip("/")
