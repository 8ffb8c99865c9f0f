"""The skin between asyncio and h11: one request at a time, each answered in its turn."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from math import inf
from typing import Any, Final, Protocol, TypeAlias, final

import h11

from peeklock.gateway.http.answer import Answer, bad_request, refused
from peeklock.gateway.http.caller import Caller
from peeklock.gateway.http.request import Request

# A client that is silent for longer is cut off: before its first request or within one, and between
# two, where clients that keep connections expect the service's patience.
_SILENCE_S_MAX: Final = 15.0
_IDLE_S_MAX: Final = 120.0
_NO_CONTENT: Final = 204
# Most requests are small: whoever takes more says so, and only then is it read.
BODY_BYTES_MAX: Final = 64 * 1024
# The service takes 64 KB of properties in the head of a message; the rest is for everything else.
_HEAD_BYTES_MAX: Final = 68 * 1024
# What a client may send ahead while an answer is worked on; more stays with the system.
_AHEAD_BYTES_MAX: Final = 64 * 1024
# Where AMQP over WebSockets is asked for; some clients add a slash.
_WEBSOCKETS: Final = b"/$servicebus/websocket"

Route: TypeAlias = Callable[[Request], Answer | Coroutine[Any, Any, Answer]]
"""Answers a request, at once or later."""

Tunnelled: TypeAlias = Callable[[], asyncio.Protocol]
"""Makes the protocol class for what is inside a WebSocket."""

_LOG: Final = logging.getLogger("peeklock.http")


class Bounds(Protocol):
    """Says how large the body of a request may be that is larger than most."""

    def body_bytes_max(self, request: Request) -> int:
        """The bound, asked with the head alone."""
        ...

    def too_large(self, request: Request) -> Answer:
        """What a client is told whose body is larger."""
        ...


@final
class HttpProtocol(asyncio.Protocol):
    """One connection of the HTTP listener."""

    def __init__(
        self,
        route: Route,
        connections: set["HttpProtocol"],
        *,
        bounds: Bounds | None = None,
        tunnelled: Tunnelled | None = None,
    ) -> None:
        """Without what is `tunnelled` in them there are no WebSockets."""
        self._route = route
        self._connections = connections
        self._bounds = bounds
        self._tunnelled = tunnelled
        self._loop = asyncio.get_running_loop()
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._body_bytes_max = BODY_BYTES_MAX
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._scheme = "http"
        # When the client has been silent for too long, and the timer that looks whether it has:
        # one for many requests, because each moves the instant.
        self._silent_at = inf
        self._timer: asyncio.TimerHandle | None = None
        # The answer that somebody is working on, and who waits for it; no other request is taken
        # up meanwhile.
        self._task: asyncio.Task[None] | None = None
        self._caller: Caller | None = None
        self._bytes_ahead = 0
        self._is_ended = False
        self._is_refusing = False
        # The client does not read; nothing more is answered until it does.
        self._is_choked = False
        self._is_stopping = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self._peer = f"{peer[0]}:{peer[1]}"
        if transport.get_extra_info("sslcontext") is not None:
            self._scheme = "https"
        self._connections.add(self)
        self._wait()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The connection is gone; what it asked for is still carried out."""
        self._connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._caller is not None:
            self._caller.left()

    def data_received(self, data: bytes) -> None:
        """Bytes came; whole requests among them are answered."""
        if self._is_refusing:
            return
        self._h11.receive_data(data)
        if self._task is None and not self._is_choked:
            self._wait()
            self._read()
            return
        # Reading goes on, because it tells when the client hangs up, but nobody fills our memory.
        self._bytes_ahead += len(data)
        if self._bytes_ahead > _AHEAD_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The client has said all; it may still wait for an answer."""
        self._is_ended = True
        if self._caller is not None:
            self._caller.left()
        # With TLS there is no half of a connection: it is closed whatever is said here.
        return self._scheme == "http" and (self._task is not None or self._is_choked)

    def pause_writing(self) -> None:
        """The client does not read what it has asked for."""
        self._is_choked = True

    def resume_writing(self) -> None:
        """The client reads again; what it has asked meanwhile is answered."""
        self._is_choked = False
        if self._task is None and not self._is_refusing:
            self._go_on()

    def shut_down(self) -> None:
        """Close when what is worked on is answered; whoever waits for messages waits no longer."""
        self._is_stopping = True
        if self._task is None:
            self.close()
        elif self._caller is not None:
            self._caller.left()

    def close(self) -> None:
        """Close when everything written is sent."""
        if self._transport is not None:
            self._transport.close()

    def _read(self) -> None:
        try:
            self._read_events()
        except h11.RemoteProtocolError as error:
            self._refuse(bad_request(f"The request cannot be read: {error}."))

    def _read_events(self) -> None:
        while self._task is None and not (self._is_refusing or self._is_choked):
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                self._check_size(len(self._body))
            elif isinstance(event, h11.EndOfMessage):
                if self._is_for_websockets():
                    self._upgrade()
                    return
                self._answer()
            else:
                # NEED_DATA, PAUSED or a closed connection: nothing more to read for now.
                if isinstance(event, h11.ConnectionClosed):
                    self.close()
                return

    def _begin(self, head: h11.Request) -> None:
        self._request = head
        self._body.clear()
        self._body_bytes_max = BODY_BYTES_MAX
        for name, value in head.headers:
            if name == b"content-length":
                self._check_size(int(value))
        if self._h11.they_are_waiting_for_100_continue and not self._is_refusing:
            assert self._transport is not None
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._transport.write(self._h11.send(go_on) or b"")

    def _check_size(self, size: int) -> None:
        if size <= self._body_bytes_max:
            return
        request = self._request_with(b"")
        bounds = self._bounds
        if bounds is not None and self._body_bytes_max == BODY_BYTES_MAX:
            self._body_bytes_max = max(BODY_BYTES_MAX, bounds.body_bytes_max(request))
        if size > self._body_bytes_max:
            self._body.clear()
            text = "The request cannot be read: the body is too large."
            self._refuse(bad_request(text) if bounds is None else bounds.too_large(request))

    def _request_with(self, body: bytes) -> Request:
        head = self._request
        assert head is not None
        headers = head.headers
        self._caller = Caller(is_gone=self._is_ended)
        return Request(
            head.method.decode("ascii"),
            _target(head).decode("ascii"),
            {name.decode("ascii"): value.decode("latin-1") for name, value in headers},
            body,
            self._peer,
            named=headers.raw_items(),
            scheme=self._scheme,
            caller=self._caller,
        )

    def _is_for_websockets(self) -> bool:
        head = self._request
        assert head is not None
        if self._tunnelled is None or _WEBSOCKETS not in head.target:
            return False
        return _target(head).partition(b"?")[0] in (_WEBSOCKETS, _WEBSOCKETS + b"/")

    def _upgrade(self) -> None:
        """Let a WebSocket have the connection, or say why it cannot be one."""
        # Imported with the first of them, because most brokers never see one.
        from peeklock.gateway.websocket import opened

        assert self._request is not None
        assert self._tunnelled is not None
        assert self._transport is not None
        found = opened(self._request, self._tunnelled)
        if isinstance(found, Answer):
            self._finish(found, self._request.method.decode("ascii"))
            self.close()
            return
        transport, self._transport = self._transport, None
        self._silent_at = inf
        self._connections.discard(self)
        transport.set_protocol(found)
        found.connection_made(transport)
        rest = self._h11.trailing_data[0]
        if rest and not transport.is_closing():
            found.data_received(rest)

    def _answer(self) -> None:
        request = self._request_with(bytes(self._body))
        answer = self._route(request)
        if isinstance(answer, Answer):
            self._finish(answer, request.method)
        else:
            self._silent_at = inf
            self._task = self._loop.create_task(self._answer_later(answer, request))

    async def _answer_later(self, coming: Coroutine[Any, Any, Answer], request: Request) -> None:
        try:
            answer = await coming
        except Exception:  # noqa: BLE001 - a client gets an answer whatever happens
            _LOG.exception("request-failed method=%s path=%r", request.method, request.path)
            answer = refused(500, "The request failed; the broker's log says why.")
        self._task = None
        self._caller = None
        if self._transport is None or self._transport.is_closing():
            return
        self._finish(answer, request.method)
        if self._is_stopping:
            self.close()
        elif not self._is_choked:
            self._go_on()

    def _go_on(self) -> None:
        """Take up what the client has asked meanwhile, or wait for it to ask."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._bytes_ahead > _AHEAD_BYTES_MAX:
            self._transport.resume_reading()
        self._bytes_ahead = 0
        self._read()
        if self._task is not None or self._is_choked:
            return
        if self._is_ended:
            self.close()
        else:
            is_idle = not self._h11.trailing_data[0]
            self._wait(_IDLE_S_MAX if is_idle else _SILENCE_S_MAX)

    def _finish(self, answer: Answer, method: str) -> None:
        self._send(answer, method)
        if self._h11.our_state is h11.MUST_CLOSE:
            self.close()
        elif self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()

    def _refuse(self, answer: Answer) -> None:
        """Answer what is not read to its end, and then nothing more."""
        self._is_refusing = True
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.close()
            return
        headers = (*answer.headers, ("connection", "close"))
        last = Answer(
            answer.status, {}, headers, content=answer.body(), content_type=answer.content_type
        )
        self._send(last, "GET")
        assert self._transport is not None
        if self._transport.can_write_eof():
            # The client reads the answer and closes; a close from here could destroy the answer
            # while the client still sends. Its silence ends this too.
            self._transport.write_eof()
        else:
            self.close()

    def _send(self, answer: Answer, method: str) -> None:
        body = answer.body()
        headers = list(answer.headers)
        if body or answer.content is None:
            headers.append(("content-type", answer.content_type))
        if answer.status != _NO_CONTENT:
            headers.append(("content-length", str(len(body))))
        # Some clients show the words of the status to their users, and nothing else.
        reason = HTTPStatus(answer.status).phrase.encode()
        response = h11.Response(status_code=answer.status, headers=headers, reason=reason)
        parts = [self._h11.send(response)]
        if body and method != "HEAD":
            parts.append(self._h11.send(h11.Data(data=body)))
        parts.append(self._h11.send(h11.EndOfMessage()))
        assert self._transport is not None
        self._transport.write(b"".join(part for part in parts if part))

    def _wait(self, seconds: float = _SILENCE_S_MAX) -> None:
        self._silent_at = self._loop.time() + seconds
        timer = self._timer
        if timer is not None and timer.when() > self._silent_at:
            timer.cancel()
            timer = None
        if timer is None:
            self._timer = self._loop.call_at(self._silent_at, self._look_for_silence)

    def _look_for_silence(self) -> None:
        self._timer = None
        if self._silent_at <= self._loop.time():
            self.close()
        elif self._silent_at != inf:
            self._timer = self._loop.call_at(self._silent_at, self._look_for_silence)


def _target(head: h11.Request) -> bytes:
    """Give the path and the query, also where a client writes the whole address (RFC 9112, 3.2.2),
    as Java's does for WebSockets."""
    target = head.target
    if target.startswith(b"/"):
        return target
    scheme, is_whole, rest = target.partition(b"://")
    if not is_whole or scheme.lower() not in (b"http", b"https"):
        return target
    return b"/" + rest.partition(b"/")[2]
