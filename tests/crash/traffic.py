"""Senders and receivers on the client side of our own engine, over plain sockets, in one thread."""

import random
import select
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from peeklock.amqp.connection import CLIENT, Connection
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
from peeklock.amqp.frames.headers import frame_head
from peeklock.amqp.frames.performatives import Transfer
from peeklock.amqp.frames.states import TransactionalState
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.limits import ConnectionLimits
from peeklock.amqp.messages.message import AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.sections import DATA
from peeklock.amqp.sasl import plain
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import (
    ACCEPTED,
    REJECTED_PLAIN,
    encode_composite,
    encode_rejected,
)
from peeklock.amqp.values.composites import encode_modified as modified
from tests.crash.promises import Ledger, Place
from tests.wire.entities import ROOT_KEY, ROOT_RULE

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
AGAIN_AFTER_S: Final = 0.1


class Broken(Exception):
    """The connection is gone, or the broker ended something that should have gone on."""


class Line:
    """One connection with one session. With `may_fail` the broker may refuse what it is asked."""

    def __init__(self, port: int, *, may_fail: bool = False) -> None:
        self.may_fail = may_fail
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setblocking(False)
        self.connection = Connection(
            role=CLIENT,
            container_id="crash",
            limits=ConnectionLimits(),
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

    def send_within(
        self, link: Link, tag: bytes, payload: bytes, transaction: bytes, context: Any
    ) -> None:
        """Send with a transactional state. The engine has no word for that, so that the frame of a
        plain message is replaced."""
        self.unsent += self.connection.take_output()
        id = link.send(tag, payload, b"", False, context)
        assert id >= 0, "there was no credit for it"
        assert link.queued == 0, "it waits for the window"
        self.connection.take_output()
        transfer = encode_composite(
            Transfer(
                handle=link.handle,
                delivery_id=id,
                delivery_tag=tag,
                message_format=0,
                settled=False,
                state=TransactionalState(txn_id=transaction),
            )
        )
        size = 8 + len(transfer) + len(payload)
        self.unsent += frame_head(size, link.session.channel) + transfer + payload

    def refused(self, what: str, state: bytes) -> None:
        """The broker did not do what it was asked."""
        if not self.may_fail:
            raise Broken(f"{what} was refused: {state!r}")


class End(Protocol):
    """A client with a line of its own, that sends or receives."""

    line: Line
    # What it sends to or receives from.
    address: str

    def take(self, events: list[Event]) -> None: ...
    def produce(self) -> None: ...
    def stop(self) -> None: ...
    def is_idle(self) -> bool: ...


Dress = Callable[[int, bytes], AmqpMessage]


def undressed(id: int, body: bytes) -> AmqpMessage:
    """A message with nothing but its body."""
    return AmqpMessage(body_kind=DATA, body=[body])


class Sender:
    """Sends new messages at a steady rate, single ones or batches, and notes what is accepted. With
    `repeats` it sends some of them again, before and after a crash."""

    def __init__(
        self,
        line: Line,
        ledger: Ledger,
        *,
        per_second: int,
        in_batches: bool = False,
        repeats: bool = False,
        dress: Dress = undressed,
    ) -> None:
        self.line = line
        self.ledger = ledger
        self.address = ledger.name
        self.per_second = per_second
        self.in_batches = in_batches
        self.repeats = repeats
        self.dress = dress
        self.link: Link = line.session.attach_sender("sender", Target(address=ledger.name))
        self.started = time.monotonic()
        self.count = 0
        self.open = 0

    def take(self, events: list[Event]) -> None:
        for event in events:
            must_go_on(event)
            if isinstance(event, SettlementsReceived):
                for delivery in event.deliveries:
                    if event.outcome == ACCEPTED:
                        self.ledger.accept(delivery.context)
                    else:
                        self.line.refused("a send", event.outcome)
                        self.ledger.refused += len(delivery.context)
                self.open -= len(event.deliveries)

    def produce(self) -> None:
        wanted = int((time.monotonic() - self.started) * self.per_second) - self.count
        for _ in range(min(wanted, self.link.credit)):
            ids = self.next()
            messages = [encode_message(self.dress(id, self.ledger.content(id))) for id in ids]
            payload, form = messages[0], 0
            if self.in_batches:
                payload, form = (
                    encode_message(AmqpMessage(body_kind=DATA, body=messages)),
                    BATCH_FORMAT,
                )
            self.count += 1
            self.open += 1
            self.link.send(self.count.to_bytes(4, "big"), payload, b"", False, ids, form)

    def next(self) -> list[int]:
        if self.in_batches:
            return self.ledger.next_batch(BATCH_SIZE)
        # The first ones after each start are old.
        if self.repeats and self.ledger.sent and (self.count < 20 or self.count % 3 == 0):
            return [self.ledger.recent(random.random())]
        return [self.ledger.next_id()]

    def stop(self) -> None:
        self.per_second = 0

    def is_idle(self) -> bool:
        return self.open == 0


class Receiver:
    """Settles what comes, each message by its id: most are completed, some abandoned once, some
    dead-lettered. With `to_the_end` everything is completed."""

    def __init__(
        self, line: Line, place: Place, *, dead_letters: bool = False, to_the_end: bool = False
    ) -> None:
        self.line = line
        self.place = place
        self.is_dead = dead_letters
        self.to_the_end = to_the_end
        self.address = place.dead_letters if dead_letters else place.address
        self.link: Link = line.session.attach_receiver(
            "receiver", Source(address=self.address), rcv_settle_mode=SECOND
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
                answered(event, self.held, self.place, self.line)
            elif isinstance(event, FlowReceived):
                self.is_drained = True

    def settle(self, delivery: IncomingDelivery) -> None:
        id = arrived(delivery, self.place, is_dead=self.is_dead)
        self.held[delivery.id] = id
        self.found.add(id)
        if not self.to_the_end and id % 10 == 3 and id not in self.place.abandoned:
            self.place.abandoned.add(id)
            self.link.settle([delivery.id], ABANDONED, settled=False)
        elif not self.to_the_end and id % 10 == 7:
            self.place.bury(id)
            self.link.settle([delivery.id], DEAD_LETTERED, settled=False)
        else:
            self.place.complete(id)
            self.link.settle([delivery.id], ACCEPTED, settled=False)

    def produce(self) -> None:
        if self.link.credit <= CREDIT // 2 and not self.link.drain:
            self.link.grant(CREDIT)

    def stop(self) -> None:
        pass  # it goes on receiving what is left

    def is_idle(self) -> bool:
        return not self.held


def arrived(delivery: IncomingDelivery, place: Place, *, is_dead: bool) -> int:
    """Note a message that was received; answers its id."""
    message = decode_message(delivery.payload)
    annotations: dict[Any, Any] = message.message_annotations or {}
    sequence = int(annotations["x-opt-sequence-number"])
    return place.came(b"".join(message.body), sequence, is_dead=is_dead)


def answered(event: AnswersReceived, held: dict[int, int], place: Place, line: Line) -> None:
    """Note what the broker said of settlements."""
    ids = {held.pop(each) for each in event.ids}
    if event.state == ACCEPTED:
        place.completed |= ids
    elif event.state == REJECTED_PLAIN:
        place.buried |= ids
    elif event.state != ABANDONED:
        line.refused("a settlement", event.state)
        place.refused += len(ids)


def must_go_on(event: Event) -> None:
    if isinstance(event, (Closed, SessionEnded, LinkDetached)):
        raise Broken(f"the broker ended {type(event).__name__}: {event.error}")


class Crew:
    """Ends that work side by side. With `may_fail` one that the broker sends away comes back."""

    def __init__(self, jobs: list[Callable[[], End]], *, may_fail: bool = False) -> None:
        self.may_fail = may_fail
        self.ends: list[End] = [job() for job in jobs]
        self.jobs = dict(zip(self.ends, jobs, strict=True))
        self.waiting: list[tuple[float, Callable[[], End]]] = []
        self.sent_away: Counter[str] = Counter()

    def run(self, until: float) -> None:
        """Let all ends work until an instant of the monotonic clock."""
        while (left := until - time.monotonic()) > 0:
            self.turn(min(left, 0.01))

    def turn(self, wait_s: float) -> bool:
        """Read what has come, let each end act on it, write what it has to say; answers whether
        anything came."""
        sockets = {end.line.socket: end for end in self.ends}
        stuck = [end.line.socket for end in self.ends if end.line.unsent]
        readable, _, _ = select.select(list(sockets), stuck, [], wait_s)
        for ready in readable:
            self.do(sockets[ready], lambda end: end.take(end.line.read()))
        for end in list(self.ends):
            self.do(end, speak)
        while self.waiting and self.waiting[0][0] < time.monotonic():
            job = self.waiting.pop(0)[1]
            self.ends.append(job())
            self.jobs[self.ends[-1]] = job
        return len(readable) > 0

    def do(self, end: End, step: Callable[[End], None]) -> None:
        try:
            step(end)
        except Broken:
            if not self.may_fail:
                raise
            self.sent_away[end.address] += 1
            end.line.socket.close()
            self.ends.remove(end)
            self.waiting.append((time.monotonic() + AGAIN_AFTER_S, self.jobs.pop(end)))

    def finish(self) -> None:
        """Send nothing more, and go on until everything has been received and settled."""
        until = time.monotonic() + DRAINED_WITHIN_S
        for end in self.ends:
            end.stop()
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_S:
            if time.monotonic() > until:
                raise Broken(f"still busy after {DRAINED_WITHIN_S} s")
            if self.turn(0.01) or not all(end.is_idle() for end in self.ends):
                quiet_since = time.monotonic()

    def hang_up(self) -> None:
        """After the broker's end: take what it had still sent, for that counts as acknowledged."""
        for end in self.ends:
            end.line.socket.setblocking(True)
            try:
                while True:
                    end.take(end.line.read())
            except Broken:
                end.line.socket.close()

    def leave(self) -> None:
        """Go while the broker lives."""
        for end in self.ends:
            end.line.socket.close()
        self.ends.clear()


def speak(end: End) -> None:
    end.produce()
    end.line.flush()


def drain(receiver: Receiver) -> set[int]:
    """Receive and complete until nothing is left; answers what came."""
    crew = Crew([lambda: receiver])
    until = time.monotonic() + DRAINED_WITHIN_S
    last = -1
    while last != len(receiver.found):
        last = len(receiver.found)
        receiver.is_drained = False
        receiver.link.grant(CREDIT)
        receiver.link.drain_credit()
        while not receiver.is_drained or receiver.held:
            if time.monotonic() > until:
                raise Broken(f"{receiver.place.address} is not empty after {DRAINED_WITHIN_S} s")
            crew.turn(0.005)
    crew.leave()
    return receiver.found


def now_ms() -> int:
    return time.time_ns() // 1_000_000
