"""What every end of a link has: the wait for the other side, the detach, the reason of its end."""

import asyncio
import contextlib
from typing import Final, final

from peeklock.amqp.sessions.link import Link
from peeklock.client.connections.transport import LinkEnd, Transport
from peeklock.client.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

# How long the answer to a detach is waited for.
DETACHED_WITHIN_S: Final = 5.0


@final
class Attachment:
    """One link of the engine, from attach to detach.

    A session for each link lets none of them wait for the window or the outcomes of another. Only
    transactions over several entities need one session for all; see `Transport.entity_session`.
    """

    def __init__(self, transport: Transport, link: Link, end: LinkEnd) -> None:
        self.transport: Final = transport
        self.link: Final = link
        self.end: Final = end
        # Why the link is gone, once it is.
        self.error: ServiceBusError | None = None
        self._opened: asyncio.Future[None] = transport.loop.create_future()
        link.context = end
        transport.join(end)
        transport.wake()

    @property
    def is_open(self) -> bool:
        """Whether both sides are attached."""
        return self.error is None and self.link.attached

    def failure(self) -> ServiceBusError:
        """Return a new exception of why the link is gone: one for each who asks."""
        error = self.error
        if error is None:
            return ServiceBusConnectionError("the link is not open")
        return type(error)(
            error.message, condition=error.condition, is_retryable=error.is_retryable
        )

    def attached(self) -> None:
        """Note that the broker has attached its side."""
        if not self._opened.done():
            self._opened.set_result(None)

    def gone(self, error: ServiceBusError) -> bool:
        """Note that the link is no more; return whether that is news."""
        if self.error is not None:
            return False
        self.error = error
        if not self._opened.done():
            self._opened.set_result(None)
        return True

    async def wait(self, within_s: float) -> None:
        """Wait until the link is attached; raise why it is not."""
        try:
            async with asyncio.timeout(within_s):
                await self._opened
        except TimeoutError as error:
            self.leave(ServiceBusConnectionError("the link was given up"))
            raise OperationTimeoutError(f"no answer to the attach within {within_s} s") from error
        except asyncio.CancelledError:
            self.leave(ServiceBusConnectionError("the link was given up"))
            raise
        if self.error is not None:
            raise self.failure()

    def leave(self, error: ServiceBusError) -> None:
        """Detach without waiting for the answer; the end is told."""
        if self.error is not None:
            return
        self.transport.leave(self.end)
        lost = self.link.unsettled()
        self.link.detach()
        self.transport.end_session(self.link.session)
        self.transport.wake()
        self.end.on_gone(error, lost)

    async def detach(self) -> None:
        """Detach, and wait for the answer for a while."""
        if self.error is not None:
            return
        link, transport = self.link, self.transport
        transport.leave(self.end)
        lost = link.unsettled()
        link.detach()
        answered = transport.detached(link)
        transport.wake()
        self.end.on_gone(ServiceBusConnectionError("the link was closed"), lost)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DETACHED_WITHIN_S):
                    await answered
        finally:  # whoever waits for it may be cancelled
            transport.end_session(link.session)
            transport.wake()
