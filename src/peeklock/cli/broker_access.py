"""How commands reach a running broker: the options that say where it is, and what it is asked.

A command takes a `BrokerAccess` first; `asks_broker` puts the options in its place.
"""

import inspect
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, final

import typer

from peeklock.cli.connection import ConnectionProblem, parse_connection
from peeklock.client.administration.api import AdministrationApi
from peeklock.client.administration.http_client import HttpClient, HttpEndpoint
from peeklock.client.connections.connection_string import DEVELOPMENT, ConnectionString
from peeklock.client.connections.endpoints import (
    AMQPS_PORT,
    HTTPS_PORT,
    trusting,
)
from peeklock.client.connections.endpoints import amqp_port as usual_amqp_port
from peeklock.client.connections.endpoints import http_port as usual_http_port
from peeklock.client.exceptions import ServiceBusError
from peeklock.settings import AMQP_PORT, HTTP_PORT

if TYPE_CHECKING:
    from peeklock.client.connections.config import ClientConfig

# Taking a store away, or deleting an entity, waits for what is under way in it.
_TIMEOUT_S: Final = 120.0
_ON_A_PORT: Final[dict[str, Any]] = {"min": 1, "max": 65535}


@final
@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """A broker that can be asked."""

    connection: ConnectionString
    http_port: int
    amqp_port: int
    context: ssl.SSLContext | None = None

    def http(self) -> HttpClient:
        """Return a client for requests over HTTP."""
        endpoint = HttpEndpoint(self.connection.host, self.http_port, self.connection, self.context)
        return HttpClient(endpoint, timeout_s=_TIMEOUT_S, keeps_connections=False)

    def administration(self) -> AdministrationApi:
        """Return the entities of the broker's namespace."""
        return AdministrationApi(self.http())

    def client_config(self) -> "ClientConfig":
        """Tell a client of messages where the broker is; one that tries everything once."""
        from peeklock.client.connections.config import ClientConfig
        from peeklock.client.connections.retrying import RetryPolicy

        try:
            return ClientConfig.of_connection(
                self.connection,
                port=self.amqp_port,
                is_plain=self.context is None,
                ssl_context=self.context,
                ca_option="--ca FILE",
                retry=RetryPolicy(retry_total=0),
            )
        except ValueError as error:
            raise ConnectionProblem(str(error)) from error

    def ask(self, method: str, target: str) -> dict[str, Any]:
        """Send one request and give the JSON document that is answered."""
        import json

        http = self.http()
        answer = http.request(method, target)
        try:
            document = json.loads(answer.content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise http.not_a_broker(answer.status)
        if answer.status != 200:
            problem = document.get("error", f"the broker answered with status {answer.status}")
            raise ConnectionProblem(str(problem))
        return document

    def unreachable(self, port: int, error: Exception) -> ConnectionProblem:
        """Return the error that says that nobody can be asked."""
        reason = str(error) or repr(error)
        where = f"{self.connection.host}:{port}"
        return ConnectionProblem(f"cannot reach a broker at {where}: {reason}{_advice(error)}")


def asks_broker(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take a BrokerAccess; users give connection string, ports and trust instead."""

    @wraps(command)
    def wrapped(
        *arguments: Any,
        connection_string: str,
        http_port: int | None,
        amqp_port: int | None,
        tls: bool | None,
        ca: Path | None,
        **options: Any,
    ) -> None:
        from peeklock.cli.output import fail

        try:
            broker = _broker_access(connection_string, http_port, amqp_port, tls, ca)
            command(broker, *arguments, **options)
        except ConnectionProblem as problem:
            fail(str(problem))
        except ServiceBusError as problem:
            fail(f"{problem}{_advice(problem.__cause__)}")

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    wrapped.__signature__ = inspect.Signature([*own, *_PARAMETERS])  # type: ignore[attr-defined]  # what Typer reads
    wrapped.__annotations__ = {}
    return wrapped


def _advice(error: BaseException | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return " (--ca FILE names the authority that is trusted)"
    return ""


def _broker_access(
    text: str, http_port: int | None, amqp_port: int | None, tls: bool | None, ca: Path | None
) -> BrokerAccess:
    connection = parse_connection(text)
    is_plain = connection.is_plain and ca is None if tls is None else not tls
    is_local = connection.is_plain or is_plain
    amqp_port = amqp_port or connection.port or usual_amqp_port(is_local=is_local)
    # The port of a local connection string is that of AMQP.
    named = None if is_local else connection.port
    http_port = http_port or named or usual_http_port(is_local=is_local)
    if is_plain:
        return BrokerAccess(connection, http_port, amqp_port)
    try:
        return BrokerAccess(connection, http_port, amqp_port, trusting(ca))
    except ValueError as error:
        raise ConnectionProblem(str(error)) from error


def _parameter(name: str, default: Any, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


_PARAMETERS: Final = (
    _parameter(
        "connection_string",
        DEVELOPMENT,
        str,
        typer.Option(
            "--connection-string",
            envvar="PEEKLOCK_CONNECTION_STRING",
            help="How to reach the broker and with which key.",
            show_default="the development key on localhost",
            rich_help_panel="Broker",
        ),
    ),
    _parameter(
        "http_port",
        None,
        int | None,
        typer.Option(
            "--http-port",
            envvar="PEEKLOCK_HTTP_PORT",
            help="The broker's port for HTTP.",
            show_default=f"{HTTP_PORT}, or {HTTPS_PORT} without UseDevelopmentEmulator=true",
            rich_help_panel="Broker",
            **_ON_A_PORT,
        ),
    ),
    _parameter(
        "amqp_port",
        None,
        int | None,
        typer.Option(
            "--amqp-port",
            envvar="PEEKLOCK_AMQP_PORT",
            help="The broker's port for AMQP.",
            show_default=f"{AMQP_PORT}, or {AMQPS_PORT} without UseDevelopmentEmulator=true",
            rich_help_panel="Broker",
            **_ON_A_PORT,
        ),
    ),
    _parameter(
        "tls",
        None,
        bool | None,
        typer.Option(
            "--tls/--no-tls",
            help="Whether to encrypt.",
            show_default="unless the connection string has UseDevelopmentEmulator=true",
            rich_help_panel="Broker",
        ),
    ),
    _parameter(
        "ca",
        None,
        Path | None,
        typer.Option(
            "--ca",
            envvar="PEEKLOCK_CA",
            exists=True,
            dir_okay=False,
            help="The authority whose certificates are trusted, in PEM; means --tls.",
            rich_help_panel="Broker",
        ),
    ),
)
