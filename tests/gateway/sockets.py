"""A pair of connected sockets: a protocol class on one end, a stream on the other. No port."""

import asyncio
import socket
from collections.abc import Callable


async def connected(
    factory: Callable[[], asyncio.Protocol],
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Give a protocol class a client, and give back the client's end."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(factory, ours)
    return await asyncio.open_connection(sock=theirs)
