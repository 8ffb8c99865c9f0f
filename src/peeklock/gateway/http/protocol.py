"""The skin between asyncio and h11: one request at a time, each answered in its turn."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from math import inf
from typing import Any, Final, Protocol, TypeAlias, final

import h11

from peeklock.amqp.dialect import WEBSOCKET_PATH
from peeklock.gateway import logbook
from peeklock.gateway.exposure import is_exposed
from peeklock.gateway.http.answer import Answer, bad_request, refused
from peeklock.gateway.http.caller import Caller
from peeklock.gateway.http.heads import HEAD_BYTES_MAX, problem_of_bytes, problem_of_framing
from peeklock.gateway.http.hosts import Hosts
from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.http.request import HttpRequest
from peeklock.step import STEP

# A client that is silent for longer is cut off: before its first request or within one, and between
# two, where clients that keep connections expect the service's patience.
_SILENCE_S_MAX: Final = 15.0
_IDLE_S_MAX: Final = 120.0
# And whoever is not silent has a time for all of a head, and for a body by its size: a byte now and
# then holds a place no longer than that.
HEAD_S_MAX: Final = 30.0
BODY_S_MAX: Final = 30.0
_BODY_BYTES_PER_S: Final = 16 * 1024
# How long a client has to read why its request is not read to the end.
_REFUSED_S_MAX: Final = 5.0
_NO_CONTENT: Final = 204
# Most requests are small: whoever takes more says so, and only then is it read.
BODY_BYTES_MAX: Final = 64 * 1024
# What a client may send ahead while an answer is worked on; more stays with the system.
_AHEAD_BYTES_MAX: Final = 64 * 1024
# What is taken up at a time, because what was not read yet is looked at with each head.
_PIECE_BYTES_MAX: Final = 32 * 1024
# Requests that are answered before others have their turn.
_ANSWERS_IN_A_ROW_MAX: Final = 16
# The same for pieces of heads and bodies: somebody may send a body byte by byte in one read.
_EVENTS_IN_A_ROW_MAX: Final = 128
_LATER: Final = (("retry-after", "1"),)
# Where AMQP over WebSockets is asked for; some clients add a slash.
_WEBSOCKETS: Final = WEBSOCKET_PATH.encode()

Route: TypeAlias = Callable[[HttpRequest], Answer | Coroutine[Any, Any, Answer]]
"""Answers a request, at once or later."""

Tunnelled: TypeAlias = Callable[[], asyncio.Protocol]
"""Makes the protocol class for what is inside a WebSocket."""

_LOG: Final = logging.getLogger("peeklock.http")
_SPARING: Final = logbook.Sparing(_LOG)


class Bounds(Protocol):
    """Says how large the body of a request may be that is larger than most."""

    def body_bytes_max(self, request: HttpRequest) -> int:
        """The bound, asked with the head alone."""
        ...

    def too_large(self, request: HttpRequest) -> Answer:
        """What a client is told whose body is larger."""
        ...


@final
class HttpProtocol(asyncio.Protocol):
    """One connection of the HTTP listener."""

    def __init__(
        self,
        route: Route,
        connection_quota: HttpConnectionQuota,
        *,
        bounds: Bounds | None = None,
        hosts: Hosts | None = None,
        tunnelled: Tunnelled | None = None,
    ) -> None:
        """Without what is `tunnelled` in them there are no WebSockets."""
        self._route = route
        self._connection_quota = connection_quota
        self._bounds = bounds
        self._hosts = hosts
        self._tunnelled = tunnelled
        self._loop = asyncio.get_running_loop()
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        # What has come and was not taken up.
        self._ahead = bytearray()
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._body_bytes_max = BODY_BYTES_MAX
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._is_exposed = False
        self._scheme = "http"
        # When the client has been silent for too long, and the timer that looks whether it has:
        # one for many requests, because each moves the instant.
        self._silent_at = inf
        self._timer: asyncio.TimerHandle | None = None
        # When all of the head, or of the body, must be there.
        self._whole_by = inf
        self._begun_at = 0.0
        # The answer that somebody is working on, and who waits for it; no other request is taken
        # up meanwhile.
        self._task: asyncio.Task[None] | None = None
        self._caller: Caller | None = None
        self._is_ended = False
        # Others have their turn before more is answered.
        self._is_resting = False
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
        self._is_exposed = is_exposed(transport)
        if transport.get_extra_info("sslcontext") is not None:
            self._scheme = "https"
        if self._connection_quota.joined(self):
            self._whole_by = self._loop.time() + HEAD_S_MAX
            self._wait()
        else:
            text = "There are as many connections by HTTP as there may be. Try again later."
            _SPARING.write(logging.WARNING, "http-refused", peer=self._peer, text=text)
            self._is_refusing = True
            headers = (*_LATER, ("connection", "close"))
            self._send(Answer(503, {"error": text}, headers), "GET")
            self.close()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The connection is gone; what it asked for is still carried out."""
        self._connection_quota.left(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._caller is not None:
            self._caller.left()

    def data_received(self, data: bytes) -> None:
        """Bytes came; whole requests among them are answered."""
        if self._is_refusing:
            return
        self._ahead += data
        if not self._is_occupied:
            self._read()
            self._pace()
        self._bound_ahead()

    def _bound_ahead(self) -> None:
        """Read on, because it tells when the client hangs up, but let nobody fill our memory."""
        if self._transport is None or self._transport.is_closing():
            return
        if len(self._ahead) > _AHEAD_BYTES_MAX:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    @property
    def _is_occupied(self) -> bool:
        """Whether nothing more is taken up for now."""
        return self._task is not None or self._is_choked or self._is_resting

    def eof_received(self) -> bool:
        """The client has said all; it may still wait for an answer."""
        self._is_ended = True
        if self._caller is not None:
            self._caller.left()
        # With TLS there is no half of a connection: it is closed whatever is said here.
        return self._scheme == "http" and self._is_occupied

    def pause_writing(self) -> None:
        """The client does not read what it has asked for."""
        self._is_choked = True

    def resume_writing(self) -> None:
        """The client reads again; what it has asked meanwhile is answered."""
        self._is_choked = False
        self._connection_quota.read(self)
        if not self._is_occupied and not self._is_refusing:
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

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _read(self) -> None:
        try:
            self._read_events()
        except h11.RemoteProtocolError as error:
            self._refuse(bad_request(f"The request cannot be read: {error}."))

    def _read_events(self) -> None:
        answers = events = 0
        while not (self._is_occupied or self._is_refusing):
            if answers == _ANSWERS_IN_A_ROW_MAX or events == _EVENTS_IN_A_ROW_MAX:
                self._is_resting = True
                self._loop.call_soon(self._rested)
                return
            events += 1
            if self._h11.their_state is h11.IDLE:
                problem = problem_of_bytes(self._h11.trailing_data[0])
                if problem is not None:
                    self._refuse(problem)
                    return
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._take_body(event.data)
            elif isinstance(event, h11.EndOfMessage):
                if self._is_for_websockets():
                    self._upgrade()
                    return
                self._answer()
                answers += 1
            elif event is h11.NEED_DATA and self._ahead:
                self._h11.receive_data(bytes(self._ahead[:_PIECE_BYTES_MAX]))
                del self._ahead[:_PIECE_BYTES_MAX]
            else:
                # NEED_DATA, PAUSED or a closed connection: nothing more to read for now.
                if isinstance(event, h11.ConnectionClosed):
                    self.close()
                return

    def _rested(self) -> None:
        self._is_resting = False
        if not self._is_occupied and not self._is_refusing:
            self._go_on()

    def _begin(self, head: h11.Request) -> None:
        self._request = head
        self._body.clear()
        self._body_bytes_max = BODY_BYTES_MAX
        self._begun_at = self._loop.time()
        self._whole_by = self._begun_at + BODY_S_MAX
        problem = problem_of_framing(head) or self._problem_of_host(head)
        if problem is not None:
            self._refuse(problem)
            return
        for name, value in head.headers:
            if name == b"content-length":
                self._check_size(int(value))
        if self._h11.they_are_waiting_for_100_continue and not self._is_refusing:
            assert self._transport is not None
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._transport.write(self._h11.send(go_on) or b"")

    def _problem_of_host(self, head: h11.Request) -> Answer | None:
        if self._hosts is None:
            return None
        host = origin = ""
        for name, value in head.headers:
            if name == b"host":
                host = value.decode("latin-1")
            elif name == b"origin":
                origin = value.decode("latin-1")
        problem = self._hosts.refusal(host, origin)
        if problem is not None:
            text = str(problem.document["error"])
            _SPARING.write(logging.WARNING, "http-refused", peer=self._peer, text=text)
        return problem

    def _take_body(self, data: bytes) -> None:
        self._body += data
        size = len(self._body)
        self._check_size(size)
        if self._is_refusing:
            return
        self._whole_by = self._begun_at + BODY_S_MAX + size / _BODY_BYTES_PER_S
        if size > BODY_BYTES_MAX and not self._connection_quota.takes_body(self, len(data)):
            text = "Too much is sent by HTTP just now. Try again later."
            _SPARING.write(logging.WARNING, "http-refused", peer=self._peer, text=text)
            self._refuse(Answer(503, {"error": text}, _LATER))

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

    def _request_with(self, body: bytes) -> HttpRequest:
        head = self._request
        assert head is not None
        headers = head.headers
        self._caller = Caller(is_gone=self._is_ended)
        return HttpRequest(
            head.method.decode("ascii"),
            _target(head).decode("ascii"),
            {name.decode("ascii"): value.decode("latin-1") for name, value in headers},
            body,
            self._peer,
            named=headers.raw_items(),
            scheme=self._scheme,
            caller=self._caller,
            is_exposed=self._is_exposed,
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
        from peeklock.gateway.listening.websocket import opened

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
        self._connection_quota.left(self)
        transport.set_protocol(found)
        found.connection_made(transport)
        rest = self._h11.trailing_data[0] + bytes(self._ahead)
        self._ahead.clear()
        if rest and not transport.is_closing():
            found.data_received(rest)

    def _answer(self) -> None:
        self._whole_by = inf
        request = self._request_with(bytes(self._body))
        STEP.work = f"{request.method} {request.path}"
        answer = self._route(request)
        if isinstance(answer, Answer):
            self._finish(answer, request.method)
        else:
            self._silent_at = inf
            self._connection_quota.busy(self)
            self._task = self._loop.create_task(self._answer_later(answer, request))

    async def _answer_later(
        self, coming: Coroutine[Any, Any, Answer], request: HttpRequest
    ) -> None:
        STEP.work = f"{request.method} {request.path}"
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
        self._read()
        self._bound_ahead()
        if self._is_ended and not self._is_occupied:
            self.close()
        else:
            self._pace()

    def _pace(self) -> None:
        """Set until when the client must have said more."""
        if self._transport is None or self._is_occupied:
            self._silent_at = inf
        elif self._is_refusing:
            self._wait(_REFUSED_S_MAX)
        elif self._h11.their_state is h11.IDLE and not self._h11.trailing_data[0]:
            self._whole_by = inf
            self._wait(_IDLE_S_MAX)
        else:
            if self._whole_by == inf:
                self._whole_by = self._loop.time() + HEAD_S_MAX
            self._wait()

    def _finish(self, answer: Answer, method: str) -> None:
        self._body.clear()
        self._connection_quota.gave_body(self)
        self._connection_quota.answered(self)
        self._send(answer, method)
        if self._h11.our_state is h11.MUST_CLOSE:
            self.close()
        elif self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()

    def _refuse(self, answer: Answer) -> None:
        """Answer what is not read to its end, and then nothing more."""
        self._is_refusing = True
        self._whole_by = inf
        self._body.clear()
        self._ahead.clear()
        self._connection_quota.gave_body(self)
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
        transport = self._transport
        assert transport is not None
        transport.write(b"".join(part for part in parts if part))
        if self._is_choked:
            self._connection_quota.leaves_unread(self, len(body))

    def _wait(self, seconds: float = _SILENCE_S_MAX) -> None:
        self._silent_at = min(self._loop.time() + seconds, self._whole_by)
        timer = self._timer
        if timer is not None and timer.when() > self._silent_at:
            timer.cancel()
            timer = None
        if timer is None:
            self._timer = self._loop.call_at(self._silent_at, self._look_for_silence)

    def _look_for_silence(self) -> None:
        self._timer = None
        if self._silent_at > self._loop.time():
            if self._silent_at != inf:
                self._timer = self._loop.call_at(self._silent_at, self._look_for_silence)
        elif self._is_refusing or self._whole_by == inf:
            self.close()
        else:
            # Something was begun and not ended.
            self._refuse(refused(408, "The request did not come in the time allowed for it."))
            self._wait(_REFUSED_S_MAX)


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
