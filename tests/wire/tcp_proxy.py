"""A small TCP relay between client and broker that can cut, and that can chop the stream."""

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self


class TcpProxy:
    """Forwards to a port of this machine; `cut` drops every connection as a broken cable would."""

    def __init__(self, port: int, *, piece: int = 65536, pause_s: float = 0.0) -> None:
        self._target = port
        self._piece = piece
        self._pause_s = pause_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._guard = threading.Lock()
        self._closed = False
        # Whether what the broker says is kept from the client.
        self.is_mute = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        # A shutdown wakes the accepting thread; closing alone would leave it waiting.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> int:
        """Reset all connections, towards both ends, and say how many there were."""
        with self._guard:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _reset(end)
        return len(pairs)

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _reset(near)
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._guard:
                self._pairs.append((near, far))
            for source, sink in ((near, far), (far, near)):
                arguments = (source, sink, source is far)
                threading.Thread(target=self._carry, args=arguments, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        try:
            while data := source.recv(self._piece):
                if is_answer and self.is_mute:
                    continue
                sink.sendall(data)
                if self._pause_s:
                    time.sleep(self._pause_s)
        except OSError:
            pass  # the cable was cut: both ends learn it from their own sockets
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _reset(end: socket.socket) -> None:
    # Lingering for zero seconds makes close send RST. Shutting the reading side wakes the thread
    # that waits in recv; without it the socket would live on inside that call.
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RD)
    end.close()
