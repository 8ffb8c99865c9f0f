"""Transactions: what is done within one happens all at once, or not at all."""

from __future__ import annotations

import pytest

from peeklock.amqp.frames.states import (
    Accepted,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from peeklock.amqp.frames.termini import Coordinator
from peeklock.amqp.messages.message import AmqpMessage as WireMessage
from peeklock.amqp.messages.message import encode_message
from peeklock.amqp.values.composites import ACCEPTED, described_of, encode_composite
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Ulong
from peeklock.gateway.amqp.namespace_context import GatewayLimits
from peeklock.store.memory import MemoryStore
from peeklock.store.store import Unavailable
from tests.gateway.amqp.amqp_harness import (
    AmqpHarness,
    bodies,
    condition_of,
    plain,
    serve,
)
from tests.gateway.amqp.nodes.transacting import (
    BATCH,
    TWO_MINUTES_MS,
    Control,
    peeked,
    post_within,
    said_within,
    send_within,
    settle_within,
)

# --- the coordinator


def test_a_transaction_without_operations_ends_either_way() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        first, second = await control.declare(), await control.declare()
        assert first != second
        assert isinstance(await control.commit(first), Accepted)
        assert isinstance(await control.roll_back(second), Accepted)
        # Neither is known any more.
        for txn in (first, second, b"never"):
            assert condition_of(await control.commit(txn)) == "amqp:transaction:unknown-id"
            assert condition_of(await control.roll_back(txn)) == "amqp:transaction:unknown-id"

    serve(talk)


def test_a_control_link_is_attached_as_it_was_asked_for() -> None:
    """Java's client declares a transaction before it puts a token."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        target = Coordinator(capabilities=["amqp:local-transactions"])
        link = await client._attached(client.session.attach_sender("control", target))
        assert link.target == target
        assert link.credit > 0
        await Control(client, link).declare()

    serve(talk)


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (encode_message(WireMessage(body="begin")), "com.microsoft:argument-error"),
        (
            encode_message(WireMessage(body=described_of(Accepted()))),
            "com.microsoft:argument-error",
        ),
        (
            encode_message(WireMessage(body=Described(Ulong(0x32), []))),
            "com.microsoft:argument-error",
        ),
        (b"\xff", "com.microsoft:argument-error"),
        (
            encode_message(WireMessage(body=described_of(Declare(global_id="g")))),
            "amqp:not-implemented",
        ),
    ],
)
def test_a_coordinator_takes_nothing_else(payload: bytes, condition: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        assert condition_of(await client.send(control.link, payload)) == condition
        await control.declare()

    serve(talk)


def test_a_control_link_never_runs_out_of_credit() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        for _ in range(250):
            assert isinstance(await control.commit(await control.declare()), Accepted)

    serve(talk)


def test_open_transactions_are_bounded() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        first = await control.declare()
        await control.declare()
        assert condition_of(await control.wish(Declare())) == "amqp:resource-limit-exceeded"
        await control.roll_back(first)
        await control.declare()

    serve(talk, limits=GatewayLimits(transactions_max=2))


def test_settled_wishes_are_carried_out_and_not_answered() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        txn = await control.declare()
        await send_within(client, sender, plain("a"), txn)
        discharge = described_of(Discharge(txn_id=txn, fail=False))
        client.post(control.link, encode_message(WireMessage(body=discharge)), settled=True)
        client.post(
            control.link, encode_message(WireMessage(body=described_of(Declare()))), settled=True
        )
        assert await client.outcomes() == []
        assert await peeked(bus, "q") == ["a"]

    serve(talk)


# --- sends


def test_sends_appear_with_the_commit() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        receiver = await client.receiver(credit=10)
        txn = await control.declare()
        assert isinstance(await send_within(client, sender, plain("a"), txn), Accepted)
        batch = b"".join(encode(Described(Ulong(0x75), plain(text))) for text in ("b", "c"))
        assert isinstance(await send_within(client, sender, batch, txn, form=BATCH), Accepted)
        # A link sends in and out of a transaction at once.
        assert isinstance(await client.send(sender, plain("outside")), Accepted)
        assert bodies(client.arrived(receiver)) == ["outside"]
        assert isinstance(await control.commit(txn), Accepted)
        assert bodies(client.arrived(receiver)) == ["a", "b", "c"]

    serve(talk)


def test_rolled_back_sends_never_appear() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        txn = await control.declare()
        await send_within(client, sender, plain("a"), txn)
        assert isinstance(await control.roll_back(txn), Accepted)
        assert await peeked(bus, "q") == []
        outcome = await send_within(client, sender, plain("late"), txn)
        assert condition_of(outcome) == "amqp:transaction:unknown-id"

    serve(talk)


def test_what_is_refused_outside_is_refused_within() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        txn = await control.declare()
        too_large = plain("x" * 300_000)
        outcome = await send_within(client, sender, too_large, txn)
        assert condition_of(outcome) == "amqp:link:message-size-exceeded"
        assert condition_of(await send_within(client, sender, b"\xff", txn)) == "amqp:decode-error"
        # What was refused would be missing, so that nothing else is taken, and nothing is done.
        outcome = await send_within(client, sender, plain("a"), txn)
        assert condition_of(outcome) == "amqp:link:message-size-exceeded"
        assert condition_of(await control.commit(txn)) == "amqp:transaction:rollback"
        assert await peeked(bus, "q") == []

    serve(talk)


def test_a_refusal_that_nobody_hears_of_rolls_back() -> None:
    """A message that came settled cannot be refused: it must not be missing."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        txn = await control.declare()
        post_within(client, sender, plain("a"), txn, settled=True)
        post_within(client, sender, plain("x" * 300_000), txn, settled=True)
        outcome = await control.commit(txn)
        assert condition_of(outcome) == "amqp:transaction:rollback"
        assert "exceeds the limit" in outcome.error.description
        assert await peeked(bus, "q") == []

    serve(talk)


def test_a_transaction_has_a_hundred_messages_at_most() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        full, over = await control.declare(), await control.declare()
        for txn in (full, over):
            for number in range(100):
                assert isinstance(
                    await send_within(client, sender, plain(str(number)), txn), Accepted
                )
        for text in ("one more", "another"):
            outcome = await send_within(client, sender, plain(text), over)
            assert condition_of(outcome) == "amqp:resource-limit-exceeded"
        assert condition_of(await control.commit(over)) == "amqp:transaction:rollback"
        assert isinstance(await control.commit(full), Accepted)
        assert await peeked(bus, "q") == [str(number) for number in range(100)]

    serve(talk)


def test_what_waits_in_transactions_is_bounded() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        first, second = await control.declare(), await control.declare()
        await send_within(client, sender, plain("x" * 600), first)
        outcome = await send_within(client, sender, plain("x" * 600), second)
        assert condition_of(outcome) == "amqp:resource-limit-exceeded"
        assert isinstance(await control.commit(first), Accepted)
        third = await control.declare()
        assert isinstance(await send_within(client, sender, plain("x" * 600), third), Accepted)

    serve(talk, limits=GatewayLimits(transaction_bytes_max=1_000))


# --- settlements


def test_a_completed_message_is_gone_with_the_commit() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        await client.send(sender, plain("in"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        assert isinstance(await settle_within(client, receiver, [delivery.id], txn), Accepted)
        assert isinstance(await send_within(client, sender, plain("out"), txn), Accepted)
        assert await peeked(bus, "q") == ["in"]
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == ["out"]
        # The lock is gone too: a settlement of what is settled for good is refused.
        (answer,) = await client.settle(receiver, [delivery.id], ACCEPTED)
        assert condition_of(answer) == "com.microsoft:message-lock-lost"

    serve(talk)


def test_a_rolled_back_settlement_can_be_done_again() -> None:
    """Plainly, or in a new transaction; and the message has stayed locked."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        await client.send(await client.sender(), plain("a"), plain("b"))
        receiver = await client.receiver(credit=2)
        ids = [delivery.id for delivery in client.arrived(receiver)]
        txn = await control.declare()
        assert isinstance(await settle_within(client, receiver, ids, txn), Accepted)
        await control.roll_back(txn)
        other = await client.receiver(credit=2)
        assert client.arrived(other) == []
        again = await control.declare()
        assert isinstance(await settle_within(client, receiver, ids[:1], again), Accepted)
        assert isinstance(await control.commit(again), Accepted)
        (answer,) = await client.settle(receiver, ids[1:], ACCEPTED)
        assert isinstance(answer, Accepted)
        assert await peeked(bus, "q") == []

    serve(talk)


def test_every_settlement_can_be_part_of_a_transaction() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        texts = ("complete", "abandon", "defer", "dead-letter", "release")
        await client.send(await client.sender(), *(plain(text) for text in texts))
        receiver = await client.receiver(credit=5)
        ids = [delivery.id for delivery in client.arrived(receiver)]
        outcomes = [
            Accepted(),
            Modified(delivery_failed=True),
            Modified(delivery_failed=True, undeliverable_here=True),
            Rejected(),
            Released(),
        ]
        txn = await control.declare()
        for delivery_id, outcome in zip(ids, outcomes, strict=True):
            answer = await settle_within(client, receiver, [delivery_id], txn, outcome)
            assert type(answer) is type(outcome)
        assert isinstance(await control.commit(txn), Accepted)
        again = await client.receiver(credit=5)
        assert bodies(client.arrived(again)) == ["abandon", "release"]
        dead = await client.receiver("q/$deadletterqueue", credit=5)
        assert bodies(client.arrived(dead)) == ["dead-letter"]
        assert await peeked(bus, "q") == ["abandon", "defer", "release"]

    serve(talk)


def test_a_lost_lock_rolls_everything_back() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        await client.send(sender, plain("in"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        await settle_within(client, receiver, [delivery.id], txn)
        await send_within(client, sender, plain("out"), txn)
        await bus.advance(client, 61_000)
        outcome = await control.commit(txn)
        assert condition_of(outcome) == "amqp:transaction:rollback"
        assert "lock supplied is invalid" in outcome.error.description
        assert await peeked(bus, "q") == ["in"]

    serve(talk)


def test_settlements_that_come_settled_belong_to_it_too() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        await client.send(await client.sender(), plain("a"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        state = encode_composite(TransactionalState(txn_id=txn, outcome=Accepted()))
        receiver.settle([delivery.id], state, settled=True)
        await client.talk()
        assert await peeked(bus, "q") == ["a"]
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []

    serve(talk)


def test_a_settlement_of_an_unknown_transaction_is_refused() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        unauthorized = await bus.authorized()
        txn = await (await Control.of(unauthorized)).declare()
        await client.send(await client.sender(), plain("a"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        # A transaction belongs to its connection.
        answer = await settle_within(client, receiver, [delivery.id], txn)
        assert condition_of(answer) == "amqp:transaction:unknown-id"
        assert await peeked(bus, "q") == ["a"]

    serve(talk)


# --- how they end


def test_time_is_over_after_two_minutes() -> None:
    """Counted from the first operation."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        idle, late, given_up = [await control.declare() for _ in range(3)]
        await bus.advance(client, TWO_MINUTES_MS)
        for txn in (late, given_up):
            assert isinstance(await send_within(client, sender, plain("a"), txn), Accepted)
        assert client.peer.deadline <= bus.clock.now() + TWO_MINUTES_MS
        await bus.advance(client, TWO_MINUTES_MS - 1)
        assert isinstance(await send_within(client, sender, plain("b"), late), Accepted)
        await bus.advance(client, 1)
        outcome = await send_within(client, sender, plain("c"), late)
        assert condition_of(outcome) == "amqp:transaction:timeout"
        assert condition_of(await control.commit(late)) == "amqp:transaction:timeout"
        assert condition_of(await control.commit(late)) == "amqp:transaction:unknown-id"
        assert isinstance(await control.roll_back(given_up), Accepted)
        assert isinstance(await control.commit(idle), Accepted)
        assert await peeked(bus, "q") == []

    serve(talk)


@pytest.mark.parametrize("end", ["link", "session", "connection", "broken"])
def test_whatever_ends_the_control_link_rolls_back(end: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        txn = await control.declare()
        await send_within(client, sender, plain("a"), txn)
        if end == "link":
            control.link.detach()
        elif end == "session":
            client.session.end()
        elif end == "connection":
            client.connection.close()
        else:
            client.peer.lost()
        await client.talk()
        assert await peeked(bus, "q") == []
        if end == "link":
            again = await Control.of(client)
            assert condition_of(await again.commit(txn)) == "amqp:transaction:unknown-id"

    serve(talk)


def test_a_link_that_settled_may_go_before_the_commit() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        await client.send(await client.sender(), plain("a"))
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        txn = await control.declare()
        await settle_within(client, receiver, [delivery.id], txn)
        receiver.detach()
        await client.talk()
        assert isinstance(await control.commit(txn), Accepted)
        assert await peeked(bus, "q") == []

    serve(talk)


def test_a_commit_that_is_in_doubt_is_not_called_a_rollback() -> None:
    store = MemoryStore()

    def fail() -> None:
        raise Unavailable("the disk is gone")

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        txn = await control.declare()
        await send_within(client, sender, plain("a"), txn)
        store.before_commit = fail
        assert condition_of(await control.commit(txn)) == "amqp:internal-error"

    serve(talk, store=store)


def test_a_discharge_in_one_pass_with_its_operations_ends_all_of_them() -> None:
    """Fire and forget: nothing is answered, so that nothing is waited for."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        sender = await client.sender()
        txn = await control.declare()
        discharge = described_of(Discharge(txn_id=txn, fail=False))
        # The control link speaks first in this pass.
        client.post(control.link, encode_message(WireMessage(body=described_of(Declare()))))
        said = said_within(client, sender, plain("a"), txn, settled=True)
        client.post(control.link, encode_message(WireMessage(body=discharge)))
        client.peer.receive(said + client.connection.take_output(), bus.clock.now())
        assert [type(outcome) for outcome, _ in await client.outcomes()] == [Declared, Accepted]
        assert await peeked(bus, "q") == ["a"]

    serve(talk)
