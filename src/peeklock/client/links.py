"""The two ends of a link: one that sends and one that receives."""

import asyncio
from collections.abc import Sequence
from typing import final

from peeklock.amqp.delivery import IncomingDelivery


@final
class SenderLink:
    """A link on which messages leave; each send is a future."""

    name: str
    # The largest message or batch that the entity takes; 0 says that there is no limit.
    max_message_size: int

    @property
    def is_open(self) -> bool:
        """Whether messages can leave; a link that is gone never comes back, open another one."""
        raise NotImplementedError

    @property
    def pending_count(self) -> int:
        """How many sends are queued or under way and have no outcome yet."""
        raise NotImplementedError

    def submit(self, payload: bytes, *, is_batch: bool = False) -> asyncio.Future[None]:
        """Send an encoded message, or a batch of them; the future tells the outcome.

        It waits its turn while there is no credit. A future that is cancelled before its message
        left takes the message back; later it makes no difference to the message.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Detach; what has no outcome yet fails."""
        raise NotImplementedError


@final
class ReceiverLink:
    """A link on which messages come, in a session or not."""

    name: str
    # The session that was given, None where there is none; its lock lasts until then.
    session_id: str | None
    locked_until_ms: int
    # Whether messages are gone when they are given (receive and delete).
    deletes: bool

    @property
    def is_open(self) -> bool:
        """Whether messages can come; a link that is gone never comes back, open another one."""
        raise NotImplementedError

    @property
    def credit(self) -> int:
        """How many messages may still come without another grant."""
        raise NotImplementedError

    @property
    def buffered(self) -> int:
        """How many messages have come and were not taken."""
        raise NotImplementedError

    async def receive(
        self, count_max: int, wait_s: float | None, *, drain: bool = True
    ) -> list[IncomingDelivery]:
        """Take up to so many messages: what is there, or what comes within a time (None: ever).

        With `drain` the credit is asked for here and taken back before this returns, so that
        nothing comes (and is locked) afterwards. Without it, credit is the caller's: `grant` it.
        Whatever comes while nobody waits, also when a call was cancelled, is kept for the next.
        When the link is gone and nothing is kept, its exception is raised.
        """
        raise NotImplementedError

    def settle(
        self, deliveries: Sequence[IncomingDelivery], outcome: bytes
    ) -> asyncio.Future[None]:
        """Tell the outcome of messages; the future tells when the broker has taken all of it.

        It fails with what was wrong with the first of them that was refused.
        """
        raise NotImplementedError

    def release(self, deliveries: Sequence[IncomingDelivery]) -> None:
        """Give messages back as if they had not been handed out; nothing is answered."""
        raise NotImplementedError

    def grant(self, count: int) -> None:
        """Let this many messages come from now on, whatever was left before (prefetch)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Give back what was not taken, and detach."""
        raise NotImplementedError
