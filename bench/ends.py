"""The two ends of a queue: a sender with a window, a receiver that completes what it gets."""

from collections.abc import Callable
from typing import Final, final

from bench import payload
from bench.endpoint import Endpoint
from bench.line import Line, LineError
from peeklock.amqp.events import AnswersReceived, Event, SettlementsReceived, TransfersReceived
from peeklock.amqp.frames.states import Accepted
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.values.composites import ACCEPTED, decode_composite, encode_modified

# Settle modes of a receiver [2.8.3]: settle at once, or after the sender has.
FIRST: Final = 0
SECOND: Final = 1
# With few top-ups a receiver falls behind a sender that has an equal window.
TOP_UPS: Final = 10
DEFERRED: Final = encode_modified(delivery_failed=True, undeliverable_here=True)


@final
class Sender:
    """Keeps up to `window` messages on their way and counts those that the server accepted."""

    def __init__(self, endpoint: Endpoint, window: int, shape: payload.Shape | None = None) -> None:
        self.line = Line(endpoint.port, endpoint.user, endpoint.password, "sender", endpoint.way)
        self._head = (shape or payload.Shape()).head
        target = Target(address=endpoint.address, durable=endpoint.terminus_durability)
        self.link = self.line.session.attach_sender("bench-sender", target)
        self.window = window
        self.sent = 0
        self.accepted = 0
        self._states = States()
        self.take(self.line.wait_attached(self.link))

    def take(self, events: list[Event]) -> None:
        """Count what was accepted; anything else ends the bench."""
        for event in events:
            if isinstance(event, SettlementsReceived):
                self._states.must_be_accepted(event.outcome)
                self.accepted += len(event.deliveries)

    def room(self) -> int:
        """Tell how many messages may leave now."""
        return min(self.window - (self.sent - self.accepted), self.link.credit)

    def send(self, count: int, due_ns: int) -> None:
        """Send so many messages that were all due at one instant; the line is not flushed."""
        link = self.link
        head = self._head
        for number in range(self.sent, self.sent + count):
            tag = number.to_bytes(4, "big")
            link.send(tag, head(number, due_ns), payload.REST, False, None)
        self.sent += count


@final
class Receiver:
    """Keeps credit out, completes each message, and counts the completions that are certain.

    Credit is topped up whenever one of its `top_ups` parts is used. `on_arrival` is called with the
    deliveries of each pass. With `defer_every` each message whose
    number is a multiple of it is deferred instead of completed; it counts as completed here.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        credit: int,
        on_arrival: Callable[[list[IncomingDelivery]], None] | None = None,
        *,
        top_ups: int = TOP_UPS,
        defer_every: int = 0,
    ) -> None:
        self.line = Line(endpoint.port, endpoint.user, endpoint.password, "receiver", endpoint.way)
        mode = SECOND if endpoint.is_answered else FIRST
        source = Source(address=endpoint.address, durable=endpoint.terminus_durability)
        self.link = self.line.session.attach_receiver(
            "bench-receiver", source, rcv_settle_mode=mode
        )
        self.is_answered = endpoint.is_answered
        self.credit = credit
        self._credit_low = credit - max(1, credit // top_ups)
        self.received = 0
        self.completed = 0
        self._on_arrival = on_arrival
        self._defer_every = defer_every
        self._states = States()
        events = self.line.wait_attached(self.link)
        self.link.grant(credit)
        self.line.flush()
        self.take(events)

    def take(self, events: list[Event]) -> None:
        """Settle what arrived, all of a pass at once, and count what the server confirmed."""
        for event in events:
            if isinstance(event, TransfersReceived):
                self._settle(event.deliveries)
            elif isinstance(event, AnswersReceived):
                self._states.must_be_settled(event.state)
                self.completed += len(event.ids)

    def _settle(self, deliveries: list[IncomingDelivery]) -> None:
        if self._on_arrival is not None:
            self._on_arrival(deliveries)
        self.received += len(deliveries)
        settled = not self.is_answered
        ids = [delivery.id for delivery in deliveries]
        if self._defer_every:
            every = self._defer_every
            late = [d.id for d in deliveries if payload.read(d.payload)[0] % every == 0]
            if late:
                self.link.settle(late, DEFERRED, settled=settled)
                ids = sorted(set(ids) - set(late))
        self.link.settle(ids, ACCEPTED, settled=settled)
        if settled:
            self.completed += len(deliveries)
        if self.link.credit <= self._credit_low:
            self.link.grant(self.credit)


@final
class States:
    """Reads delivery states; the few forms that a server uses are read once."""

    def __init__(self) -> None:
        self._accepted: set[bytes] = {ACCEPTED}
        self._settled: set[bytes] = {ACCEPTED, DEFERRED}

    def must_be_accepted(self, state: bytes) -> None:
        """Stop the bench at an outcome that is not accepted: its figures would mean nothing."""
        if state not in self._accepted:
            if not isinstance(_read(state), Accepted):
                raise LineError(f"a message was not accepted: {_read(state)}")
            self._accepted.add(state)

    def must_be_settled(self, state: bytes) -> None:
        """Stop the bench at a settlement that was refused."""
        if state not in self._settled:
            if not isinstance(_read(state), Accepted):
                raise LineError(f"a message was not settled: {_read(state)}")
            self._settled.add(state)


def _read(state: bytes) -> object:
    return decode_composite(state)[0] if state else None
