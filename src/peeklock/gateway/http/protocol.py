"""The skin between asyncio and h11: one request at a time, each answered with JSON."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, final

import h11

from peeklock.gateway.http.answer import Answer, bad_request

# A client that is silent for longer is cut off, whether in a request or between two.
_SILENCE_S_MAX: Final = 15.0
# Nothing here takes a body; what a client sends along is read and dropped up to this.
_BODY_BYTES_MAX: Final = 64 * 1024

Route: TypeAlias = Callable[[str, str], Answer]
"""Answers a method and a path."""


@final
class HttpProtocol(asyncio.Protocol):
    """One connection of the HTTP listener."""

    def __init__(self, route: Route, connections: set["HttpProtocol"]) -> None:
        self._route = route
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._h11 = h11.Connection(h11.SERVER)
        self._request: h11.Request | None = None
        self._body_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        self._wait()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The connection is gone."""
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes came; whole requests among them are answered."""
        self._wait()
        self._h11.receive_data(data)
        try:
            self._read_events()
        except h11.RemoteProtocolError as error:
            if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._send(bad_request(f"The request cannot be read: {error}."), "GET")
            self.close()

    def eof_received(self) -> bool:
        """The client has said all; asyncio closes."""
        return False

    def close(self) -> None:
        """Close when everything written is sent."""
        if self._transport is not None:
            self._transport.close()

    def _read_events(self) -> None:
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._request = event
                self._body_bytes = 0
            elif isinstance(event, h11.Data):
                self._body_bytes += len(event.data)
                if self._body_bytes > _BODY_BYTES_MAX:
                    raise h11.RemoteProtocolError("the body is too large", 413)
            elif isinstance(event, h11.EndOfMessage):
                self._answer()
            else:
                # NEED_DATA, PAUSED or a closed connection: nothing more to read for now.
                if isinstance(event, h11.ConnectionClosed):
                    self.close()
                return

    def _answer(self) -> None:
        assert self._request is not None
        method = self._request.method.decode("ascii")
        path = self._request.target.decode("ascii").partition("?")[0]
        self._send(self._route(method, path), method)
        if self._h11.our_state is h11.MUST_CLOSE:
            self.close()
        elif self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()

    def _send(self, answer: Answer, method: str) -> None:
        body = answer.body()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        parts = [self._h11.send(h11.Response(status_code=answer.status, headers=headers))]
        if method != "HEAD":
            parts.append(self._h11.send(h11.Data(data=body)))
        parts.append(self._h11.send(h11.EndOfMessage()))
        assert self._transport is not None
        self._transport.write(b"".join(part for part in parts if part))

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_SILENCE_S_MAX, self.close)
