"""Settling messages: by the link that they came on, or by their lock token where that is gone."""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Protocol, final

from peeklock.client.connections.connection import ClientConnection, Stamp
from peeklock.client.exceptions import ServiceBusConnectionError, SessionLockLostError
from peeklock.client.received import ServiceBusReceivedMessage
from peeklock.client.receiving.receiver_link import ReceiverLink
from peeklock.client.receiving.settlement import COMPLETE, ClientSettlement, check_settleable
from peeklock.client.transactions import ServiceBusTransaction


class Asker(Protocol):
    """Who asks the management node of the entity; knows its session."""

    async def __call__(
        self,
        operation: str,
        arguments: dict[str, Any],
        *,
        stamp: Stamp | None,
    ) -> object:
        """Ask, in the name of the receiver's link; once, where a stamp is given."""
        ...


@final
class Settler:
    """Settles the messages of one receiver."""

    def __init__(self, connection: ClientConnection, entity: str, ask: Asker) -> None:
        self._connection: Final = connection
        self._entity: Final = entity
        self._ask: Final = ask

    async def settle(
        self,
        message: ServiceBusReceivedMessage,
        how: ClientSettlement,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Tell the outcome of a message, now or when a transaction is committed."""
        check_settleable(message)
        if transaction is not None:
            await self.settle_within(transaction, [message], how)
            return
        message.is_settled = True
        await self._settled(message, how)

    async def _settled(self, message: ServiceBusReceivedMessage, how: ClientSettlement) -> None:
        try:
            link = _link_of(message)
            if link is not None:
                # A link that breaks meanwhile leaves the lock as it is.
                with contextlib.suppress(ServiceBusConnectionError):
                    await _by_link(link, [message], how.outcome)
                    return
            await self._settle_by_token(message, how)
        except BaseException:
            message.is_settled = False
            raise

    async def _settle_by_token(
        self,
        message: ServiceBusReceivedMessage,
        how: ClientSettlement,
        transaction: ServiceBusTransaction | None = None,
    ) -> None:
        """Settle when the link is gone, or was never there: the lock token is enough."""
        link = message.link
        if link is not None and link.session_id is not None and not link.is_open:
            raise SessionLockLostError(f"the session '{link.session_id}' ended with its link")
        # Whoever settles within a transaction performs it already: it is not entered again here.
        stamp = None if transaction is None else transaction.stamp
        await self._ask("update-disposition", how.by_token(message), stamp=stamp)

    async def settle_within(
        self,
        transaction: ServiceBusTransaction,
        messages: Sequence[ServiceBusReceivedMessage],
        how: ClientSettlement,
    ) -> None:
        """Settle messages when a transaction is committed: by their links, or by their tokens."""
        by_link: dict[ReceiverLink, list[ServiceBusReceivedMessage]] = {}
        by_token: list[ServiceBusReceivedMessage] = []
        for message in messages:
            link = _link_of(message)
            if link is not None:
                by_link.setdefault(link, []).append(message)
            else:
                by_token.append(message)

        async def by(link: ReceiverLink, settled: list[ServiceBusReceivedMessage]) -> None:
            state = await transaction.stamp(link.transport, how.outcome)
            await _by_link(link, settled, state)

        async def settle() -> None:
            await asyncio.gather(
                *(by(link, settled) for link, settled in by_link.items()),
                *(self._settle_by_token(message, how, transaction) for message in by_token),
            )

        await transaction.perform(self._connection, self._entity, settle, messages=messages)

    def complete_all(self, messages: list[ServiceBusReceivedMessage]) -> list[asyncio.Future[None]]:
        """Complete messages in one write; a future for each."""
        return [self._begin_complete(message) for message in messages]

    def _begin_complete(self, message: ServiceBusReceivedMessage) -> asyncio.Future[None]:
        """Tell the link now, so that all of one turn of the loop leave in one write."""
        link, delivery = _link_of(message), message.delivery
        if link is None or delivery is None:
            return asyncio.ensure_future(self._settled(message, COMPLETE))
        told = link.settle([delivery], COMPLETE.outcome)
        ended: asyncio.Future[None] = told.get_loop().create_future()
        told.add_done_callback(partial(self._complete_answered, message, ended))
        return ended

    def _complete_answered(
        self,
        message: ServiceBusReceivedMessage,
        ended: asyncio.Future[None],
        told: asyncio.Future[None],
    ) -> None:
        """Pass the answer on; where the link broke instead, the token is asked."""
        error = told.exception()
        if error is None:
            _resolve(ended, None)
        elif isinstance(error, ServiceBusConnectionError):
            again = asyncio.ensure_future(self._settled(message, COMPLETE))
            again.add_done_callback(
                lambda done: (
                    ended.cancel() if done.cancelled() else _resolve(ended, done.exception())
                )
            )
        else:
            message.is_settled = False
            message.needs_token = True
            _resolve(ended, error)


def _link_of(message: ServiceBusReceivedMessage) -> ReceiverLink | None:
    """Return the link that settles a message, or None where only its token does."""
    link = message.link
    if link is None or message.delivery is None or message.needs_token or not link.is_open:
        return None
    return link


async def _by_link(
    link: ReceiverLink, messages: Sequence[ServiceBusReceivedMessage], outcome: bytes
) -> None:
    """Settle messages by the link that they came on.

    A refusal settles a delivery as well, so that what is said of it next may be heard by nobody.
    The same holds for who has not waited for the answer. The lock may live on.
    """
    deliveries = [message.delivery for message in messages if message.delivery is not None]
    try:
        await link.settle(deliveries, outcome)
    except BaseException:
        for message in messages:
            message.needs_token = True
        raise


def _resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
