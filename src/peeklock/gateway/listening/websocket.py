"""AMQP inside a WebSocket: a stream of bytes in binary messages, cut anywhere.

The AMQP protocol class sees a transport as it always does, so that nothing behind it differs. What
comes is passed on as it comes: a message is never gathered, whatever its size.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, final

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from peeklock.amqp.dialect import WEBSOCKET_PROTOCOL
from peeklock.gateway.http.answer import Answer, refused

# The service's name for AMQP in WebSockets, and the name that the standard gave it later.
SUBPROTOCOLS: Final = (WEBSOCKET_PROTOCOL, "amqp")
# Clients bound the messages that they take, some at 4 MB; the bytes may be cut anywhere.
MESSAGE_BYTES_MAX: Final = 256 * 1024
# Frames that are read before others have their turn: one read may hold thousands of empty ones.
_FRAMES_AT_ONCE_MAX: Final = 256
# How long a client has to answer our close.
_CLOSE_S_MAX: Final = 3.0


def opened(
    request: h11.Request, tunnelled: Callable[[], asyncio.Protocol]
) -> "WebSocketProtocol | Answer":
    """Open a WebSocket as a request asks for; gives an answer where it asks for something else."""
    machine = WSConnection(ConnectionType.SERVER)
    try:
        if request.method != b"GET":
            raise RemoteProtocolError("Request method must be GET")
        machine.initiate_upgrade_connection(list(request.headers), request.target)
        (asked,) = machine.events()
    except (RemoteProtocolError, UnicodeError) as error:
        answer = f"Only a WebSocket can be opened here: {error}."
        return Answer(426, {"error": answer}, (("upgrade", "websocket"),))
    assert isinstance(asked, Request)
    chosen = next((name for name in SUBPROTOCOLS if name in asked.subprotocols), None)
    if asked.subprotocols and chosen is None:
        return refused(400, f"The sub-protocol of the WebSocket must be {SUBPROTOCOLS[0]}.")
    head = machine.send(AcceptConnection(subprotocol=chosen))
    return WebSocketProtocol(machine, head, tunnelled())


@final
class WebSocketProtocol(asyncio.Protocol):
    """The outer side: takes frames from the network."""

    def __init__(self, machine: WSConnection, head: bytes, inner: asyncio.Protocol) -> None:
        """`head` is the answer to the request, which goes out first."""
        self._machine = machine
        self._head = head
        self._inner = inner
        self._tunnel: Tunnel | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The request is answered, and what is inside begins."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._head)
        self._tunnel = Tunnel(self._machine, transport)
        self._inner.connection_made(self._tunnel)

    def data_received(self, data: bytes) -> None:
        """Bytes came; what the messages among them carry is handed on as one."""
        tunnel = self._tunnel
        assert tunnel is not None
        if self._machine.state is ConnectionState.CLOSED:
            return
        try:
            self._machine.receive_data(data)
        except RemoteProtocolError:
            tunnel.answer_close(CloseConnection(code=CloseReason.PROTOCOL_ERROR))
            return
        if not tunnel.is_behind:
            self._take_frames(tunnel)

    def _take_frames(self, tunnel: "Tunnel") -> None:
        """Hand on what so many frames carry; others have their turn before the rest."""
        carried: list[bytes | bytearray] = []
        closing: Event | None = None
        count = 0
        try:
            for event in self._machine.events():
                count += 1
                if isinstance(event, BytesMessage):
                    carried.append(event.data)
                elif isinstance(event, Ping):
                    tunnel.send(event.response())
                elif isinstance(event, (CloseConnection, TextMessage)):
                    closing = event
                    break
                if count == _FRAMES_AT_ONCE_MAX:
                    break
        except RemoteProtocolError:
            closing = CloseConnection(code=CloseReason.PROTOCOL_ERROR)
        if carried and not tunnel.is_closing():
            self._inner.data_received(b"".join(carried))
        if isinstance(closing, TextMessage):
            tunnel.end(CloseReason.UNSUPPORTED_DATA)
        elif isinstance(closing, CloseConnection):
            tunnel.answer_close(closing)
        elif count == _FRAMES_AT_ONCE_MAX:
            tunnel.fall_behind()
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            tunnel.catch_up()

    def _go_on(self) -> None:
        tunnel = self._tunnel
        if tunnel is not None and self._machine.state is not ConnectionState.CLOSED:
            self._take_frames(tunnel)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is written to."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and with it what was inside."""
        if self._tunnel is not None:
            self._tunnel.forget()
            self._tunnel = None
        self._inner.connection_lost(exc)


@final
class Tunnel(asyncio.Transport):
    """The inner side: what is written to it leaves as a binary message."""

    def __init__(self, machine: WSConnection, transport: asyncio.Transport) -> None:
        super().__init__()
        self._machine = machine
        self._transport = transport
        self._is_closing = False
        # Whether the inside takes nothing more, and whether frames that came wait for their turn.
        self._is_held = False
        self.is_behind = False
        self._timer: asyncio.TimerHandle | None = None

    # --- what the protocol inside calls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, as one message or as many as it takes."""
        # A client that closes may have sent something before that, which is still answered inside.
        if self.is_closing() or self._machine.state is not ConnectionState.OPEN:
            return
        if len(data) <= MESSAGE_BYTES_MAX:
            self._transport.write(self._machine.send(BytesMessage(data=bytes(data))))
            return
        whole = memoryview(data)
        for at in range(0, len(data), MESSAGE_BYTES_MAX):
            piece = bytes(whole[at : at + MESSAGE_BYTES_MAX])
            self._transport.write(self._machine.send(BytesMessage(data=piece)))

    def close(self) -> None:
        """Close politely: the client is told, and has a moment to answer."""
        self.end(CloseReason.NORMAL_CLOSURE)

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        """Tell whether nothing more can be written."""
        return self._is_closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Take nothing more from the client."""
        self._is_held = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the client again."""
        self._is_held = False
        if not self.is_behind:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Tell how much waits for the client."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Tell what is known of the connection."""
        return self._transport.get_extra_info(name, default)

    # --- what the outer side calls

    def fall_behind(self) -> None:
        """Read nothing more until the frames that have come are handed on."""
        self.is_behind = True
        self._transport.pause_reading()

    def catch_up(self) -> None:
        """All that came is handed on."""
        if self.is_behind:
            self.is_behind = False
            if not self._is_held:
                self._transport.resume_reading()

    def send(self, event: Event) -> None:
        """Send something that is not for the inside, such as the answer to a ping."""
        if not self.is_closing():
            self._transport.write(self._machine.send(event))

    def end(self, reason: CloseReason) -> None:
        """Tell the client that this is the end; the answer, or a little time, ends it."""
        if self.is_closing():
            return
        self._is_closing = True
        self._transport.write(self._machine.send(CloseConnection(code=reason)))
        # The answer must be read, however full the inside was.
        self._transport.resume_reading()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_CLOSE_S_MAX, self._transport.abort)

    def answer_close(self, closing: CloseConnection) -> None:
        """The client said that this is the end, or answered that we did."""
        if self._machine.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            answer = CloseConnection(code=closing.code)
            self._transport.write(self._machine.send(answer))
        self._is_closing = True
        self._transport.close()

    def forget(self) -> None:
        """Nothing is waited for any more."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
