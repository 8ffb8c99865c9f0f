"""The listener: it accepts connections on any number of ports; what each speaks is found out."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final, final

from peeklock.budgets import Budgets
from peeklock.gateway import logbook
from peeklock.gateway.listening.arrival import Arrival, Factory
from peeklock.gateway.listening.conduit import WRITE_S_MAX
from peeklock.gateway.listening.descriptors import SpareDescriptor, sockets_max
from peeklock.gateway.listening.handshakes import HANDSHAKES_MAX, Handshakes
from peeklock.gateway.listening.tls import Tls

_LOG: Final = logging.getLogger("peeklock.listeners")

_BACKLOG: Final = 1_024
# How many are accepted before those that are served get their turn again.
_ACCEPTED_AT_ONCE_MAX: Final = 16
# Connections that have not said what they speak. When there are more, the one that has waited
# longest is cut off: those who mean it are decided soon, and silence keeps nobody out.
UNDECIDED_MAX: Final = 5_000
_STEP_S_MAX: Final = 15.0
# How long a process lets the others accept that share its sockets.
_SHARING_S: Final = 0.001
# How long nothing is accepted when the system has no room for another connection.
_PAUSE_S: Final = 1.0
_NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


async def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of a host; nothing is accepted yet."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in dict.fromkeys((each[0], each[4]) for each in found):
        try:
            sockets.append(socket.create_server(address, family=family, backlog=_BACKLOG))
        except OSError as error:
            # A name may stand for addresses of a family that this machine does not have.
            if error.errno not in _NO_SUCH_ADDRESS:
                for each in sockets:
                    each.close()
                raise
            missing = error
    if missing is not None and not sockets:
        raise missing
    return sockets


@final
class Listener:
    """Accepts connections on every port; all ports serve all protocols, in clear and with TLS."""

    def __init__(
        self,
        amqp: Factory,
        http: Factory,
        tls: Tls | None = None,
        *,
        budgets: Budgets | None = None,
        make_room: Callable[[], bool] | None = None,
        undecided_max: int = UNDECIDED_MAX,
        handshakes_max: int = HANDSHAKES_MAX,
        step_s_max: float = _STEP_S_MAX,
        write_s_max: float = WRITE_S_MAX,
        is_shared: bool = False,
    ) -> None:
        """`make_room` lets somebody go who is served and can be spared, and tells whether. With
        `is_shared`, other processes accept on the same sockets and get their share."""
        self._is_shared = is_shared
        self.amqp = amqp
        self.http = http
        self.tls = tls
        self.step_s_max = step_s_max
        self.write_s_max = write_s_max
        budgets = budgets or Budgets()
        self._budget = budgets.register("sockets", sockets_max())
        self._undecided_budget = budgets.register("undecided_connections", undecided_max)
        self.handshakes = Handshakes(budgets.register("tls_handshakes", handshakes_max))
        self._make_room = make_room
        # In the order of their coming.
        self._undecided: dict[Arrival, None] = {}
        self._sockets: list[socket.socket] = []
        self._spare = SpareDescriptor()
        self._sparing = logbook.Sparing(_LOG)

    async def start(self, listener_name: str, host: str, port: int) -> int:
        """Listen; answers the port, which matters where 0 was asked for."""
        return self.adopt(listener_name, await bind(host, port))

    def adopt(self, listener_name: str, sockets: Sequence[socket.socket]) -> int:
        """Accept on sockets that listen already; answers the port."""
        loop = asyncio.get_running_loop()
        for listening in sockets:
            self._sockets.append(listening)
            listening.setblocking(False)
            loop.add_reader(listening, self._accept, listening)
            bound = listening.getsockname()
            # Those who read logs know the field by this name.
            line = logbook.line("listening", door=listener_name, host=bound[0], port=bound[1])
            _LOG.info("%s", line)
        port: int = sockets[0].getsockname()[1]
        return port

    def stop(self) -> None:
        """Accept nothing more, and end what has not begun."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for arrival in list(self._undecided):
            arrival.abort()
        self._spare.close()

    @property
    def undecided_count(self) -> int:
        """How many connections have not said what they speak."""
        return len(self._undecided)

    # --- what arrivals call

    def left(self, arrival: Arrival) -> None:
        """Forget a connection that is served by somebody, or gone."""
        if arrival in self._undecided:
            del self._undecided[arrival]
            self._undecided_budget.give_back(1)

    def closed(self) -> None:
        """The socket of a connection is closed."""
        self._budget.give_back(1)

    def log(self, event: str, peer: str, text: str) -> None:
        """Tell of a connection that came to nothing."""
        self._sparing.write(logging.INFO, event, peer=peer, text=text)

    # --- accepting

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(1 if self._is_shared else _ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if not self._refuse(listening, error):
                    self._pause(listening, error)
                    return
                continue
            if self._budget.is_exhausted:
                self._free_a_place()
            if not self._budget.take(1):
                self._turn_away(accepted, address)
                continue
            if self._undecided_budget.is_exhausted:
                self._undecided_budget.refused += 1
                next(iter(self._undecided)).abort()
            self._undecided_budget.take_anyway(1)
            accepted.setblocking(False)
            # asyncio does this for sockets that were made with the protocol's number; these were
            # not, and an answer would wait for the client's acknowledgement of the one before.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._undecided[Arrival(self, accepted, address)] = None
        if self._is_shared:
            # One, then the others have a chance; whoever has much to do comes less often.
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_SHARING_S, self._resume, listening)

    def _free_a_place(self) -> None:
        """Let go who is least missed; the place of one that is served is free a moment later."""
        if self._undecided:
            next(iter(self._undecided)).abort()
        elif self._make_room is not None:
            self._make_room()

    def _turn_away(self, accepted: socket.socket, address: object) -> None:
        accepted.close()
        peer = str(address[0]) if isinstance(address, tuple) else "unknown"
        text = f"There are {self._budget.limit} sockets, as many as there may be."
        self._sparing.write(logging.WARNING, "connection-refused", peer=peer, text=text)

    def _refuse(self, listening: socket.socket, error: OSError) -> bool:
        """Answer somebody for whom there is no descriptor, by the spare one."""
        if error.errno not in _NO_DESCRIPTOR:
            return False
        self._budget.refused += 1
        self._sparing.write(logging.WARNING, "connection-refused", text=str(error))
        self._free_a_place()
        return self._spare.refuse(listening)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Wait a little: connections that end make room, and trying on would only heat."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(_PAUSE_S, self._resume, listening)
        level = logging.WARNING if error.errno in _NO_ROOM else logging.ERROR
        self._sparing.write(level, "accept-failed", text=str(error))

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)
