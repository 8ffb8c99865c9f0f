"""A connection that speaks HTTP and stays: a request leaves, its answer is gathered."""

import socket
import time
from dataclasses import dataclass
from typing import Final, final

from bench.endpoint import Endpoint
from peeklock.auth.sas import generate_sas

HOST: Final = "localhost"
_READ_SIZE: Final = 1 << 18
_TOKEN_MS: Final = 3_600_000
_ANSWERED_WITHIN_S: Final = 60.0


class HttpError(Exception):
    """The server answered what the bench cannot use."""


@dataclass(frozen=True)
class Reply:
    """A status and what came with it."""

    status: int
    body: bytes


def request(
    endpoint: Endpoint, method: str, target: str, body: bytes = b"", **headers: str
) -> bytes:
    """Write a request that shows a token for everything; headers come with underscores."""
    expires_at = time.time_ns() // 1_000_000 + _TOKEN_MS
    token = generate_sas(f"http://{HOST}", endpoint.user, endpoint.password, expires_at)
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {HOST}",
        f"Authorization: {token}",
        f"Content-Length: {len(body)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


@final
class HttpLine:
    """One connection; every port of the broker speaks HTTP too."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._socket = socket.create_connection(("127.0.0.1", endpoint.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(_ANSWERED_WITHIN_S)
        self._gathered = b""

    def fileno(self) -> int:
        """Let a selector wait for it."""
        return self._socket.fileno()

    def send(self, written: bytes) -> None:
        """Ask; the answer is taken later."""
        self._socket.sendall(written)

    def take(self) -> Reply | None:
        """Read once; gives the answer when it is whole."""
        data = self._socket.recv(_READ_SIZE)
        if not data:
            raise HttpError("the server closed the connection")
        self._gathered += data
        head, found, body = self._gathered.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return None
        self._gathered = b""
        return Reply(int(head.split(b" ", 2)[1]), body)

    def ask(self, written: bytes, status: int) -> Reply:
        """Ask and wait for an answer of this status."""
        self.send(written)
        reply = self.take()
        while reply is None:
            reply = self.take()
        must_be(reply, status)
        return reply

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def must_be(reply: Reply, status: int) -> None:
    """Stop the bench at another answer: its figures would mean nothing."""
    if reply.status != status:
        raise HttpError(f"{reply.status} instead of {status}: {reply.body.decode()}")


def _length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    return 0 if at < 0 else int(lower[at + 17 :].partition(b"\r\n")[0])
