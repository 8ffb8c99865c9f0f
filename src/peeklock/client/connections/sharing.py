"""Work that many wait for at once: a connection, a token, a request channel being opened."""

import asyncio
from typing import TypeVar

from peeklock.client.exceptions import ServiceBusConnectionError

T = TypeVar("T")


async def shared(work: "asyncio.Task[T]") -> T:
    """Wait for work that others wait for too.

    Who gives up cancels nothing but the own wait. Work that was cancelled, because the client is
    being closed, has failed: a caller who was not cancelled must not look as if.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if not work.cancelled() or (caller is not None and caller.cancelling()):
            raise
        raise ServiceBusConnectionError("the connection was closed meanwhile") from None
