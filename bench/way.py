"""By which way the client comes in: plain AMQP, inside TLS, inside a WebSocket, or inside both."""

import socket
import ssl
from dataclasses import dataclass
from typing import Final, Protocol, final

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request
from wsproto.frame_protocol import CloseReason

PATH: Final = "/$servicebus/websocket"
_RECORD_SIZE: Final = 1 << 14


class Socket(Protocol):
    """What a line needs of a socket; it never waits."""

    def recv(self, size: int, /) -> bytes:
        """Take what has come; BlockingIOError when nothing has, nothing when it is closed."""
        ...

    def send(self, data: bytes, /) -> int:
        """Send some of it; BlockingIOError when nothing can be sent."""
        ...

    def fileno(self) -> int:
        """Let a selector wait."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


@dataclass(frozen=True)
class Way:
    """Without an authority to trust there is no TLS."""

    authority: str = ""
    is_websocket: bool = False

    def connect(self, port: int) -> "tuple[Socket, Frames | None]":
        """Connect to a port of this machine; the handshakes are waited for."""
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found: socket.socket = plain
        if self.authority:
            context = ssl.create_default_context(cafile=self.authority)
            found = context.wrap_socket(plain, server_hostname="localhost")
        frames = Frames(found) if self.is_websocket else None
        found.setblocking(False)
        return TlsSocket(found) if isinstance(found, ssl.SSLSocket) else found, frames


@final
class TlsSocket:
    """A TLS socket with the manners of a plain one."""

    def __init__(self, inner: ssl.SSLSocket) -> None:
        self._inner = inner

    def recv(self, size: int, /) -> bytes:
        """Take all that has come, record by record: a selector does not see what TLS holds."""
        parts: list[bytes] = []
        taken = 0
        try:
            while taken < size or self._inner.pending():
                part = self._inner.recv(_RECORD_SIZE)
                if not part:
                    break
                parts.append(part)
                taken += len(part)
        except ssl.SSLWantReadError:
            if not parts:
                raise BlockingIOError from None
        return b"".join(parts)

    def send(self, data: bytes, /) -> int:
        """Send record by record, until the kernel takes no more."""
        sent = 0
        try:
            while sent < len(data):
                sent += self._inner.send(data[sent:] if sent else data)
        except ssl.SSLWantWriteError:
            if not sent:
                raise BlockingIOError from None
        return sent

    def fileno(self) -> int:
        """Let a selector wait."""
        return self._inner.fileno()

    def close(self) -> None:
        """Close it."""
        self._inner.close()


@final
class Frames:
    """The client's side of a WebSocket: opened when made, then bytes in and bytes out."""

    def __init__(self, opened: socket.socket) -> None:
        self._machine = WSConnection(ConnectionType.CLIENT)
        request = Request(host="localhost", target=PATH, subprotocols=["AMQPWSB10"])
        opened.sendall(self._machine.send(request))
        while True:
            self._machine.receive_data(opened.recv(_RECORD_SIZE))
            for event in self._machine.events():
                if isinstance(event, AcceptConnection):
                    return
                raise ConnectionError(f"the server answered {event!r}")

    def wrap(self, data: bytes) -> bytes:
        """Make one message."""
        return self._machine.send(BytesMessage(data=data))

    def unwrap(self, data: bytes) -> bytes:
        """Give what the messages carry; they may begin and end anywhere."""
        self._machine.receive_data(data)
        parts: list[bytes] = []
        for event in self._machine.events():
            if isinstance(event, BytesMessage):
                parts.append(bytes(event.data))
            elif isinstance(event, CloseConnection) and event.code == CloseReason.NORMAL_CLOSURE:
                # It follows AMQP's own close and may come with it; who is not done gets no more.
                break
            elif isinstance(event, (CloseConnection, Ping)):
                raise ConnectionError(f"the server said {event!r}")
        return b"".join(parts)
