"""AMQP inside a WebSocket: the client's side of the handshake, then bytes in and bytes out."""

from typing import Final, final

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from peeklock.amqp.dialect import WEBSOCKET_PROTOCOL


class WebSocketError(Exception):
    """The other side does not speak WebSocket as it should."""


@final
class WebSocketFraming:
    """One WebSocket. `opening` is sent first; nothing can be wrapped before `is_open`."""

    def __init__(self, host: str, path: str) -> None:
        self._machine = WSConnection(ConnectionType.CLIENT)
        request = Request(host=host, target=path, subprotocols=[WEBSOCKET_PROTOCOL])
        self.opening: Final = self._machine.send(request)
        self.is_open = False
        # What must be sent in answer to what was just unwrapped.
        self.answer = b""

    def wrap(self, data: bytes) -> bytes:
        """Make one binary message."""
        if self._machine.state is not ConnectionState.OPEN:
            return b""
        return self._machine.send(BytesMessage(data=data))

    def unwrap(self, data: bytes) -> bytes:
        """Return what the messages carry; they may begin and end anywhere."""
        parts: list[bytes] = []
        try:
            self._machine.receive_data(data)
            for event in self._machine.events():
                if isinstance(event, BytesMessage):
                    parts.append(bytes(event.data))
                elif isinstance(event, AcceptConnection):
                    self.is_open = True
                elif isinstance(event, Ping):
                    self.answer += self._machine.send(event.response())
                elif isinstance(event, CloseConnection):
                    # It follows AMQP's own close; whoever is not done learns it from the socket.
                    if self._machine.state is ConnectionState.REMOTE_CLOSING:
                        self.answer += self._machine.send(event.response())
                    break
                elif isinstance(event, RejectConnection):
                    raise WebSocketError(f"the WebSocket was refused with {event.status_code}")
                elif isinstance(event, TextMessage):
                    raise WebSocketError("a text where AMQP is expected")
        except RemoteProtocolError as error:
            raise WebSocketError(f"what answers is no WebSocket: {error}") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def goodbye(self) -> bytes:
        """Say that this is the end, if that was not said."""
        if self._machine.state is not ConnectionState.OPEN:
            return b""
        return self._machine.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))
