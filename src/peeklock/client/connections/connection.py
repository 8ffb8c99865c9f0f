"""One AMQP connection, shared by many links: it opens on demand and opens again after a loss."""

import asyncio
import ssl
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, final
from weakref import WeakSet

from peeklock.amqp.dialect import ASSOCIATED_LINK, SERVER_TIMEOUT, TRANSFER_DESTINATION
from peeklock.amqp.frames.termini import Coordinator, Target
from peeklock.amqp.values.types import Symbol, Uint
from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.request_channel import RequestChannel, content
from peeklock.client.connections.sharing import shared
from peeklock.client.connections.tokens import Tokens
from peeklock.client.connections.transport import Transport, connect
from peeklock.client.exceptions import (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
)
from peeklock.client.receiving.receiver_link import ReceiverLink
from peeklock.client.sending.sender_link import SenderLink
from peeklock.clock import Clock, SystemClock

# How long a broker may take to answer an attach, a token or a request.
ANSWERED_WITHIN_S: Final = 60.0
# So much less is asked of the broker, whose word then comes before we give up.
_ANSWERED_EARLIER_S: Final = 1.0
# How long it may take to reach it: the socket, its encryption, and AMQP's first words.
CONNECTED_WITHIN_S: Final = 30.0
# Gives the state that makes a request part of a transaction, which lives on one connection.
Stamp: TypeAlias = Callable[[Transport], Awaitable[bytes]]


@final
class ClientConnection:
    """The way to one broker. All its methods belong to the event loop of the first one called.

    Nothing is tried twice here: what fails raises, and `retrying.with_retries` tries again.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock | None = None,
        connector: Callable[[ClientConfig], Awaitable[Transport]] = connect,
    ) -> None:
        self.config: Final = config
        self._clock: Final = SystemClock() if clock is None else clock
        # How a socket is got; another way than the network's is for those who have one.
        self._connector: Final = connector
        # How long the broker may leave unread what it was sent: the most that somebody wants.
        self._socket_timeout_s = config.socket_timeout_s
        self._open_connection: OpenConnection | None = None
        self._opening: asyncio.Task[OpenConnection] | None = None
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called; nothing can be opened after that."""
        return self._is_closed

    def allow_unread(self, socket_timeout_s: float | None) -> None:
        """Let the broker take its time to read, for one of those who share the connection."""
        if socket_timeout_s is None:
            return
        if socket_timeout_s <= 0:
            raise ValueError("socket_timeout must be greater than 0")
        self._socket_timeout_s = max(socket_timeout_s, self._socket_timeout_s or 0.0)
        if self._open_connection is not None:
            self._open_connection.transport.socket_timeout_s = self._socket_timeout_s

    async def open_sender(
        self,
        address: str,
        *,
        properties: dict[Any, Any] | None = None,
        named_after: str = "",
        via: str | None = None,
    ) -> SenderLink:
        """Open a link to send on, directly or via another entity, which forwards messages.

        `properties` are those of the link.
        """
        connection = await self._open()
        await connection.tokens.show(address)
        if via is not None:
            await connection.tokens.show(via)
            properties = {**(properties or {}), Symbol(TRANSFER_DESTINATION): address}
        link = SenderLink(
            connection.transport,
            _name(named_after or address),
            Target(address=via or address),
            properties=properties,
        )
        await link.wait_open(ANSWERED_WITHIN_S)
        return link

    async def open_receiver(
        self,
        address: str,
        *,
        deletes: bool,
        session_id: str | None = None,
        any_session: bool = False,
        wait_s: float = ANSWERED_WITHIN_S,
        named_after: str = "",
    ) -> ReceiverLink:
        """Open a link to receive on, in a session if one is named or any is wished.

        `wait_s` is how long a session is waited for; then OperationTimeoutError.
        """
        connection = await self._open()
        await connection.tokens.show(address)
        link = ReceiverLink(
            connection.transport,
            _name(named_after or address),
            address,
            deletes=deletes,
            session_id=session_id,
            any_session=any_session,
            wait_s=wait_s,
            answered_within_s=self.config.retry.try_timeout or ANSWERED_WITHIN_S,
        )
        await link.wait_open(wait_s + ANSWERED_WITHIN_S)
        connection.receivers.add(link)
        return link

    async def manage(
        self,
        entity: str,
        operation: str,
        arguments: dict[Any, Any],
        *,
        link_name: str | None = None,
        within_s: float = ANSWERED_WITHIN_S,
        stamp: Stamp | None = None,
    ) -> dict[Any, Any]:
        """Ask the management node of an entity, with the full name of an operation.

        An answer without content (204) is an empty map. `link_name` tells for which link, `stamp`
        gives what makes the request part of a transaction.
        """
        connection = await self._open()
        request_channel = connection.request_channels.get(entity)
        if request_channel is None or not request_channel.is_open:
            request_channel = await connection.request_channel(entity, within_s)
        properties: dict[str, Any] = {
            "operation": operation,
            SERVER_TIMEOUT: Uint(max(0, round((within_s - _ANSWERED_EARLIER_S) * 1000))),
        }
        if link_name is not None:
            properties[ASSOCIATED_LINK] = link_name
        state = None if stamp is None else await stamp(connection.transport)
        return content(await request_channel.ask(properties, arguments, within_s, state))

    async def open_coordinator(self, transport: Transport) -> SenderLink:
        """Open the link on which transactions of a connection are declared and discharged."""
        connection = self._open_connection
        if connection is None or connection.transport is not transport or not transport.is_alive:
            raise ServiceBusConnectionError("the connection was lost")
        return await connection.coordinator(ANSWERED_WITHIN_S)

    async def close(self) -> None:
        """Close all links and the connection; nothing is left running."""
        self._is_closed = True
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        connection, self._open_connection = self._open_connection, None
        if connection is not None:
            await connection.close()

    # --- the connection

    async def _open(self) -> "OpenConnection":
        """Return the connection there is, or open one; many who ask at once open one."""
        if self._is_closed:
            raise ValueError("the client is closed")
        connection = self._open_connection
        if connection is not None and connection.transport.is_alive:
            return connection
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
            self._opening.add_done_callback(self._opened)
        return await shared(self._opening)

    def _opened(self, opening: "asyncio.Task[OpenConnection]") -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waited has it; nobody may have

    async def _connect(self) -> "OpenConnection":
        previous, self._open_connection = self._open_connection, None
        if previous is not None:
            await previous.close()
        config = self.config
        where = f"{config.host}:{config.port}"
        transport: Transport | None = None
        try:
            async with asyncio.timeout(CONNECTED_WITHIN_S):
                transport = await self._connector(config)
                await transport.opened
        except TimeoutError as error:
            if transport is not None:
                transport.abort()
            raise OperationTimeoutError(f"no broker answers at {where}") from error
        except OSError as error:
            raise ServiceBusCommunicationError(
                f"cannot reach a broker at {where}: {_reason(error, config.ca_option)}"
            ) from error
        except BaseException:
            if transport is not None:
                transport.abort()
            raise
        transport.socket_timeout_s = self._socket_timeout_s
        self._open_connection = OpenConnection(transport, config, self._clock)
        return self._open_connection


@final
class OpenConnection:
    """One connection while it lasts, with what belongs to it alone."""

    def __init__(self, transport: Transport, config: ClientConfig, clock: Clock) -> None:
        self.transport: Final = transport
        self.tokens: Final = Tokens(transport, config, clock, ANSWERED_WITHIN_S)
        # Request channels to management nodes by their entity, and those that are being opened.
        self.request_channels: Final[dict[str, RequestChannel]] = {}
        self._opening: Final[dict[str, asyncio.Task[RequestChannel]]] = {}
        # The link of the coordinator, and the task that opens it.
        self._control: SenderLink | None = None
        self._controlling: asyncio.Task[SenderLink] | None = None
        # Those that must give back what they hold before the connection goes.
        self.receivers: Final[WeakSet[ReceiverLink]] = WeakSet()

    async def request_channel(self, entity: str, within_s: float) -> RequestChannel:
        """Open a request channel for an entity; many who ask at once open one."""
        opening = self._opening.get(entity)
        if opening is None:
            opening = asyncio.create_task(self._open_channel(entity, within_s))
            self._opening[entity] = opening
            opening.add_done_callback(lambda opening: self._opened(entity, opening))
        return await shared(opening)

    async def coordinator(self, within_s: float) -> SenderLink:
        """Return the link of the coordinator, or open one; many who ask at once open one."""
        control = self._control
        if control is not None and control.is_open:
            return control
        if self._controlling is None:
            self._controlling = asyncio.create_task(self._open_coordinator(within_s))
            self._controlling.add_done_callback(self._controlled)
        return await shared(self._controlling)

    async def _open_coordinator(self, within_s: float) -> SenderLink:
        link = SenderLink(self.transport, _name("coordinator"), Coordinator())
        await link.wait_open(within_s)
        self._control = link
        return link

    def _controlled(self, opening: "asyncio.Task[SenderLink]") -> None:
        self._controlling = None
        if not opening.cancelled():
            opening.exception()  # whoever waited has it; nobody may have

    async def _open_channel(self, entity: str, within_s: float) -> RequestChannel:
        broken = self.request_channels.pop(entity, None)
        if broken is not None:
            broken.leave()
        await self.tokens.show(entity)
        session = self.transport.entity_session()
        request_channel = RequestChannel(
            self.transport, f"{entity}/$management", _name("management"), session
        )
        await request_channel.wait_open(within_s)
        self.request_channels[entity] = request_channel
        return request_channel

    def _opened(self, entity: str, opening: "asyncio.Task[RequestChannel]") -> None:
        self._opening.pop(entity, None)
        if not opening.cancelled():
            opening.exception()  # whoever waited has it; nobody may have

    async def close(self) -> None:
        """Let receivers give back what they hold, then close."""
        tasks: list[asyncio.Task[Any]] = list(self._opening.values())
        if self._controlling is not None:
            tasks.append(self._controlling)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.transport.is_alive:
            receivers = [receiver.close() for receiver in self.receivers if receiver.is_open]
            await asyncio.gather(*receivers, return_exceptions=True)
        await self.tokens.close()
        await self.transport.close()


def _name(address: str) -> str:
    """Make a name that no other link has; what it begins with helps those who read logs."""
    return f"{address}-{uuid.uuid4().hex}"


def _reason(error: OSError, ca_option: str) -> str:
    reason = str(error) or repr(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        reason += f" ({ca_option} names the authority that is trusted)"
    return reason
