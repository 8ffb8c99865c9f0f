"""Which port a broker is asked at, and whom to trust: one choice for clients and commands.

The command line reads it too, so that this module imports next to nothing.
"""

import ssl
from pathlib import Path
from typing import Final

from peeklock.settings import AMQP_PORT, HTTP_PORT

# The service's own ports, where all is encrypted. Every port of a broker takes TLS too.
AMQPS_PORT: Final = 5671
HTTPS_PORT: Final = 443


def amqp_port(*, is_local: bool) -> int:
    """Return the usual port for AMQP: the broker's own with the emulator's flag, or the
    service's."""
    return AMQP_PORT if is_local else AMQPS_PORT


def http_port(*, is_local: bool) -> int:
    """Return the usual port for HTTP and WebSockets, by the same rule."""
    return HTTP_PORT if is_local else HTTPS_PORT


def trusting(ca_file: str | Path | None) -> ssl.SSLContext:
    """Make a context that trusts an authority, or those that the system trusts.

    A file that cannot be read raises ValueError.
    """
    if isinstance(ca_file, bool):
        raise ValueError(
            "connection_verify is a file; whoever wants to trust anybody gives an ssl_context"
        )
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise ValueError(f"the authority in {ca_file} cannot be read: {error}") from error
