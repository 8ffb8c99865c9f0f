"""Whether others on the network can read what is said on a connection."""

import asyncio

from peeklock.auth.issuer import is_loopback


def is_exposed(transport: asyncio.BaseTransport) -> bool:
    """Tell whether a connection is without TLS and leaves this machine."""
    if transport.get_extra_info("sslcontext") is not None:
        return False
    peer = transport.get_extra_info("peername")
    # Who is gone already has no address, and a socket of this machine's files none either.
    return isinstance(peer, tuple) and not is_loopback(str(peer[0]))
