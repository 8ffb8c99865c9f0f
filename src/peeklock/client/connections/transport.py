"""One socket with the engine inside: bytes become events for links, what links say becomes bytes.

Nothing here happens per message. A pass of the engine takes all that one read brought; whatever
follows from it, and all that callers say in the same turn of the loop, leaves in one write.
"""

import asyncio
import platform
import uuid
from collections.abc import Awaitable
from typing import Any, Final, Protocol, final

from peeklock.amqp.connection import CLIENT, Connection
from peeklock.amqp.errors import UNAUTHORIZED_ACCESS, AmqpError
from peeklock.amqp.events import (
    AnswersReceived,
    AttachAnswered,
    Closed,
    Event,
    FlowReceived,
    LinkDetached,
    Opened,
    SessionEnded,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sasl import anonymous
from peeklock.amqp.sessions.delivery import IncomingDelivery, OutgoingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.session import Session
from peeklock.amqp.transitions import BEGIN_SENT, DETACHED, MAPPED
from peeklock.amqp.values.types import Symbol
from peeklock.client.connections.config import ClientConfig
from peeklock.client.connections.proxy import tunnel
from peeklock.client.connections.tracing import Trace
from peeklock.client.connections.websocket import WebSocketError, WebSocketFraming
from peeklock.client.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    from_error,
)
from peeklock.version import VERSION

# Wide enough that the session's window never limits what the credit of a link allows.
_WINDOW: Final = 65_535
# So much may wait in the socket before sends are held back; a batch is up to a MiB.
_OUTPUT_BYTES_MAX: Final = 1 << 20
# A deadline in the past is looked at in the next turn of the loop.
_WAIT_S_MIN: Final = 0.001


class LinkEnd(Protocol):
    """Our end of a link: what the transport tells it. `context` of the engine's link holds it."""

    def on_attached(self) -> None:
        """The broker has attached its side."""
        ...

    def on_transfers(self, deliveries: list[IncomingDelivery]) -> None:
        """Messages came."""
        ...

    def on_outcomes(
        self, outcome: bytes, is_settled: bool, deliveries: list[OutgoingDelivery]
    ) -> None:
        """The broker told what became of messages that were sent."""
        ...

    def on_answers(self, state: bytes, ids: list[int]) -> None:
        """The broker answered what we told of messages that came."""
        ...

    def on_flow(self) -> None:
        """Credit or drain changed."""
        ...

    def on_gone(self, error: ServiceBusError, lost: list[OutgoingDelivery]) -> None:
        """The link is no more; `lost` was sent and has no outcome."""
        ...

    def pump(self) -> None:
        """Output is about to be written: send what waits."""
        ...


@final
class Transport(asyncio.Protocol):
    """One connection, from its first byte to its last; when it is lost, it stays so."""

    def __init__(self, config: ClientConfig) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.connection: Final = Connection(
            role=CLIENT,
            container_id=f"peeklock-{uuid.uuid4()}",
            limits=ConnectionLimits(
                incoming_window=_WINDOW, idle_timeout_ms=round(config.idle_timeout_s * 1000)
            ),
            now=self._now(),
            hostname=config.host,
            credential=anonymous(),
            properties=_properties(config.user_agent),
        )
        # Done when the broker has opened its side; fails when it never does.
        self.opened: Final[asyncio.Future[None]] = self.loop.create_future()
        # Done when nothing is left of the connection.
        self.ended: Final[asyncio.Future[None]] = self.loop.create_future()
        # Why it is over, once it is.
        self.error: ServiceBusError | None = None
        self._framing = (
            WebSocketFraming(f"{config.host}:{config.port}", config.websocket_path)
            if config.is_websocket
            else None
        )
        self._transport: asyncio.Transport | None = None
        self._is_one_session: Final = config.is_one_session
        self._shared: Session | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_flush_due = False
        self._is_held = False
        # How long the broker may leave unread what it was sent, and what watches that.
        self.socket_timeout_s = config.socket_timeout_s
        self._unread: asyncio.TimerHandle | None = None
        name = f"{config.host}:{config.port}"
        self._came = Trace(name, "<") if config.is_traced else None
        self._went = Trace(name, ">") if config.is_traced else None
        self._ends: set[LinkEnd] = set()
        self._pumping: list[LinkEnd] = []
        # Links whose detach was sent and is not answered.
        self._leaving: dict[Link, asyncio.Future[None]] = {}

    @property
    def is_alive(self) -> bool:
        """Whether links can be attached."""
        return self.error is None and not self.connection.closed

    # --- what ends call

    def begin_session(self) -> Session:
        """Begin a session for a link, or for a pair that belongs together."""
        if not self.is_alive:
            raise ServiceBusConnectionError("the connection is gone")
        try:
            return self.connection.begin_session()
        except ValueError as error:
            raise ServiceBusQuotaExceededError(f"too many links: {error}") from error

    def entity_session(self) -> Session:
        """Return the session for links to entities: one for each, or one for all (transactions)."""
        if not self._is_one_session:
            return self.begin_session()
        shared = self._shared
        if shared is None or shared.state not in (BEGIN_SENT, MAPPED):
            shared = self.begin_session()
            self._shared = shared
        return shared

    def end_session(self, session: Session) -> None:
        """End the session of a link that is gone, unless others use it."""
        if session is not self._shared:
            session.end()

    def join(self, end: LinkEnd) -> None:
        """Note an end that must be told when the connection is lost."""
        self._ends.add(end)

    def leave(self, end: LinkEnd) -> None:
        """Forget an end."""
        self._ends.discard(end)

    def pump_soon(self, end: LinkEnd) -> None:
        """Let an end send before the next output is written."""
        self._pumping.append(end)
        self.wake()

    def wake(self) -> None:
        """Write what the engine has gathered at the end of this turn of the loop."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.loop.call_soon(self._flush)

    def detached(self, link: Link) -> Awaitable[None]:
        """Wait until the broker has answered a detach; it is answered, too, by any other end."""
        future: asyncio.Future[None] = self.loop.create_future()
        if link.state == DETACHED or self.ended.done():
            future.set_result(None)
        else:
            self._leaving[link] = future
        return future

    # --- the end

    async def close(self) -> None:
        """Close politely; a broker that does not answer in time is left."""
        if self._transport is None or self.ended.done():
            return
        self.connection.close()
        self._tell_all(ServiceBusConnectionError("the connection was closed"))
        self.wake()
        self._tick()
        await asyncio.shield(self.ended)

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected (asyncio has set TCP_NODELAY), and encrypted if it should be."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_OUTPUT_BYTES_MAX)
        self.connection.start()
        if self._framing is None:
            self.wake()
        else:
            transport.write(self._framing.opening)
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Bytes came: one pass of the engine; its output is written with what callers add."""
        if self._framing is not None:
            try:
                data = self._unwrapped(self._framing, data)
            except WebSocketError as error:
                self._end(ServiceBusConnectionError(str(error)))
                return
        if self._came is not None:
            self._came.take(data)
        self._take(self.connection.receive(data, self._now()))
        while self.connection.splitter.rest:
            self._take(self.connection.receive(b"", self._now()))
        self.wake()

    def pause_writing(self) -> None:
        """The broker reads more slowly than it is written to: sends wait where they are."""
        self._is_held = True
        if self.socket_timeout_s is not None:
            self._unread = self.loop.call_later(self.socket_timeout_s, self._give_up)

    def resume_writing(self) -> None:
        """The broker has caught up."""
        self._is_held = False
        self._forget_unread()
        self.wake()

    def _give_up(self) -> None:
        self._tell_all(
            ServiceBusConnectionError(
                f"the broker has read nothing for {self.socket_timeout_s} s (socket_timeout)"
            )
        )
        self.abort()

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, whoever ended it."""
        if self._timer is not None:
            self._timer.cancel()
        self._forget_unread()
        reason = "the connection was closed" if exc is None else f"the connection was lost: {exc}"
        self._tell_all(ServiceBusConnectionError(reason))
        for future in self._leaving.values():
            _resolve(future)
        self._leaving.clear()
        _resolve(self.ended)

    # --- events

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, TransfersReceived):
                _end(event.link).on_transfers(event.deliveries)
            elif isinstance(event, SettlementsReceived):
                _end(event.link).on_outcomes(event.outcome, event.settled, event.deliveries)
            elif isinstance(event, AnswersReceived):
                _end(event.link).on_answers(event.state, event.ids)
            elif isinstance(event, FlowReceived):
                _end(event.link).on_flow()
            elif isinstance(event, AttachAnswered):
                _end(event.link).on_attached()
            elif isinstance(event, LinkDetached):
                lost = event.unsettled + event.unsent
                self._gone(event.link, event.error, "the link was detached", lost)
                # Nothing else of use is in its session; of a pair, the other link goes with it.
                self.end_session(event.link.session)
            elif isinstance(event, SessionEnded):
                for link in event.links:
                    self._gone(link, event.error, "the session was ended", link.unsettled())
            elif isinstance(event, Opened):
                _resolve(self.opened)
                # Only now it is known how often the broker wants to hear something.
                self.loop.call_soon(self._tick)
            elif isinstance(event, Closed):
                self._tell_all(_why(event))
        if self._leaving:
            self._look_for_detached()

    def _gone(
        self, link: Link, error: AmqpError | None, otherwise: str, lost: list[OutgoingDelivery]
    ) -> None:
        end = _end(link)
        self._ends.discard(end)
        end.on_gone(from_error(error, otherwise), lost)

    def _look_for_detached(self) -> None:
        # The engine does not tell of a detach that we asked for ourselves.
        for link in [link for link in self._leaving if link.state == DETACHED]:
            _resolve(self._leaving.pop(link))

    def _tell_all(self, error: ServiceBusError) -> None:
        """The connection is over for every link; the first reason is the one that counts."""
        if self.error is not None:
            return
        self.error = error
        if not self.opened.done():
            self.opened.set_exception(error)
            # Whoever opens may have given up; then nobody wants to know.
            self.opened.exception()
        ends, self._ends = self._ends, set()
        for end in ends:
            end.on_gone(error, [])

    # --- output and time

    def _flush(self) -> None:
        self._is_flush_due = False
        transport, connection = self._transport, self.connection
        if transport is None or self._is_held or transport.is_closing():
            return
        framing = self._framing
        if framing is not None and not framing.is_open:
            return
        pumping, self._pumping = self._pumping, []
        for end in pumping:
            end.pump()
        if connection.has_output:
            output = connection.take_output()
            if self._went is not None:
                self._went.take(output)
            transport.write(output if framing is None else framing.wrap(output))
        if connection.closed:
            self._end(ServiceBusConnectionError("the connection is over"))

    def _end(self, error: ServiceBusError) -> None:
        self._tell_all(error)
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if self._framing is not None:
                transport.write(self._framing.goodbye())
            transport.close()

    def _unwrapped(self, framing: WebSocketFraming, data: bytes) -> bytes:
        carried = framing.unwrap(data)
        if framing.answer and self._transport is not None:
            self._transport.write(framing.answer)
            framing.answer = b""
        return carried

    def _tick(self) -> None:
        """Send a heartbeat when due, give up on a silent broker, and come again."""
        now = self._now()
        due = self.connection.tick(now)
        if self.connection.closed:
            self._take(self.connection.receive(b"", now))
        if self.connection.has_output or self.connection.closed:
            self.wake()
        if self._timer is not None:
            self._timer.cancel()
        if due is not None:
            self._timer = self.loop.call_later(max(_WAIT_S_MIN, (due - now) / 1000), self._tick)
        elif self.connection.closed:
            # Nobody was heard of for too long: what the socket does not take now is not waited for.
            self.loop.call_soon(self.abort)

    def _now(self) -> int:
        # The engine only measures, so that the loop's own clock will do; it is never set back.
        return int(self.loop.time() * 1000)


async def connect(config: ClientConfig) -> Transport:
    """Connect a socket, and encrypt it if that is wished; OSError where nobody is."""
    loop = asyncio.get_running_loop()
    context = config.ssl_context
    name = None if context is None else config.address
    if config.proxy is None:
        _, transport = await loop.create_connection(
            lambda: Transport(config),
            config.address,
            config.port,
            ssl=context,
            server_hostname=name,
        )
        return transport
    way = await tunnel(config.proxy, config.address, config.port)
    try:
        _, transport = await loop.create_connection(
            lambda: Transport(config), sock=way, ssl=context, server_hostname=name
        )
    except BaseException:
        way.close()
        raise
    return transport


def _properties(user_agent: str) -> dict[Any, Any]:
    """Tell the broker who connects, as the official clients do."""
    framework = f"Python/{platform.python_version()}"
    own = f"peeklock/{VERSION} {framework} ({platform.platform()})"
    return {
        Symbol("product"): "peeklock",
        Symbol("version"): VERSION,
        Symbol("framework"): framework,
        Symbol("platform"): platform.platform(),
        Symbol("user-agent"): f"{user_agent} {own}".strip(),
    }


def _why(closed: Closed) -> ServiceBusError:
    """Return why a connection is over: by the broker's wish, or because it fell silent or erred."""
    error = closed.error
    if closed.by_peer or error is None:
        return from_error(error, "the broker closed the connection")
    text = error.description or error.condition
    if error.condition == UNAUTHORIZED_ACCESS:
        return ServiceBusAuthenticationError(text, condition=error.condition)
    return ServiceBusConnectionError(f"the connection was given up: {text}")


def _end(link: Link) -> LinkEnd:
    end: Any = link.context
    found: LinkEnd = end
    return found


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
