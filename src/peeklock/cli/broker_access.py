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
from peeklock.client.administration.errors import (
    ClientAuthenticationError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from peeklock.client.administration.http_client import HttpClient, HttpEndpoint
from peeklock.client.connections.connection_string import DEVELOPMENT, ConnectionString
from peeklock.client.connections.endpoints import (
    AMQPS_PORT,
    HTTPS_PORT,
    trusting,
)
from peeklock.client.connections.endpoints import amqp_port as usual_amqp_port
from peeklock.client.connections.endpoints import http_port as usual_http_port
from peeklock.client.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from peeklock.settings import AMQP_PORT, HTTP_PORT

if TYPE_CHECKING:
    from peeklock.client.connections.config import ClientConfig

# Taking a store away, or deleting an entity, waits for what is under way in it.
_TIMEOUT_S: Final = 120.0
_CONTEXT: Final = "context"
# As Click calls it.
_TYPED: Final = "COMMANDLINE"
_STRING: Final = "connection_string"
_FIELDS: Final = (_STRING, "http_port", "amqp_port", "tls", "ca")
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

    def client_config(self, *, is_one_session: bool = False) -> "ClientConfig":
        """Tell a client of messages where the broker is; one that tries everything once. On one
        session its transactions may be about several entities."""
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
                is_one_session=is_one_session,
            )
        except ValueError as error:
            raise ConnectionProblem(str(error)) from error

    def ask(self, method: str, target: str, *, accepted: int = 200) -> dict[str, Any]:
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
        if answer.status != accepted:
            problem = document.get("error", f"the broker answered with status {answer.status}")
            raise ConnectionProblem(str(problem))
        return document


def asks_broker(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take a BrokerAccess; users give connection string, ports and trust instead."""

    @wraps(command)
    def wrapped(*arguments: Any, invocation: typer.Context, **options: Any) -> None:
        from peeklock.cli.output import fail

        given = {name: options.pop(name) for name in (_CONTEXT, *_FIELDS)}
        try:
            broker = _broker_access(**_chosen(given, _typed(invocation, given)))
            command(broker, *arguments, **options)
        except ConnectionProblem as problem:
            fail(str(problem))
        except ServiceBusError as problem:
            fail(advised(problem))

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    wrapped.__signature__ = inspect.Signature([*own, *_PARAMETERS])  # type: ignore[attr-defined]  # what Typer reads
    wrapped.__annotations__ = {}
    return wrapped


def advised(problem: ServiceBusError) -> str:
    """Say what went wrong, and what can be done about it."""
    text = str(problem) or problem.condition
    advice = _advice(problem.__cause__) or _advice(problem)
    return f"{text} ({advice})" if advice else text


def _advice(error: BaseException | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "--ca FILE names the authority that is trusted"
    if isinstance(error, ConnectionRefusedError | ServiceBusConnectionError | ServiceRequestError):
        if error.__cause__ is not None and not isinstance(error.__cause__, OSError):
            return ""
        return (
            "`peeklock serve` starts a broker, `peeklock context list` shows those that are "
            "known; --connection-string, --amqp-port and --http-port say where another one is"
        )
    if isinstance(error, ClientAuthenticationError | ServiceBusAuthenticationError):
        return (
            "the key or its name is wrong: take the connection string that the broker prints "
            "when it is ready, or the AuthorizationRules of its configuration file"
        )
    if isinstance(error, ResourceExistsError):
        return "`update` changes it, `delete` makes room"
    if isinstance(error, ResourceNotFoundError | MessagingEntityNotFoundError):
        return (
            "`peeklock queue list`, `topic list` and `subscription list TOPIC` show what there is, "
            "`create` makes it"
        )
    return ""


def _typed(invocation: typer.Context, given: dict[str, Any]) -> set[str]:
    """Tell which options stand on the command line; others come from variables, or from nobody."""
    sources = {name: invocation.get_parameter_source(name) for name in given}
    return {name for name, source in sources.items() if getattr(source, "name", "") == _TYPED}


def _chosen(given: dict[str, Any], typed: set[str]) -> dict[str, Any]:
    """Choose what was typed before what a context says, and a context in use before nothing.

    A context that was named stands for itself: of the other options only those hold that were
    typed, not those of variables, which may be meant for another broker.
    """
    from peeklock.cli.contexts import read_contexts

    name = given.pop(_CONTEXT)
    if _CONTEXT in typed and _STRING in typed:
        raise ConnectionProblem("only one of --context and --connection-string goes")
    is_named = bool(name) and _STRING not in typed and (_CONTEXT in typed or not given[_STRING])
    if not is_named and given[_STRING]:
        return given
    contexts = read_contexts()
    if not is_named and not contexts.current:
        return given | {_STRING: DEVELOPMENT}
    context = contexts.get(name if is_named else contexts.current)
    kept = {key: context.get(key) for key in _FIELDS}
    if kept["ca"] is not None:
        kept["ca"] = Path(kept["ca"])
    return kept | {key: given[key] for key in typed if key != _CONTEXT}


def _broker_access(
    connection_string: str,
    http_port: int | None,
    amqp_port: int | None,
    tls: bool | None,
    ca: Path | None,
) -> BrokerAccess:
    connection = parse_connection(connection_string)
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


def _context_names(incomplete: str) -> list[str]:
    from peeklock.cli.contexts import context_names

    return context_names(incomplete)


_PARAMETERS: Final = (
    inspect.Parameter("invocation", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
    _parameter(
        _CONTEXT,
        None,
        str | None,
        typer.Option(
            "--context",
            envvar="PEEKLOCK_CONTEXT",
            help="A broker that `peeklock context add` has kept under a name.",
            show_default="the one in use",
            autocompletion=_context_names,
            rich_help_panel="Broker",
        ),
    ),
    _parameter(
        _STRING,
        None,
        str | None,
        typer.Option(
            "--connection-string",
            envvar="PEEKLOCK_CONNECTION_STRING",
            help="How to reach the broker and with which key.",
            show_default="the context in use, or the development key on localhost",
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
