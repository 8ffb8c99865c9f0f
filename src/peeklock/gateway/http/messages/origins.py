"""Who asks an entity for a request: origins that wait for one reply, and one that receives."""

import asyncio
from collections.abc import Callable
from typing import Final, final

from peeklock.entity.commands import (
    PEEK_LOCK,
    CloseReceiver,
    Grant,
    OpenReceiver,
    SettleMany,
)
from peeklock.entity.deliveries import Delivery
from peeklock.entity.refusals import DETACHED, Refusal
from peeklock.entity.replies import NOBODY, Delivered, Drained, ReceiverClosed, Reply
from peeklock.entity.settlement import PLAIN_RELEASE
from peeklock.gateway.amqp.namespace_context import Entity
from peeklock.gateway.http.caller import Caller

# How long an entity may take to say that it has nothing.
_GRACE_S: Final = 5.0

# What the journal calls clients over HTTP: each request is a receiver of its own.
CONSUMER: Final = "$http"


@final
class CommandReply:
    """One command and its reply."""

    def __init__(self) -> None:
        self._reply: Final[asyncio.Future[Reply]] = asyncio.get_running_loop().create_future()

    def replied(self, reply: Reply) -> None:
        """Take the reply."""
        if not self._reply.done():
            self._reply.set_result(reply)

    def flush(self) -> None:
        """There is nothing to let go."""

    async def reply(self) -> Reply:
        """Wait for it."""
        return await self._reply


@final
class Reception:
    """A receiver for one message, which waits no longer than its client.

    It always locks, whatever its client does with the message: what comes for a client that has
    gone is given back at once, and nobody notices.
    """

    def __init__(self, entity: Entity, lane: int, caller: Caller) -> None:
        self._entity: Final = entity
        self._lane: Final = lane
        self._caller: Final = caller
        self._result: Final[asyncio.Future[Delivery | Refusal | None]] = (
            asyncio.get_running_loop().create_future()
        )
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, timeout_s: int) -> Delivery | Refusal | None:
        """Give the next message, locked; None when there is none in time or the client is gone."""
        if self._is_left_alone():
            return None
        entity = self._entity
        entity.link_attached(self)
        self._caller.when_gone(self._gone)
        entity.submit(OpenReceiver(self, self._lane, PEEK_LOCK, CONSUMER))
        entity.submit(Grant(self, 1, timeout_s == 0))
        if timeout_s:
            self._call_after(timeout_s, self._time_is_over)
        else:
            self._call_after(_GRACE_S, self._give_up)
        try:
            found = await self._result
        finally:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            self._caller.when_gone(None)
            # The lock stays when its receiver leaves.
            entity.submit(CloseReceiver(self, False))
            entity.link_detached(self)
        if isinstance(found, Delivery) and self._is_left_alone():
            self._give_back(found)
            return None
        return found

    def replied(self, reply: Reply) -> None:
        """Take what the entity has."""
        if isinstance(reply, Delivered):
            for delivery in reply.deliveries:
                if self._is_over or self._result.done():
                    self._give_back(delivery)
                else:
                    self._result.set_result(delivery)
        elif isinstance(reply, Drained):
            self._end(None)
        elif isinstance(reply, ReceiverClosed):
            self._end(reply.refusal)
        else:
            raise AssertionError(f"a receiver is not answered with {reply!r}")

    def flush(self) -> None:
        """There is nothing to let go."""

    def dismiss(self, refusal: Refusal) -> None:
        """The entity is gone or changed; after a change the client may simply ask again."""
        self._end(None if refusal.kind == DETACHED else refusal)

    def _time_is_over(self) -> None:
        # What is on its way still comes, and before the reply to this.
        if not self._result.done():
            self._call_after(_GRACE_S, self._give_up)
            self._entity.submit(Grant(self, 1, True))

    def _give_up(self) -> None:
        # The entity cannot answer at present; what it has to say later is given back.
        self._end(None)

    def _call_after(self, seconds: float, call: Callable[[], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, call)

    def _is_left_alone(self) -> bool:
        return self._caller.is_gone

    def _gone(self) -> None:
        self._end(None)

    def _end(self, result: Refusal | None) -> None:
        if not self._result.done():
            self._result.set_result(result)

    def _give_back(self, delivery: Delivery) -> None:
        self._entity.submit(SettleMany(NOBODY, [0], PLAIN_RELEASE, [delivery]))
