"""Receiving: credit, locks, settlements and their answers."""

from __future__ import annotations

from uuid import UUID

import pytest

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import FlowReceived
from peeklock.amqp.frames.states import Accepted, Modified, Rejected
from peeklock.amqp.frames.termini import Source
from peeklock.amqp.messages.message import decode_message
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import (
    ACCEPTED,
    REJECTED_PLAIN,
    RELEASED,
    encode_modified,
    encode_rejected,
)
from peeklock.amqp.values.types import Symbol
from peeklock.entity.definition import RECEIVE_DISABLED, QueueDefinition
from peeklock.gateway.amqp.namespace_context import GatewayLimits
from peeklock.store.memory import MemoryStore
from peeklock.store.store import Unavailable
from tests.gateway.amqp.amqp_harness import (
    AmqpHarness,
    Client,
    annotation,
    bodies,
    condition_of,
    plain,
    serve,
)

ABANDONED = encode_modified(delivery_failed=True, undeliverable_here=False)
DEFERRED = encode_modified(delivery_failed=True, undeliverable_here=True)


async def filled(bus: AmqpHarness, *texts: str) -> Client:
    client = await bus.authorized()
    await client.send(await client.sender(), *(plain(text) for text in texts))
    return client


def delivery_count(payload: bytes) -> int | None:
    header = decode_message(payload).header
    assert header is not None
    return header.delivery_count


def test_credit_is_honoured_exactly() -> None:
    """R-F4: never more than was asked for, and what is left over stays valid."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, *(str(i) for i in range(10)))
        link = await client.receiver(credit=3)
        assert bodies(client.arrived(link)) == ["0", "1", "2"]
        link.grant(20)
        await client.talk()
        assert len(client.arrived(link)) == 7
        await client.send(await client.sender(), plain("late"))
        assert bodies(client.arrived(link)) == ["late"]

    serve(talk)


def test_what_a_delivery_tells() -> None:
    """R-S2, R-L1: number, instants, count, and the lock token in .NET's byte order."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=1)
        (delivery,) = client.arrived(link)
        now = bus.clock.now()
        payload = delivery.payload
        assert not delivery.settled
        assert delivery.message_format == 0
        assert UUID(bytes_le=delivery.tag).int >> 64 == 1
        assert delivery_count(payload) == 0
        told = decode_message(payload)
        assert told.delivery_annotations == {"x-opt-lock-token": UUID(bytes_le=delivery.tag)}
        assert told.message_annotations == {
            "x-opt-enqueued-time": now,
            "x-opt-sequence-number": 1,
            "x-opt-locked-until": now + 60_000,
        }

    serve(talk)


def test_complete_is_answered_and_removes_the_message() -> None:
    """R-S3."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a", "b")
        link = await client.receiver(credit=2)
        ids = [delivery.id for delivery in client.arrived(link)]
        assert await client.settle(link, ids, ACCEPTED) == [Accepted()]
        await bus.advance(client, 61_000)
        link.grant(5)
        await client.talk()
        assert client.arrived(link) == []

    serve(talk)


@pytest.mark.parametrize(
    ("state", "answer", "count"),
    [
        (ABANDONED, Modified(delivery_failed=True), 1),
        (encode_modified(delivery_failed=False, undeliverable_here=False), None, 1),
    ],
)
def test_abandon_gives_back_at_once(state: bytes, answer: Modified | None, count: int) -> None:
    """R-S4: the answer is the same outcome, the count goes up, the place is the old one."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a", "b")
        link = await client.receiver(credit=1)
        (delivery,) = client.arrived(link)
        (answered,) = await client.settle(link, [delivery.id], state)
        assert isinstance(answered, Modified)
        assert answer is None or answered == answer
        link.grant(1)
        await client.talk()
        (again,) = client.arrived(link)
        assert bodies([again]) == ["a"]
        assert delivery_count(again.payload) == count

    serve(talk)


def test_properties_to_modify_are_set_on_the_message() -> None:
    """R-S4: whatever their type; keys are symbols or strings."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=1)
        (delivery,) = client.arrived(link)
        state = encode_modified(
            delivery_failed=True,
            undeliverable_here=False,
            message_annotations={Symbol("tries"): 2, "why": "later", "ratio": 0.5},
        )
        await client.settle(link, [delivery.id], state)
        link.grant(1)
        await client.talk()
        (again,) = client.arrived(link)
        assert decode_message(again.payload).application_properties == {
            "tries": 2,
            "why": "later",
            "ratio": 0.5,
        }

    serve(talk)


def test_a_dead_lettered_message_has_its_reason() -> None:
    """R-S5: success is rejected without an error; other entries are properties."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a", "b", "c")
        link = await client.receiver(credit=3)
        first, second, third = client.arrived(link)
        with_info = AmqpError(
            "com.microsoft:dead-letter",
            "text",
            {
                Symbol("DeadLetterReason"): "bad",
                Symbol("DeadLetterErrorDescription"): "really",
                "n": 1,
            },
        )
        answers = await client.settle(link, [first.id], encode_rejected(with_info))
        answers += await client.settle(link, [second.id], REJECTED_PLAIN)
        only_text = AmqpError("com.microsoft:dead-letter", "the text", {"DeadLetterReason": "bad"})
        answers += await client.settle(link, [third.id], encode_rejected(only_text))
        assert answers == [Rejected(error=None)] * 3

        dead = await client.receiver("q/$DeadLetterQueue", credit=5)
        told = [decode_message(d.payload).application_properties for d in client.arrived(dead)]
        assert told == [
            {"n": 1, "DeadLetterReason": "bad", "DeadLetterErrorDescription": "really"},
            None,
            {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "the text"},
        ]

    serve(talk)


def test_released_messages_come_back_without_a_count() -> None:
    """R-S7: what a client gives back when it closes was never delivered."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=1)
        (delivery,) = client.arrived(link)
        link.settle([delivery.id], RELEASED, settled=True)
        await client.talk()
        link.grant(1)
        await client.talk()
        (again,) = client.arrived(link)
        assert delivery_count(again.payload) == 0

    serve(talk)


def test_a_settled_acceptance_gets_no_answer_and_counts() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=1)
        (delivery,) = client.arrived(link)
        link.settle([delivery.id], ACCEPTED, settled=True)
        await bus.advance(client, 61_000)
        link.grant(1)
        await client.talk()
        assert client.arrived(link) == []

    serve(talk)


def test_a_settlement_after_the_lock_was_lost_fails() -> None:
    """R-S8, R-L3: message-lock-lost, and the message has a new owner."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=1)
        (delivery,) = client.arrived(link)
        link.grant(1)
        await bus.advance(client, 60_000)
        (again,) = client.arrived(link)
        assert delivery_count(again.payload) == 1
        (answer,) = await client.settle(link, [delivery.id], ACCEPTED)
        assert condition_of(answer) == "com.microsoft:message-lock-lost"
        assert "SystemTracker:ns:Queue:q" in answer.error.description
        assert await client.settle(link, [again.id], ACCEPTED) == [Accepted()]

    serve(talk)


def test_receive_and_delete_settles_before_it_sends() -> None:
    """R-S1: nothing comes back."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a", "b")
        link = await client.receiver(credit=1, snd_settle_mode=1, rcv_settle_mode=0)
        (delivery,) = client.arrived(link)
        assert delivery.settled
        assert annotation(delivery.payload, "x-opt-locked-until") is None
        link.detach()
        await bus.advance(client, 61_000)
        other = await client.receiver(credit=5)
        assert bodies(client.arrived(other)) == ["b"]

    serve(talk)


def test_settle_modes_are_echoed() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        asked = await client.receiver(snd_settle_mode=0, rcv_settle_mode=1)
        silent = await client.receiver()
        assert (asked.snd_settle_mode, asked.rcv_settle_mode) == (0, 1)
        assert (silent.snd_settle_mode, silent.rcv_settle_mode) == (None, None)

    serve(talk)


async def drain(client: Client, link: Link) -> int:
    """Use up the credit; gives how many messages came first."""
    link.drain_credit()
    await client.talk()
    assert link in [event.link for event in client.take(FlowReceived)]
    assert link.credit == 0
    return len(client.arrived(link))


def test_a_drain_gives_what_there_is_and_ends_the_credit() -> None:
    """R-F4: also on an empty queue, and again after that."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a", "b")
        link = await client.receiver()
        link.grant(10)
        assert await drain(client, link) == 2
        link.grant(10)
        assert await drain(client, link) == 0
        link.grant(1)
        await client.send(await client.sender(), plain("c"), plain("d"))
        assert bodies(client.arrived(link)) == ["c"]

    serve(talk)


def test_a_drain_of_more_than_is_asked_of_the_queue_at_once() -> None:
    """The gateway asks for a few at a time; a drain goes on until the queue has no more."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, *("x" * 900 for _ in range(40)))
        link = await client.receiver()
        link.grant(100)
        assert await drain(client, link) == 40

    serve(talk, limits=GatewayLimits(delivery_bytes_max=4_000))


def test_large_credit_is_asked_for_little_by_little() -> None:
    """A slow reader holds a bounded number of bytes; a quick one gets all the same."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, *(str(i) for i in range(60)))
        link = await client.receiver(credit=50)
        assert bodies(client.arrived(link)) == [str(i) for i in range(50)]
        link.grant(50)
        await client.talk()
        assert len(client.arrived(link)) == 10

    serve(talk, limits=GatewayLimits(delivery_bytes_max=1_000))


def test_nothing_is_asked_for_while_the_client_does_not_read() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver()
        client.peer.hold_writing()
        link.grant(5)
        await client.talk()
        assert (client.arrived(link), client.pipe.is_reading_held) == ([], True)
        client.peer.resume_writing()
        await client.talk()
        assert not client.pipe.is_reading_held
        assert bodies(client.arrived(link)) == ["a"]

    serve(talk)


def test_credit_taken_back_stops_deliveries() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.receiver(credit=10)
        link.grant(0)
        await client.talk()
        await client.send(await client.sender(), plain("a"))
        assert client.arrived(link) == []
        link.grant(1)
        await client.talk()
        assert bodies(client.arrived(link)) == ["a"]

    serve(talk)


def test_messages_for_a_link_that_is_gone_go_back_at_once() -> None:
    """They were locked in the moment of the detach; nobody has to wait for the lock."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver()
        link.grant(1)
        link.detach()
        await client.talk()
        client.events.clear()
        other = await client.receiver(credit=1)
        (delivery,) = client.arrived(other)
        assert delivery_count(delivery.payload) == 0

    serve(talk)


def test_locks_outlive_the_link() -> None:
    """R-S8: our departure from the articles; the lock ends when it expires."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=1)
        assert len(client.arrived(link)) == 1
        link.detach()
        await client.talk()
        other = await client.receiver(credit=1)
        assert client.arrived(other) == []
        await bus.advance(client, 60_000)
        (delivery,) = client.arrived(other)
        assert delivery_count(delivery.payload) == 1

    serve(talk)


def test_a_broken_connection_gives_locks_back_where_the_queue_says_so() -> None:
    """R-S8: the articles' behaviour as an option."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=1)
        assert len(client.arrived(link)) == 1
        client.peer.lost()
        other = await bus.authorized()
        (delivery,) = other.arrived(await other.receiver(credit=1))
        assert delivery_count(delivery.payload) == 0

    serve(talk, QueueDefinition("q", unlock_on_disconnect=True))


def test_a_receiver_is_told_when_its_partition_is_lost() -> None:
    """R-L4: the link ends with a condition that clients try again."""
    store = MemoryStore()

    def fail() -> None:
        raise Unavailable("the disk is gone")

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=5)
        store.before_commit = fail
        sender = await client.sender()
        await client.send(sender, plain("b"))
        error = await client.refused(link)
        assert error.condition == "amqp:internal-error"

    serve(talk, store=store)


def test_an_outcome_that_is_none_is_refused() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a")
        link = await client.receiver(credit=1)
        (delivery,) = client.arrived(link)
        (answer,) = await client.settle(link, [delivery.id], b"\x00\x53\x33\xc0\x03\x01\xa0\x00")
        assert condition_of(answer) == "com.microsoft:argument-error"

    serve(talk)


def test_a_session_cannot_be_had_from_a_queue_without_sessions() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        source = Source(address="q", filter={Symbol("com.microsoft:session-filter"): "s"})
        error = await client.refused(client.ask_receiver(source))
        assert error.condition == "amqp:not-allowed"

    serve(talk)


def test_a_disabled_queue_gives_nothing() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        error = await client.refused(client.ask_receiver(Source(address="q")))
        assert error.condition == "com.microsoft:entity-disabled"
        assert "'ns:Queue:q' is currently disabled" in str(error.description)

    serve(talk, QueueDefinition("q", status=RECEIVE_DISABLED))


def test_competing_receivers_share() -> None:
    """R-S2: each message goes to one of them."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        one = await client.receiver(credit=50)
        other = await client.receiver(credit=50)
        await client.send(await client.sender(), *(plain(str(i)) for i in range(40)))
        first = bodies(client.arrived(one))
        second = bodies(client.arrived(other))
        assert first
        assert second
        assert sorted(first + second, key=int) == [str(i) for i in range(40)]

    serve(talk)
