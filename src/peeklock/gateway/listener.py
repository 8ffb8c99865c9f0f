"""The listener: it accepts connections on any number of ports; what each speaks is found out."""

import asyncio
import errno
import logging
import socket
from typing import Final, final

from peeklock.gateway import logbook
from peeklock.gateway.arrival import Arrival, Factory
from peeklock.gateway.tls import Tls

_LOG: Final = logging.getLogger("peeklock.listeners")

_BACKLOG: Final = 1_024
# How many are accepted before those that are served get their turn again.
_ACCEPTED_AT_ONCE_MAX: Final = 64
# Connections that have not said what they speak. When there are more, the one that has waited
# longest is cut off: those who mean it are decided soon, and silence keeps nobody out.
UNDECIDED_MAX: Final = 5_000
_STEP_S_MAX: Final = 15.0
# How long nothing is accepted when the system has no room for another connection.
_PAUSE_S: Final = 1.0
_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@final
class Listener:
    """Accepts connections on every port; all ports serve all protocols, in clear and with TLS."""

    def __init__(
        self,
        amqp: Factory,
        http: Factory,
        tls: Tls | None = None,
        *,
        undecided_max: int = UNDECIDED_MAX,
        step_s_max: float = _STEP_S_MAX,
    ) -> None:
        self.amqp = amqp
        self.http = http
        self.tls = tls
        self.step_s_max = step_s_max
        self._undecided_max = undecided_max
        # In the order of their coming.
        self._undecided: dict[Arrival, None] = {}
        self._sockets: list[socket.socket] = []

    async def start(self, door: str, host: str, port: int) -> int:
        """Listen; answers the port, which matters where 0 was asked for."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ports: list[int] = []
        missing: OSError | None = None
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            try:
                listening = socket.create_server(address, family=family, backlog=_BACKLOG)
            except OSError as error:
                # A name may stand for addresses of a family that this machine does not have.
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
                missing = error
                continue
            self._sockets.append(listening)
            listening.setblocking(False)
            loop.add_reader(listening, self._accept, listening)
            name = listening.getsockname()
            ports.append(name[1])
            _LOG.info("%s", logbook.line("listening", door=door, host=name[0], port=name[1]))
        if missing is not None and not ports:
            raise missing
        return ports[0]

    def stop(self) -> None:
        """Accept nothing more, and end what has not begun."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for arrival in list(self._undecided):
            arrival.abort()

    @property
    def undecided_count(self) -> int:
        """How many connections have not said what they speak."""
        return len(self._undecided)

    def left(self, arrival: Arrival) -> None:
        """Forget a connection that is served by somebody, or gone."""
        self._undecided.pop(arrival, None)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            if len(self._undecided) >= self._undecided_max:
                next(iter(self._undecided)).abort()
            accepted.setblocking(False)
            # asyncio does this for sockets that were made with the protocol's number; these were
            # not, and an answer would wait for the client's acknowledgement of the one before.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._undecided[Arrival(self, accepted, address)] = None

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Wait a little: connections that end make room, and trying on would only heat."""
        level = logging.WARNING if error.errno in _NO_ROOM else logging.ERROR
        _LOG.log(level, "%s", logbook.line("accept-failed", text=str(error)))
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(_PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)
