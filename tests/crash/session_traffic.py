"""Receivers of message sessions: they take one after the other, and keep a state with each."""

import time
from typing import Any, Final

from peeklock.amqp.events import (
    AnswersReceived,
    AttachAnswered,
    Event,
    FlowReceived,
    LinkDetached,
    SettlementsReceived,
    TransfersReceived,
)
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.messages.message import AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import ACCEPTED
from peeklock.amqp.values.types import Symbol, Uint
from tests.crash.promises import ID_SIZE, Place
from tests.crash.traffic import (
    DEAD_LETTERED,
    DRAINED_WITHIN_S,
    SECOND,
    Broken,
    Crew,
    Line,
    answered,
    arrived,
    must_go_on,
)

FILTER: Final = Symbol("com.microsoft:session-filter")
TIMEOUT: Final = Symbol("com.microsoft:timeout")
# How long the next session is waited for: while working, and when nothing should be left.
PATIENT_MS: Final = 60_000
IMPATIENT_MS: Final = 300
SESSION_CREDIT: Final = 10
# After so many messages a session is let go, or after this time without any.
MESSAGES_EACH: Final = 30
QUIET_S: Final = 0.03


class SessionReceiver:
    """Takes the next available session, reads its state, settles its messages in order, writes
    another state, lets it go. With names it visits those first, then whatever is left, and is
    drained when there is no next one."""

    def __init__(self, line: Line, place: Place, names: list[str] | None = None) -> None:
        assert place.sessions is not None
        self.line = line
        self.place = place
        self.address = place.address
        self.books = place.sessions
        self.to_the_end = names is not None
        self.names = list(names or [])
        self.found: set[int] = set()
        self.is_drained = False
        self.is_stopping = False
        self.count = 0
        # What was asked of $management and is not answered, in order: session and new state.
        self.asked: list[tuple[str, bytes | None]] = []
        self.held: dict[int, int] = {}
        self.name = ""
        self.is_open = False
        self.is_empty = False
        self.received = 0
        self.last_at = 0.0
        node = f"{place.address}/$management"
        self.requests: Link = line.session.attach_sender("requests", Target(address=node))
        self.responses: Link = line.session.attach_receiver(
            "responses", Source(address=node), target=Target(address="here")
        )
        self.responses.grant(1_000)
        self.wanted: str | None = None
        self.link = self.ask()

    def ask(self) -> Link:
        """Ask for a session."""
        self.count += 1
        self.is_open = False
        self.wanted = self.names.pop(0) if self.names else None
        wait_ms = IMPATIENT_MS if self.to_the_end else PATIENT_MS
        return self.line.session.attach_receiver(
            f"session-{self.count}",
            Source(address=self.place.address, filter={FILTER: self.wanted}),
            rcv_settle_mode=SECOND,
            properties={TIMEOUT: Uint(wait_ms)},
        )

    def take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, LinkDetached) and event.link is self.link and self.to_the_end:
                self.turned_away(event)
                continue
            must_go_on(event)
            if isinstance(event, AttachAnswered) and event.link is self.link:
                # A refusal has no source either; its reason follows.
                if self.link.source is not None:
                    self.accepted()
            elif isinstance(event, TransfersReceived):
                for delivery in event.deliveries:
                    if event.link is self.responses:
                        self.told(delivery)
                    else:
                        self.settle(delivery)
            elif isinstance(event, AnswersReceived):
                answered(event, self.held, self.place, self.line)
            elif isinstance(event, FlowReceived) and event.link is self.link:
                self.is_empty = True
            elif isinstance(event, SettlementsReceived) and event.outcome != ACCEPTED:
                raise Broken(f"a request was refused: {event.outcome!r}")

    def turned_away(self, event: LinkDetached) -> None:
        condition = "" if event.error is None else event.error.condition
        if condition == "com.microsoft:session-cannot-be-locked" and self.wanted is not None:
            # Whoever had it has only just gone.
            self.names.append(self.wanted)
            self.link = self.ask()
        elif condition == "com.microsoft:timeout" and self.wanted is None:
            self.is_drained = True
        else:
            must_go_on(event)

    def accepted(self) -> None:
        (self.name,) = self.link.source.filter.values()
        self.is_open = True
        self.is_empty = False
        self.received = 0
        self.last_at = time.monotonic()
        self.manage("get-session-state", {"session-id": self.name}, None)
        self.more()

    def more(self) -> None:
        self.link.grant(SESSION_CREDIT)
        if self.to_the_end:
            self.link.drain_credit()

    def manage(self, operation: str, body: dict[str, Any], state: bytes | None) -> None:
        self.asked.append((self.name, state))
        self.count += 1
        request = AmqpMessage(
            properties=Properties(message_id=self.count, reply_to="here"),
            application_properties={
                "operation": f"com.microsoft:{operation}",
                "associated-link-name": self.link.name,
            },
            body=body,
        )
        tag = self.count.to_bytes(4, "big")
        self.requests.send(tag, encode_message(request), b"", False, None)

    def told(self, delivery: IncomingDelivery) -> None:
        """An answer of $management, which answers in order."""
        name, state = self.asked.pop(0)
        answer = decode_message(delivery.payload)
        properties: dict[Any, Any] = answer.application_properties or {}
        if properties.get("statusCode") != 200:
            self.line.refused("a session's state", repr(properties).encode())
            # Whether it holds the session still is in doubt, too.
            raise Broken("the session's state is out of reach")
        if state is not None:
            self.books.was_set(name, state)
        else:
            self.books.read(name, answer.body["session-state"], self.place)

    def settle(self, delivery: IncomingDelivery) -> None:
        id = arrived(delivery, self.place, is_dead=False)
        self.held[delivery.id] = id
        self.found.add(id)
        self.received += 1
        self.last_at = time.monotonic()
        if id % self.books.count != int(self.name):
            self.place.note(f"{id} came in session {self.name}")
        if id % 10 == 7 and not self.to_the_end:
            self.place.bury(id)
            self.link.settle([delivery.id], DEAD_LETTERED, settled=False)
        else:
            self.place.complete(id)
            self.link.settle([delivery.id], ACCEPTED, settled=False)
        if self.received % 4 == 1 and self.requests.credit > 0:
            state = id.to_bytes(ID_SIZE, "big") + time.monotonic_ns().to_bytes(8, "big")
            self.books.setting(self.name, state)
            self.manage(
                "set-session-state", {"session-id": self.name, "session-state": state}, state
            )

    def produce(self) -> None:
        if not self.is_open or self.held or self.asked:
            return
        quiet = time.monotonic() - self.last_at > QUIET_S
        if self.to_the_end:
            if self.is_empty and self.received:
                self.received, self.is_empty = 0, False
                self.more()
            elif self.is_empty:
                self.move_on()
        elif self.received >= MESSAGES_EACH or (quiet and not self.is_stopping):
            self.move_on()
        elif self.link.credit <= SESSION_CREDIT // 2 or quiet:
            self.more()

    def move_on(self) -> None:
        self.link.detach()
        self.link = self.ask()

    def stop(self) -> None:
        pass  # it goes on receiving what is left

    def is_idle(self) -> bool:
        return not self.held and not self.asked


def drain_sessions(receiver: SessionReceiver) -> set[int]:
    """Receive and complete until no session has messages; answers what came."""
    crew = Crew([lambda: receiver])
    until = time.monotonic() + DRAINED_WITHIN_S
    while not receiver.is_drained:
        if time.monotonic() > until:
            raise Broken(f"{receiver.place.address} is not empty after {DRAINED_WITHIN_S} s")
        crew.turn(0.005)
    crew.leave()
    return receiver.found
