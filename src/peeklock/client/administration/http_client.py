"""HTTP at a broker: where it is served, who asks, and one request after the other.

It blocks and needs nothing but Python's own library, so that the command line starts quickly and
tasks of Spark can use it. Threads may share a client.
"""

import http.client
import logging
import ssl
import threading
from dataclasses import dataclass
from typing import Final, Protocol, final

from peeklock.client.administration.errors import ServiceRequestError, ServiceResponseError
from peeklock.client.connections.connection_string import address_of, parse_connection_string
from peeklock.client.connections.endpoints import http_port as usual_port
from peeklock.client.connections.endpoints import trusting

_LOG: Final = logging.getLogger("peeklock.client.administration")
_TIMEOUT_S: Final = 60.0
_ANSWER_BYTES_MAX: Final = 64 << 20
# Each request that changes something opens a connection, and leaves it to those that only read.
_IDLE_MAX: Final = 4


class Authorizer(Protocol):
    """Gives what is shown to the broker with each request."""

    def authorization(self, scheme: str, path: str = "") -> str:
        """Return the value of the Authorization header for everything below a path."""
        ...


@final
@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """Where the HTTP of a namespace is served, and who asks; `http_endpoint` makes one."""

    # The namespace as the broker knows it; what is connected to is `address`.
    host: str
    port: int
    authorizer: Authorizer
    # None sends everything in clear.
    context: ssl.SSLContext | None = None
    # What the user calls the option that names the authority, for texts; empty tells nothing of it.
    ca_option: str = ""

    @property
    def address(self) -> str:
        """What is connected to; the broker is still called by its own name."""
        return address_of(self.host)

    @property
    def scheme(self) -> str:
        """What an address begins with."""
        return "http" if self.context is None else "https"

    def headers(self, path: str = "") -> dict[str, str]:
        """Return what each request needs: which namespace is meant, and a token for a path."""
        return {
            "Host": f"{self.host}:{self.port}",
            "Authorization": self.authorizer.authorization(self.scheme, path),
        }


def http_endpoint(connection_string: str, http_port: int = 0, ca_file: str = "") -> HttpEndpoint:
    """Read a connection string: the port is the one given here, that of the string, or the usual.

    As for AMQP: with UseDevelopmentEmulator=true nothing is encrypted, unless an authority is
    named, and the ports are the broker's own. Each of them serves everything.
    """
    connection = parse_connection_string(connection_string)
    port = http_port or connection.port or usual_port(is_local=connection.is_plain)
    if connection.is_plain and not ca_file:
        return HttpEndpoint(connection.host, port, connection)
    return HttpEndpoint(connection.host, port, connection, trusting(ca_file or None))


@final
@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What was answered; the names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    content: bytes


@final
class HttpClient:
    """Sends requests to an endpoint, and keeps connections for those that may be repeated."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        *,
        timeout_s: float = _TIMEOUT_S,
        keeps_connections: bool = True,
        is_traced: bool = False,
    ) -> None:
        """Wait for an answer until the timeout; who keeps connections calls `close` at the end."""
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._keeps_connections = keeps_connections
        self._is_traced = is_traced
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Close the connections that are kept; a later request opens another one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def request(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        token_path: str = "",
    ) -> HttpAnswer:
        """Send one request and return the answer, whatever its status.

        The token is made for everything below `token_path`. Raises ServiceRequestError where
        nobody answers.
        """
        sent = self.endpoint.headers(token_path) | (headers or {})
        try:
            # What changes something is sent once: a kept connection may be closed already, and
            # nobody would know whether the broker has read the request.
            kept = self._kept() if method == "GET" else None
            if kept is not None:
                try:
                    return self._ask(kept, method, target, sent, body)
                except (ConnectionError, http.client.BadStatusLine):
                    # The broker closes connections that were idle for long: that is no failure.
                    kept.close()
            return self._ask(self._opened(), method, target, sent, body)
        except (OSError, http.client.HTTPException) as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> ServiceRequestError:
        """Return the error that says that nobody can be asked."""
        where = f"{self.endpoint.host}:{self.endpoint.port}"
        reason = str(error) or repr(error)
        if isinstance(error, ssl.SSLCertVerificationError) and self.endpoint.ca_option:
            reason += f" ({self.endpoint.ca_option} names the authority that is trusted)"
        return ServiceRequestError(f"cannot reach a broker at {where}: {reason}")

    def not_a_broker(self, status: int) -> ServiceResponseError:
        """Return the error that says that something else answers."""
        where = f"{self.endpoint.host}:{self.endpoint.port}"
        return ServiceResponseError(f"what answers at {where} is no Peeklock: status {status}")

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
    ) -> HttpAnswer:
        try:
            connection.request(method, target, body=body or None, headers=headers)
            answer = connection.getresponse()
            content = answer.read(_ANSWER_BYTES_MAX)
        except BaseException:
            connection.close()
            raise
        if self._is_traced:
            # Neither headers nor contents: there are tokens and keys in them.
            _LOG.debug("%s %s: %d", method, target, answer.status)
        named = {name.lower(): value for name, value in answer.getheaders()}
        if not self._keeps_connections or answer.will_close or not answer.isclosed():
            connection.close()
        else:
            self._keep(connection)
        return HttpAnswer(answer.status, named, content)

    def _kept(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        """Keep the latest few: the broker closes the oldest ones first."""
        with self._lock:
            self._idle.append(connection)
            surplus = self._idle.pop(0) if len(self._idle) > _IDLE_MAX else None
        if surplus is not None:
            surplus.close()

    def _opened(self) -> http.client.HTTPConnection:
        endpoint = self.endpoint
        if endpoint.context is None:
            return http.client.HTTPConnection(
                endpoint.address, endpoint.port, timeout=self._timeout_s
            )
        return http.client.HTTPSConnection(
            endpoint.address, endpoint.port, timeout=self._timeout_s, context=endpoint.context
        )
