"""One connection between two processes of a cluster: values in both directions.

What is sent in one turn of the loop leaves in one write. Whoever hears nothing for a while, not
even that the other side lives, takes it for lost: a process that is stopped keeps its sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, final

import msgpack

from peeklock.store.store import (
    Away,
    Broken,
    Corrupt,
    Fenced,
    StoreError,
    Unavailable,
)
from peeklock.store.stores import UnknownStore

COMMAND: Final = 0
REPLY: Final = 1
_REQUEST: Final = 2
_ANSWER: Final = 3
_FAILURE: Final = 4
_NOTICE: Final = 5
_ALIVE: Final = 6

# How often a process says that it lives, and how long the other side believes it.
ALIVE_S: Final = 1.0
LOST_S: Final = 8.0

# What may lie unread in the other process before this one stops being read from, too: commands
# and deliveries are bounded by credit and by rounds, so that only a stopped process gets there.
_UNREAD_MAX: Final = 512 << 20
# From here on messages are refused that others want to send there.
_CONGESTED: Final = 64 << 20

_ERRORS: Final[dict[str, type[StoreError]]] = {
    each.__name__: each
    for each in (Away, Broken, Corrupt, Fenced, UnknownStore, Unavailable, StoreError)
}

_LOG: Final = logging.getLogger("peeklock.cluster")


class Side(Protocol):
    """What a channel needs of whoever has it."""

    def heard(self, kind: int, value: list[Any]) -> None:
        """A command or a reply has come."""
        ...

    def noticed(self, channel: Channel, name: str, arguments: list[Any]) -> None:
        """Something was said that wants no answer."""
        ...

    async def asked(self, channel: Channel, name: str, arguments: list[Any]) -> Any:
        """Answer a request; a StoreError goes back as such."""
        ...

    def lost(self, channel: Channel) -> None:
        """The connection is gone."""
        ...


@final
class Channel(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, side: Side, name: str) -> None:
        self.name = name
        self._side = side
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._packer = msgpack.Packer(unicode_errors="surrogatepass")
        self._unpacker = msgpack.Unpacker(
            raw=False, strict_map_key=False, unicode_errors="surrogatepass", max_buffer_size=0
        )
        self._out: list[bytes] = []
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._last_request = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard_at = self._loop.time()
        self._said_at = self._heard_at
        # Whether silence of the other side means nothing: it is about to begin.
        self.is_patient = False
        self._alive_timer: asyncio.TimerHandle | None = None
        self._closed = asyncio.Event()

    @property
    def is_congested(self) -> bool:
        """Whether so much waits to be read by the other side that nothing large should follow."""
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() > _CONGESTED

    @property
    def is_open(self) -> bool:
        """Whether values still go through."""
        return self._transport is not None

    # ---- sending

    def send(self, kind: int, value: Any) -> None:
        """Send a command or a reply; it leaves at the end of this turn."""
        if not self._out:
            self._loop.call_soon(self._write)
        self._out.append(self._packer.pack([kind, value]))

    def notify(self, name: str, *arguments: Any) -> None:
        """Say something that wants no answer."""
        self.send(_NOTICE, [name, arguments])

    async def request(self, name: str, *arguments: Any) -> Any:
        """Ask and wait for the answer; Away where there is no connection, Unavailable where it
        ends before the answer has come."""
        if self._transport is None:
            raise Away(f"{self.name} is out of reach")
        self._last_request += 1
        number = self._last_request
        answered = self._requests[number] = self._loop.create_future()
        self.send(_REQUEST, [number, name, arguments])
        try:
            return await answered
        finally:
            self._requests.pop(number, None)

    def close(self) -> None:
        """End the connection once what was sent has left."""
        if self._transport is not None:
            self._write()
            self._transport.close()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await self._closed.wait()

    def _write(self) -> None:
        out, self._out = self._out, []
        if self._transport is None or not out:
            return
        self._transport.write(b"".join(out))
        if self._transport.get_write_buffer_size() > _UNREAD_MAX:
            _LOG.error("channel-stuck peer=%s", self.name)
            self._transport.abort()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._heard_at = self._said_at = self._loop.time()
        self._say_alive()

    def data_received(self, data: bytes) -> None:
        """Take in what came; a value that makes no sense ends the connection."""
        self._heard_at = self._loop.time()
        try:
            self._unpacker.feed(data)
            for kind, value in self._unpacker:
                self._take(kind, value)
        except Exception:  # noqa: BLE001 - whatever it was, what follows cannot be trusted
            _LOG.exception("channel-failed peer=%s", self.name)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Everybody who waits is told."""
        self._transport = None
        if self._alive_timer is not None:
            self._alive_timer.cancel()
        text = f"{self.name} is out of reach{'' if error is None else f': {error}'}"
        for answered in list(self._requests.values()):
            if not answered.done():
                answered.set_exception(Unavailable(text))
        # What was asked here goes on: it may have changed something already.
        self._closed.set()
        self._side.lost(self)

    def _take(self, kind: int, value: Any) -> None:
        if kind <= REPLY:
            self._side.heard(kind, value)
        elif kind == _REQUEST:
            number, name, arguments = value
            task = self._loop.create_task(
                self._serve(number, self._side.asked(self, name, arguments))
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif kind == _NOTICE:
            self._side.noticed(self, value[0], value[1])
        elif kind == _ALIVE:
            return
        elif kind in (_ANSWER, _FAILURE):
            answered = self._requests.get(value[0])
            if answered is None or answered.done():
                return
            if kind == _ANSWER:
                answered.set_result(value[1])
            else:
                answered.set_exception(_ERRORS.get(value[1], Unavailable)(value[2]))

    async def _serve(self, number: int, work: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await work
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the other side is told, whatever it was
            if not isinstance(error, StoreError):
                _LOG.exception("request-failed peer=%s", self.name)
            self.send(_FAILURE, [number, type(error).__name__, str(error)])
        else:
            self.send(_ANSWER, [number, result])

    def _say_alive(self) -> None:
        if self._transport is None:
            return
        now = self._loop.time()
        if now - self._said_at > 2 * ALIVE_S:
            # This process stood still itself, and maybe all of them: the other side has its time.
            self._heard_at = now
        self._said_at = now
        if now - self._heard_at > LOST_S and not self.is_patient:
            _LOG.error("channel-silent peer=%s seconds=%d", self.name, LOST_S)
            self._transport.abort()
            return
        self.send(_ALIVE, None)
        self._alive_timer = self._loop.call_later(ALIVE_S, self._say_alive)


async def connect(path: str, side: Side, name: str) -> Channel:
    """Connect to the process that serves at a path; OSError where nobody does."""
    channel = Channel(side, name)
    await asyncio.get_running_loop().create_unix_connection(lambda: channel, path)
    return channel


async def serve(path: str, side_of: Callable[[], Side]) -> asyncio.Server:
    """Serve at a path; each connection gets a side of its own."""
    loop = asyncio.get_running_loop()
    return await loop.create_unix_server(lambda: Channel(side_of(), "a node"), path)
