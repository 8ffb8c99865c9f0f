"""Senders and receivers on the client side of our own engine, over plain sockets, in one thread."""

import select
import socket
import time
from typing import Any, Final, Protocol

from peeklock.amqp.composites import ACCEPTED, REJECTED_PLAIN, Source, Target, encode_rejected
from peeklock.amqp.composites import encode_modified as modified
from peeklock.amqp.connection import CLIENT, Connection
from peeklock.amqp.delivery import IncomingDelivery
from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import (
    AnswersReceived,
    Closed,
    Event,
    FlowReceived,
    LinkDetached,
    SessionEnded,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.limits import Limits
from peeklock.amqp.link import Link
from peeklock.amqp.message import Message, decode_message, encode_message
from peeklock.amqp.sasl import plain
from peeklock.amqp.sections import DATA
from tests.crash.ledger import Ledger, content
from tests.wire.entities import ROOT_KEY, ROOT_RULE

QUEUE: Final = "crash"
DEAD_LETTERS: Final = f"{QUEUE}/$deadletterqueue"
BATCH_FORMAT: Final = 0x80013700
BATCH_SIZE: Final = 5
ABANDONED: Final = modified(delivery_failed=True, undeliverable_here=False)
DEAD_LETTERED: Final = encode_rejected(AmqpError("com.microsoft:dead-letter", None))
# The receiver settles only after the broker has [2.8.3]: a completion is certain or in doubt.
SECOND: Final = 1
CREDIT: Final = 200
READ_SIZE: Final = 1 << 18
DRAINED_WITHIN_S: Final = 60.0
QUIET_S: Final = 0.2


class Broken(Exception):
    """The connection is gone, or the broker ended something that should have gone on."""


class Line:
    """One connection with one link on it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setblocking(False)
        self.connection = Connection(
            role=CLIENT,
            container_id="crash",
            limits=Limits(),
            now=now_ms(),
            hostname="localhost",
            credential=plain(ROOT_RULE, ROOT_KEY),
        )
        self.connection.start()
        self.session = self.connection.begin_session()
        self.unsent = b""

    def read(self) -> list[Event]:
        try:
            data = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return []
        except OSError as error:
            raise Broken(str(error)) from error
        if not data:
            raise Broken("the broker is gone")
        return self.connection.receive(data, now_ms())

    def flush(self) -> None:
        output = self.unsent + self.connection.take_output()
        try:
            sent = self.socket.send(output) if output else 0
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise Broken(str(error)) from error
        self.unsent = output[sent:]


class End(Protocol):
    """A sender or a receiver."""

    line: Line

    def take(self, events: list[Event]) -> None: ...
    def produce(self) -> None: ...
    def stop(self) -> None: ...
    def is_idle(self) -> bool: ...


class Sender:
    """Sends new messages at a steady rate, single ones or batches, and notes what is accepted."""

    def __init__(self, line: Line, ledger: Ledger, *, per_second: int, in_batches: bool) -> None:
        self.line = line
        self.ledger = ledger
        self.per_second = per_second
        self.in_batches = in_batches
        self.link: Link = line.session.attach_sender("sender", Target(address=QUEUE))
        self.started = time.monotonic()
        self.count = 0
        self.open = 0

    def take(self, events: list[Event]) -> None:
        for event in events:
            must_go_on(event)
            if isinstance(event, SettlementsReceived):
                if event.outcome != ACCEPTED:
                    raise Broken(f"a send was not accepted: {event.outcome!r}")
                for delivery in event.deliveries:
                    self.ledger.accepted.update(delivery.context)
                self.open -= len(event.deliveries)

    def produce(self) -> None:
        wanted = int((time.monotonic() - self.started) * self.per_second) - self.count
        for _ in range(min(wanted, self.link.credit)):
            ids = self.ledger.next_batch(BATCH_SIZE) if self.in_batches else [self.ledger.next_id()]
            messages = [encode_message(Message(body_kind=DATA, body=[content(id)])) for id in ids]
            payload, form = messages[0], 0
            if self.in_batches:
                payload, form = encode_message(Message(body_kind=DATA, body=messages)), BATCH_FORMAT
            self.count += 1
            self.open += 1
            self.link.send(self.count.to_bytes(4, "big"), payload, b"", False, ids, form)

    def stop(self) -> None:
        self.per_second = 0

    def is_idle(self) -> bool:
        return self.open == 0


class Receiver:
    """Settles what comes, each message by its id: most are completed, some abandoned once, some
    dead-lettered. With `to_the_end` everything is completed."""

    def __init__(
        self, line: Line, ledger: Ledger, address: str = QUEUE, *, to_the_end: bool = False
    ) -> None:
        self.line = line
        self.ledger = ledger
        self.is_dead = address == DEAD_LETTERS
        self.to_the_end = to_the_end
        self.link: Link = line.session.attach_receiver(
            "receiver", Source(address=address), rcv_settle_mode=SECOND
        )
        self.held: dict[int, int] = {}
        self.found: set[int] = set()
        self.is_drained = False
        self.link.grant(CREDIT)

    def take(self, events: list[Event]) -> None:
        for event in events:
            must_go_on(event)
            if isinstance(event, TransfersReceived):
                for delivery in event.deliveries:
                    self.settle(delivery)
            elif isinstance(event, AnswersReceived):
                self.answered(event)
            elif isinstance(event, FlowReceived):
                self.is_drained = True

    def settle(self, delivery: IncomingDelivery) -> None:
        message = decode_message(delivery.payload)
        annotations: dict[Any, Any] = message.message_annotations or {}
        sequence = int(annotations["x-opt-sequence-number"])
        id = self.ledger.came(b"".join(message.body), sequence, is_dead=self.is_dead)
        self.held[delivery.id] = id
        self.found.add(id)
        if not self.to_the_end and id % 10 == 3 and id not in self.ledger.abandoned:
            self.ledger.abandoned.add(id)
            self.link.settle([delivery.id], ABANDONED, settled=False)
        elif not self.to_the_end and id % 10 == 7:
            self.ledger.burying.add(id)
            self.link.settle([delivery.id], DEAD_LETTERED, settled=False)
        else:
            self.ledger.completing.add(id)
            self.link.settle([delivery.id], ACCEPTED, settled=False)

    def answered(self, event: AnswersReceived) -> None:
        ids = {self.held.pop(each) for each in event.ids}
        if event.state == ACCEPTED:
            self.ledger.completed |= ids
        elif event.state == REJECTED_PLAIN:
            self.ledger.buried |= ids
        elif event.state != ABANDONED:
            raise Broken(f"a settlement was refused: {event.state!r}")

    def produce(self) -> None:
        if self.link.credit <= CREDIT // 2 and not self.link.drain:
            self.link.grant(CREDIT)

    def stop(self) -> None:
        pass  # it goes on receiving what is left

    def is_idle(self) -> bool:
        return not self.held


def must_go_on(event: Event) -> None:
    if isinstance(event, (Closed, SessionEnded, LinkDetached)):
        raise Broken(f"the broker ended {type(event).__name__}: {event.error}")


def run(ends: list[End], until: float) -> None:
    """Let all ends work until an instant of the monotonic clock."""
    while (left := until - time.monotonic()) > 0:
        turn(ends, min(left, 0.01))


def turn(ends: list[End], wait_s: float) -> bool:
    """Read what has come, let each end act on it, write what it has to say; answers whether
    anything came."""
    sockets = {end.line.socket: end for end in ends}
    stuck = [end.line.socket for end in ends if end.line.unsent]
    readable, _, _ = select.select(list(sockets), stuck, [], wait_s)
    for ready in readable:
        sockets[ready].take(sockets[ready].line.read())
    for end in ends:
        end.produce()
        end.line.flush()
    return len(readable) > 0


def finish(ends: list[End]) -> None:
    """Send nothing more, and go on until everything has been received and settled."""
    until = time.monotonic() + DRAINED_WITHIN_S
    for end in ends:
        end.stop()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        if time.monotonic() > until:
            raise Broken(f"still busy after {DRAINED_WITHIN_S} s")
        if turn(ends, 0.01) or not all(end.is_idle() for end in ends):
            quiet_since = time.monotonic()


def hang_up(ends: list[End]) -> None:
    """After the broker's end: take what it had still sent, for that counts as acknowledged."""
    for end in ends:
        end.line.socket.setblocking(True)
        try:
            while True:
                end.take(end.line.read())
        except Broken:
            end.line.socket.close()


def drain(receiver: Receiver) -> set[int]:
    """Receive and complete until nothing is left; answers what came."""
    until = time.monotonic() + DRAINED_WITHIN_S
    last = -1
    while last != len(receiver.found):
        last = len(receiver.found)
        receiver.is_drained = False
        receiver.link.grant(CREDIT)
        receiver.link.drain_credit()
        while not receiver.is_drained or receiver.held:
            if time.monotonic() > until:
                raise Broken(f"not empty after {DRAINED_WITHIN_S} s")
            turn([receiver], 0.05)
    receiver.line.socket.close()
    return receiver.found


def now_ms() -> int:
    return time.time_ns() // 1_000_000
