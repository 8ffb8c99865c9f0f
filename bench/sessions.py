"""What do 10,000 message sessions cost?

A queue with sessions is filled with a few messages for each of them. Then a number of links take
the next session that is free, complete its messages, let it go and ask for the next, until all are
empty. Beside it, the same messages go through a queue without sessions.
"""

import select
import time
from typing import Final, final

from bench import client, proc
from bench.endpoint import Endpoint
from bench.ends import SECOND
from bench.figures import machine, table
from bench.line import READ_SIZE, Line, LineError, now_ms
from bench.loads import STALLED_S, Flood, Progress
from bench.peeklock_server import Peeklock
from bench.plan import Plan
from peeklock.amqp.events import AnswersReceived, AttachAnswered, Closed, Event, TransfersReceived
from peeklock.amqp.frames.termini import Source
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import ACCEPTED
from peeklock.amqp.values.types import Symbol, Uint

SESSIONS: Final = 10_000
MESSAGES_EACH: Final = 10
LINKS: Final = 50
WINDOW: Final = 1_000
FILTER: Final = Symbol("com.microsoft:session-filter")
TIMEOUT: Final = Symbol("com.microsoft:timeout")


def answer(plan: Plan) -> None:
    """Fill, drain session by session, and print both rates beside those of a plain queue."""
    print(machine(plan.directory))
    sessions = SESSIONS // (20 if plan.quick else 1)
    messages = sessions * MESSAGES_EACH
    with Peeklock(plan.directory / "plain", "compiled") as server:
        load = Flood(messages=messages, window=WINDOW, credit=WINDOW, sessions=sessions)
        plain = client.run(server.endpoint, load)
    properties = {"RequiresSession": True}
    with Peeklock(plan.directory / "sessions", "compiled", properties=properties) as server:
        before = proc.anonymous_bytes(server.pid)
        load = Flood(messages=messages, window=WINDOW, credit=0, sessions=sessions)
        filled = client.run(server.endpoint, load)
        memory = proc.anonymous_bytes(server.pid) - before
        cpu_us = proc.cpu_us(server.pid)
        begun = time.perf_counter()
        _Drainer(server.endpoint, sessions).run()
        seconds = time.perf_counter() - begun
        cpu_us = proc.cpu_us(server.pid) - cpu_us
    rows = [
        ["plain queue, all of it", f"{plain.rate:,.0f}", "", f"{plain.server_us:.1f}", ""],
        ["send only", f"{filled.rate:,.0f}", "", f"{filled.server_us:.1f}", ""],
        [
            "receive and complete",
            f"{messages / seconds:,.0f}",
            f"{sessions / seconds:,.0f}",
            f"{cpu_us / messages:.1f}",
            f"{cpu_us / sessions:.0f}",
        ],
    ]
    columns = ["1 KB messages", "msgs/s", "sessions/s", "server us/msg", "server us/session"]
    table(f"{sessions:,} sessions of {MESSAGES_EACH} messages, {LINKS} links", columns, rows)
    print(f"\n{memory / sessions:,.0f} bytes of memory for each session with its messages")


@final
class _Drainer:
    """Some links that take one session after the other."""

    def __init__(self, endpoint: Endpoint, sessions: int) -> None:
        self._endpoint = endpoint
        self._left_to_ask = sessions
        self._left = sessions
        self._line = Line(endpoint.port, endpoint.user, endpoint.password, "sessions")
        self._completed: dict[Link, int] = {}
        self._asked = 0

    def run(self) -> None:
        """Go on until every session was taken."""
        for _ in range(min(LINKS, self._left)):
            self._ask()
        progress = Progress()
        while self._left:
            self._line.flush()
            if not select.select([self._line], [], [], STALLED_S)[0]:
                raise LineError(f"nothing came for {STALLED_S:.0f} s, {self._left} are left")
            data = self._line.socket.recv(READ_SIZE)
            if not data:
                raise LineError("the server closed the connection")
            for event in self._line.connection.receive(data, now_ms()):
                self._take(event)
            progress.check(self._left)
        self._line.close()

    def _ask(self) -> None:
        self._left_to_ask -= 1
        self._asked += 1
        source = Source(address=self._endpoint.address, filter={FILTER: None})
        link = self._line.session.attach_receiver(
            f"session-{self._asked}",
            source,
            rcv_settle_mode=SECOND,
            properties={TIMEOUT: Uint(60_000)},
        )
        self._completed[link] = 0

    def _take(self, event: Event) -> None:
        if isinstance(event, AttachAnswered):
            event.link.grant(MESSAGES_EACH)
        elif isinstance(event, TransfersReceived):
            ids = [delivery.id for delivery in event.deliveries]
            event.link.settle(ids, ACCEPTED, settled=False)
        elif isinstance(event, AnswersReceived):
            link = event.link
            self._completed[link] += len(event.ids)
            if self._completed[link] == MESSAGES_EACH:
                del self._completed[link]
                link.detach()
                self._left -= 1
                if self._left_to_ask:
                    self._ask()
        elif isinstance(event, Closed):
            raise LineError(f"the server said {event.error}")
