"""The skin between asyncio and h11: one request at a time, each answered with JSON."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, final

import h11

from peeklock.gateway.http.answer import Answer, bad_request, refused
from peeklock.gateway.http.request import Request

# A client that is silent for longer is cut off, whether in a request or between two.
_SILENCE_S_MAX: Final = 15.0
# Requests here are small; nothing that is longer is read to its end.
BODY_BYTES_MAX: Final = 64 * 1024

Route: TypeAlias = Callable[[Request], Answer | Coroutine[Any, Any, Answer]]
"""Answers a request, at once or later."""

_LOG: Final = logging.getLogger("peeklock.http")


@final
class HttpProtocol(asyncio.Protocol):
    """One connection of the HTTP listener."""

    def __init__(self, route: Route, connections: set["HttpProtocol"]) -> None:
        self._route = route
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._h11 = h11.Connection(h11.SERVER)
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        # The answer that somebody is working on; no other request is read meanwhile.
        self._task: asyncio.Task[None] | None = None
        self._is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        self._wait()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The connection is gone; what it asked for is still carried out."""
        self._connections.discard(self)
        self._transport = None
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        """Bytes came; whole requests among them are answered."""
        self._h11.receive_data(data)
        if self._task is None:
            self._wait()
            self._read()

    def eof_received(self) -> bool:
        """The client has said all; it may still wait for an answer."""
        self._is_ended = True
        return self._task is not None

    def close(self) -> None:
        """Close when everything written is sent."""
        if self._transport is not None:
            self._transport.close()

    def _read(self) -> None:
        try:
            self._read_events()
        except h11.RemoteProtocolError as error:
            if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._send(bad_request(f"The request cannot be read: {error}."), "GET")
            self.close()

    def _read_events(self) -> None:
        while self._task is None:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._request = event
                self._body.clear()
            elif isinstance(event, h11.Data):
                if len(self._body) + len(event.data) > BODY_BYTES_MAX:
                    raise h11.RemoteProtocolError("the body is too large", 413)
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._answer()
            else:
                # NEED_DATA, PAUSED or a closed connection: nothing more to read for now.
                if isinstance(event, h11.ConnectionClosed):
                    self.close()
                return

    def _answer(self) -> None:
        assert self._request is not None
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        request = Request(
            self._request.method.decode("ascii"),
            self._request.target.decode("ascii"),
            {
                name.decode("ascii"): value.decode("latin-1")
                for name, value in self._request.headers
            },
            bytes(self._body),
            f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "",
        )
        answer = self._route(request)
        if isinstance(answer, Answer):
            self._finish(answer, request.method)
        else:
            self._stop_waiting()
            # What comes meanwhile stays with the system, so that nobody fills our memory.
            self._transport.pause_reading()
            self._task = self._loop.create_task(self._answer_later(answer, request))

    async def _answer_later(self, coming: Coroutine[Any, Any, Answer], request: Request) -> None:
        try:
            answer = await coming
        except Exception:  # noqa: BLE001 - a client gets an answer whatever happens
            _LOG.exception("request-failed method=%s path=%r", request.method, request.path)
            answer = refused(500, "The request failed; the broker's log says why.")
        self._task = None
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.resume_reading()
        self._wait()
        self._finish(answer, request.method)
        self._read()
        if self._is_ended and self._task is None:
            self.close()

    def _finish(self, answer: Answer, method: str) -> None:
        self._send(answer, method)
        if self._h11.our_state is h11.MUST_CLOSE:
            self.close()
        elif self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()

    def _send(self, answer: Answer, method: str) -> None:
        body = answer.body()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            *answer.headers,
        ]
        parts = [self._h11.send(h11.Response(status_code=answer.status, headers=headers))]
        if method != "HEAD":
            parts.append(self._h11.send(h11.Data(data=body)))
        parts.append(self._h11.send(h11.EndOfMessage()))
        assert self._transport is not None
        self._transport.write(b"".join(part for part in parts if part))

    def _wait(self) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(_SILENCE_S_MAX, self.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
