"""The HTTP door of a namespace: where it is, how to get in, and who asks."""

import http.client
import ssl
from dataclasses import dataclass
from typing import final

from peeklock.client.config import HTTPS_PORT, trusting
from peeklock.client.connection_string import ConnectionString, parse_connection_string
from peeklock.settings import HTTP_PORT


@final
@dataclass(frozen=True, slots=True)
class Door:
    """Where HTTP is served and how it is reached; made by `door`."""

    connection: ConnectionString
    port: int
    # None sends everything in clear.
    context: ssl.SSLContext | None

    @property
    def host(self) -> str:
        """What is connected to; the broker is still called by its own name."""
        return self.connection.address

    @property
    def scheme(self) -> str:
        """What an address begins with."""
        return "http" if self.context is None else "https"

    def opened(self, timeout_s: float) -> http.client.HTTPConnection:
        """Give a connection; it connects with the first request."""
        if self.context is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_s, context=self.context
        )

    def headers(self, path: str = "") -> dict[str, str]:
        """Give what each request below a path needs: which namespace is meant, and a token."""
        return {
            "Host": f"{self.connection.host}:{self.port}",
            "Authorization": self.connection.authorization(self.scheme, path),
        }


def door(connection_string: str, http_port: int = 0, ca_file: str = "") -> Door:
    """Find the door: the port that was said, that of the connection string, or the usual one.

    As for AMQP: with UseDevelopmentEmulator=true nothing is encrypted, unless an authority is
    named, and the ports are the broker's own. Each of them serves everything.
    """
    connection = parse_connection_string(connection_string)
    usual = HTTP_PORT if connection.is_plain else HTTPS_PORT
    is_plain = connection.is_plain and not ca_file
    context = None if is_plain else trusting(ca_file or None)
    return Door(connection, http_port or connection.port or usual, context)
