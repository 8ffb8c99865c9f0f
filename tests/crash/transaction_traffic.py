"""A client that does its work in transactions: it completes a message here and sends others there,
all on one AMQP session."""

from typing import Final

from peeklock.amqp.events import AnswersReceived, Event, SettlementsReceived, TransfersReceived
from peeklock.amqp.frames.states import Accepted, Declare, Declared, Discharge, TransactionalState
from peeklock.amqp.frames.termini import Coordinator, Source, Target
from peeklock.amqp.messages.message import AmqpMessage, encode_message
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import (
    ACCEPTED,
    decode_composite,
    described_of,
    encode_composite,
)
from tests.crash.promises import Deal, Deals
from tests.crash.traffic import SECOND, Broken, Line, arrived, must_go_on, undressed

# How many transactions are open at a time.
OPEN_MAX: Final = 8
CREDIT: Final = 20


class Dealer:
    """Takes messages from the source of its deals and gives one to each of their sinks."""

    def __init__(self, line: Line, deals: Deals) -> None:
        self.line = line
        self.deals = deals
        self.address = deals.source.address
        self.coordinator: Link = line.session.attach_sender("coordinator", Coordinator())
        self.senders: list[Link] = [
            line.session.attach_sender(f"to-{sink.address}", Target(address=sink.address))
            for sink in deals.sinks
        ]
        self.receiver: Link = line.session.attach_receiver(
            "from", Source(address=deals.source.address), rcv_settle_mode=SECOND
        )
        self.receiver.grant(CREDIT)
        # Deliveries that wait for a transaction, and those that are in one.
        self.waiting: list[tuple[int, int]] = []
        self.open = 0
        self.count = 0

    def tag(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(4, "big")

    def take(self, events: list[Event]) -> None:
        for event in events:
            must_go_on(event)
            if isinstance(event, TransfersReceived):
                for delivery in event.deliveries:
                    id = arrived(delivery, self.deals.source, is_dead=False)
                    self.waiting.append((delivery.id, id))
            elif isinstance(event, SettlementsReceived) and event.link is self.coordinator:
                for sent in event.deliveries:
                    self.decided(event.outcome, *sent.context)
            elif isinstance(event, SettlementsReceived):
                self.check(event.outcome)
            elif isinstance(event, AnswersReceived):
                self.check(event.state)

    def check(self, state: bytes) -> None:
        """What is done within a transaction is confirmed for the time being."""
        if not isinstance(decode_composite(state)[0], TransactionalState):
            raise Broken(f"an operation within a transaction was refused: {state!r}")

    def decided(self, outcome: bytes, delivery: int, id: int, deal: Deal | None) -> None:
        if deal is None:
            declared = decode_composite(outcome)[0]
            if not isinstance(declared, Declared):
                raise Broken(f"a declare was refused: {outcome!r}")
            self.carry_out(declared.txn_id, delivery, id)
            return
        self.open -= 1
        if outcome != ACCEPTED:
            # Rolled back, or in doubt: the message comes again when its lock is gone.
            self.line.refused("a commit", outcome)
            self.deals.source.refused += 1
        elif deal.fails:
            self.deals.rolled_back += 1
            # The broker forgets it after a hundred more.
            self.waiting.insert(0, (delivery, id))
        else:
            self.deals.committed(deal)

    def carry_out(self, transaction: bytes, delivery: int, id: int) -> None:
        """Everything in one go, and nothing is waited for but the end."""
        deal = self.deals.begin(id)
        for link, sink, given in zip(self.senders, self.deals.sinks, deal.given, strict=True):
            payload = encode_message(undressed(given, sink.ledger.content(given)))
            self.line.send_within(link, self.tag(), payload, transaction, None)
        state = TransactionalState(txn_id=transaction, outcome=Accepted())
        self.receiver.settle([delivery], encode_composite(state), settled=False)
        # The outcome must have been told before the transaction ends.
        self.line.unsent += self.line.connection.take_output()
        wish = Discharge(txn_id=transaction, fail=deal.fails)
        self.wish(wish, (delivery, id, deal))

    def wish(self, wish: Declare | Discharge, context: tuple[int, int, Deal | None]) -> None:
        payload = encode_message(AmqpMessage(body=described_of(wish)))
        if self.coordinator.send(self.tag(), payload, b"", False, context) < 0:
            raise Broken("the coordinator takes no more")

    def produce(self) -> None:
        least = min(link.credit for link in (self.coordinator, *self.senders))
        while self.waiting and self.open < min(OPEN_MAX, least // 2):
            self.open += 1
            self.wish(Declare(), (*self.waiting.pop(0), None))
        if self.receiver.credit <= CREDIT // 2 and len(self.waiting) <= CREDIT:
            self.receiver.grant(CREDIT)

    def stop(self) -> None:
        pass  # it goes on with what is left

    def is_idle(self) -> bool:
        return not self.waiting and self.open == 0
