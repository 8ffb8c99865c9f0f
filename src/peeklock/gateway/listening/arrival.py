"""A connection that has not said yet what it speaks: TLS or not, then AMQP or HTTP.

Every port serves everything, so that one connection string serves all clients. The first byte is
looked at while it is still with the system, because TLS wants to read it itself; what is inside,
in clear or not, is chosen by what it begins with.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, final

from peeklock.gateway.listening.conduit import Conduit
from peeklock.gateway.listening.handshakes import Handshakes
from peeklock.gateway.listening.tls import Tls

# The first byte of a TLS handshake; no other protocol here begins with it.
_HANDSHAKE: Final = b"\x16"
_AMQP: Final = b"AMQP"
# A client that does not answer our end of TLS is not waited for.
_TLS_END_S_MAX: Final = 3.0

Factory: TypeAlias = Callable[[], asyncio.Protocol]
"""Makes the protocol class of one connection."""


class ArrivalHost(Protocol):
    """Where connections are until they are served: the listener."""

    amqp: Factory
    http: Factory
    tls: Tls | None
    handshakes: Handshakes
    # How long a client may take for each step: its first byte, the handshake, its first words.
    step_s_max: float
    # How long it may leave unread what is written to it.
    write_s_max: float

    def left(self, arrival: "Arrival") -> None:
        """The connection is served by somebody, or gone."""
        ...

    def closed(self) -> None:
        """The socket of a connection is closed."""
        ...

    def log(self, event: str, peer: str, text: str) -> None:
        """Tell of a connection that came to nothing."""
        ...


@final
class Arrival(asyncio.Protocol):
    """One new connection, from its accepting to its first words."""

    def __init__(self, arrival_host: ArrivalHost, accepted: socket.socket, address: object) -> None:
        self._arrival_host = arrival_host
        self._socket: socket.socket | None = accepted
        self._peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unknown"
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._is_open = True
        self._timer = self._loop.call_later(arrival_host.step_s_max, self._is_late)
        self._loop.add_reader(accepted, self._look)

    def abort(self) -> None:
        """End the connection, whatever it is about to become."""
        self._timer.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._closed()
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._arrival_host.handshakes.ended(self)
        self._arrival_host.left(self)

    # --- the first byte, which stays where it is

    def _look(self) -> None:
        accepted = self._socket
        assert accepted is not None
        try:
            first = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        is_tls = first == _HANDSHAKE
        if not first or (is_tls and self._arrival_host.tls is None):
            if first:
                self._log("tls-refused", "TLS is switched off.")
            self.abort()
            return
        self._loop.remove_reader(accepted)
        if is_tls:
            self._arrival_host.handshakes.begin(self)
        else:
            self._timer.cancel()
            self._task = self._loop.create_task(self._take(accepted, is_tls))

    def shake(self) -> None:
        """There is a place for the handshake."""
        assert self._socket is not None
        self._timer.cancel()
        self._task = self._loop.create_task(self._take(self._socket, is_tls=True))

    async def _take(self, accepted: socket.socket, is_tls: bool) -> None:
        # From here on the transport closes the socket, also when this task is cancelled.
        self._socket = None
        context = (
            self._arrival_host.tls.context
            if is_tls and self._arrival_host.tls is not None
            else None
        )
        conduit = Conduit(
            self, self._peer, self._closed, write_s_max=self._arrival_host.write_s_max
        )
        try:
            await self._loop.connect_accepted_socket(
                lambda: conduit,
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else self._arrival_host.step_s_max,
                ssl_shutdown_timeout=None if context is None else _TLS_END_S_MAX,
            )
        except OSError as error:
            # Errors of TLS are among these: no trust in our certificate, no cipher in common.
            self._log("handshake-failed", str(error) or type(error).__name__)
            self._arrival_host.left(self)
        finally:
            self._task = None
            self._arrival_host.handshakes.ended(self)
            if self._transport is None:
                # There was no handshake, and nobody else is told of the end.
                self._closed()

    def _closed(self) -> None:
        if self._is_open:
            self._is_open = False
            self._arrival_host.closed()

    # --- the first words

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a transport, in clear or with TLS around it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = self._loop.call_later(self._arrival_host.step_s_max, self._is_late)

    def data_received(self, data: bytes) -> None:
        """Bytes came: as soon as they tell the protocol, its class takes over."""
        data = self._data + data
        if len(data) < len(_AMQP) and _AMQP.startswith(data):
            self._data = data
            return
        transport = self._transport
        assert transport is not None
        self._timer.cancel()
        protocol = (
            self._arrival_host.amqp() if data.startswith(_AMQP) else self._arrival_host.http()
        )
        self._arrival_host.left(self)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not transport.is_closing():
            protocol.data_received(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The client went before it said what it wants."""
        self._timer.cancel()
        self._arrival_host.left(self)

    def _is_late(self) -> None:
        self._log("silent", "Nothing that tells its protocol came in the time allowed for it.")
        self.abort()

    def _log(self, event: str, text: str) -> None:
        self._arrival_host.log(event, self._peer, text)
