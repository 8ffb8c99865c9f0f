"""A connection of our own engine over a socket: no framework between it and the kernel."""

import select
import time
from collections.abc import Callable
from typing import Final, final

from bench.way import Way
from peeklock.amqp.connection import CLIENT, Connection
from peeklock.amqp.events import AttachAnswered, Closed, Event, LinkDetached, SessionEnded
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.sasl import plain
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.sessions.session import Session
from peeklock.amqp.transitions import ENDED

READ_SIZE: Final = 1 << 18
# Wide enough that the session's window never limits what the credit of a link allows.
WINDOW: Final = 65_535
PLAIN_WAY: Final = Way()
HANDSHAKE_WITHIN_S: Final = 30.0
CLOSED_WITHIN_S: Final = 5.0


class LineError(Exception):
    """The server ended what the bench needs."""


@final
class Line:
    """One connection with one session; the owner reads, acts on the events, and flushes."""

    def __init__(
        self, port: int, user: str, password: str, name: str, way: Way = PLAIN_WAY
    ) -> None:
        self.socket, self._frames = way.connect(port)
        self.connection = Connection(
            role=CLIENT,
            container_id=f"peeklock-bench-{name}",
            limits=ConnectionLimits(incoming_window=WINDOW, links_max=256),
            now=now_ms(),
            hostname="localhost",
            credential=plain(user, password),
        )
        self.connection.start()
        self.session: Session = self.connection.begin_session()
        self._unsent = b""

    def fileno(self) -> int:
        """Let a selector wait for this line."""
        return self.socket.fileno()

    @property
    def is_stuck(self) -> bool:
        """Whether the kernel did not take everything; then the line waits to be writable."""
        return len(self._unsent) > 0

    def read(self) -> list[Event]:
        """Take what has come, in one pass of the engine; an end of anything is an error here."""
        try:
            data = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return []
        if not data:
            raise LineError("the server closed the connection")
        if self._frames is not None:
            data = self._frames.unwrap(data)
        events = self.connection.receive(data, now_ms())
        for event in events:
            if isinstance(event, (Closed, SessionEnded, LinkDetached)):
                raise LineError(f"the server said {event.error}")
        return events

    def flush(self) -> None:
        """Send what the engine has gathered, as far as the kernel takes it."""
        output = self.connection.take_output()
        if self._frames is not None and output:
            output = self._frames.wrap(output)
        if self._unsent:
            output = self._unsent + output
        if output:
            try:
                sent = self.socket.send(output)
            except BlockingIOError:
                sent = 0
            self._unsent = output[sent:]

    def wait_attached(self, link: Link) -> list[Event]:
        """Wait for the answer to an attach; what came with it is handed on."""
        deadline = time.monotonic() + HANDSHAKE_WITHIN_S
        seen: list[Event] = []
        while not any(isinstance(e, AttachAnswered) and e.link is link for e in seen):
            self.flush()
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self], [self] if self.is_stuck else [], [], left)[0]:
                raise LineError(f"no answer to the attach of {link.name}")
            seen += self.read()
        return seen

    def close(self) -> None:
        """End the session, then close, and wait for both answers.

        What was told last must be looked at before the connection goes: RabbitMQ drops what its
        session has not handled when the close overtakes it.
        """
        self.session.end()
        self._exchange_until(lambda: self.session.state == ENDED)
        self.connection.close()
        self._exchange_until(lambda: self.connection.closed)
        self.socket.close()

    def _exchange_until(self, done: Callable[[], bool]) -> None:
        """Write and read, and overlook what is said, until done or until it takes too long."""
        deadline = time.monotonic() + CLOSED_WITHIN_S
        while not done() and not self.connection.closed and time.monotonic() < deadline:
            self.flush()
            select.select([self], [self] if self.is_stuck else [], [], 0.1)
            try:
                data = self.socket.recv(READ_SIZE)
            except BlockingIOError:
                continue
            if not data:
                break
            if self._frames is not None:
                data = self._frames.unwrap(data)
            self.connection.receive(data, now_ms())
        self.flush()


def now_ms() -> int:
    """Tell the time as the engine wants it."""
    return time.time_ns() // 1_000_000
