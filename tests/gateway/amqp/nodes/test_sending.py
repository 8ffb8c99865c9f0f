"""Sending: every message is answered once it is stored, or refused with a reason."""

from __future__ import annotations

import pytest

from peeklock.amqp.frames.states import Accepted
from peeklock.amqp.messages.message import AmqpMessage, decode_message, encode_message
from peeklock.amqp.messages.message_forms import Properties
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Symbol, Timestamp, Ulong
from peeklock.entity.definition import SEND_DISABLED, QueueDefinition
from peeklock.gateway.amqp.namespace_context import GatewayLimits
from peeklock.store.memory import MemoryStore
from peeklock.store.store import Unavailable
from tests.gateway.amqp.amqp_harness import (
    AmqpHarness,
    annotation,
    bodies,
    body_of,
    condition_of,
    plain,
    serve,
)

BATCH = 0x80013700


def batch(*messages: bytes) -> bytes:
    return b"".join(encode(Described(Ulong(0x75), message)) for message in messages)


def test_a_message_is_accepted_when_it_is_stored() -> None:
    """R-T1: and a receiver gets it."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        assert isinstance(await client.send(link, plain("a")), Accepted)
        receiver = await client.receiver(credit=5)
        assert bodies(client.arrived(receiver)) == ["a"]

    serve(talk)


def test_a_thousand_messages_are_under_way_at_once() -> None:
    """R-T3: one link, all answered, order kept."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        assert link.credit == 1_000
        await client.send(link, *(plain(str(i)) for i in range(1_000)))
        assert link.credit == 1_000
        receiver = await client.receiver(credit=1_000)
        assert bodies(client.arrived(receiver)) == [str(i) for i in range(1_000)]

    serve(talk)


def test_nothing_is_accepted_that_could_not_be_stored() -> None:
    """R-T1, R-T2: the store fails; the condition is one that clients try again."""
    store = MemoryStore()

    def fail() -> None:
        raise Unavailable("the disk is gone")

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        await client.send(link, plain("kept"))
        store.before_commit = fail
        outcome = await client.send(link, plain("lost"))
        assert condition_of(outcome) == "com.microsoft:server-busy"
        assert "TrackingId:" in outcome.error.description

    serve(talk, store=store)


def test_settled_messages_are_stored_and_never_answered() -> None:
    """R-T4: fire and forget."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        for text in ("a", "b"):
            client.post(link, plain(text), settled=True)
        assert await client.outcomes() == []
        receiver = await client.receiver(credit=5)
        assert bodies(client.arrived(receiver)) == ["a", "b"]

    serve(talk)


def test_settled_and_unsettled_messages_keep_their_order() -> None:
    """R-T3, R-T4: only the unsettled ones are answered."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        for text, settled in (("a", False), ("b", True), ("c", False)):
            client.post(link, plain(text), settled=settled)
        assert [count for _, count in await client.outcomes()] in ([2], [1, 1])
        receiver = await client.receiver(credit=5)
        assert bodies(client.arrived(receiver)) == ["a", "b", "c"]

    serve(talk)


def test_a_batch_is_several_messages_and_one_answer() -> None:
    """R-T5."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        client.post(link, plain("before"))
        client.post(link, batch(plain("a"), plain("b")), form=BATCH)
        client.post(link, plain("after"))
        assert sum(count for _, count in await client.outcomes()) == 3
        receiver = await client.receiver(credit=9)
        assert bodies(client.arrived(receiver)) == ["before", "a", "b", "after"]

    serve(talk)


def test_a_batch_with_one_bad_message_stores_none() -> None:
    """R-T5: all or none."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        outcome = await client.send(link, batch(plain("a"), b"\x00\x53\x99"), form=BATCH)
        assert condition_of(outcome) == "amqp:decode-error"
        receiver = await client.receiver(credit=9)
        assert client.arrived(receiver) == []

    serve(talk)


@pytest.mark.parametrize("settled", [False, True])
def test_an_empty_batch_is_no_wish_at_all(settled: bool) -> None:
    """JavaScript's client sends one for an empty list."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        client.post(link, b"\x00\x53\x70\x45\x00\x53\x73\x45", settled=settled, form=BATCH)
        assert await client.outcomes() == ([] if settled else [(Accepted(), 1)])
        receiver = await client.receiver(credit=9)
        assert client.arrived(receiver) == []

    serve(talk)


def test_a_malformed_message_is_rejected_and_the_others_are_not() -> None:
    """R-T2."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        client.post(link, plain("a"))
        client.post(link, b"not a message")
        client.post(link, plain("b"))
        outcomes = await client.outcomes()
        assert sorted((type(o).__name__, n) for o, n in outcomes) == [
            ("Accepted", 2),
            ("Rejected", 1),
        ]
        receiver = await client.receiver(credit=9)
        assert bodies(client.arrived(receiver)) == ["a", "b"]

    serve(talk)


@pytest.mark.parametrize("bad", [plain("x" * 3_000), b"\x00\x53"], ids=["large", "unreadable"])
def test_refused_messages_give_their_credit_back(bad: bytes) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        for _ in range(15):
            outcomes = []
            for _ in range(100):
                client.post(link, bad)
            outcomes = await client.outcomes()
            assert sum(count for _, count in outcomes) == 100
        assert isinstance(await client.send(link, plain("fits")), Accepted)

    serve(talk, QueueDefinition("q", message_size_max=2_048))


@pytest.mark.parametrize("settled", [False, True])
def test_a_message_that_is_too_large_is_refused_and_the_link_lives(settled: bool) -> None:
    """R-T2: with the size it has and the size it may have."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        assert link.peer_max_message_size == 2_048
        client.post(link, plain("x" * 3_000), settled=settled)
        outcomes = await client.outcomes()
        assert len(outcomes) == (0 if settled else 1)
        for outcome, _ in outcomes:
            assert condition_of(outcome) == "amqp:link:message-size-exceeded"
            assert "2048 bytes" in outcome.error.description
        assert isinstance(await client.send(link, plain("fits")), Accepted)

    serve(talk, QueueDefinition("q", message_size_max=2_048))


def test_a_message_that_is_far_too_large_ends_the_link() -> None:
    """Nothing gathers more than a little over what is allowed."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        client.post(link, plain("x" * 2_000_000))
        error = await client.refused(link)
        assert error.condition == "amqp:link:message-size-exceeded"

    serve(talk)


def test_a_message_over_many_frames_arrives_whole() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        text = "0123456789" * 20_000
        await client.send(link, plain(text))
        receiver = await client.receiver(credit=1)
        assert bodies(client.arrived(receiver)) == [text]

    serve(talk)


def test_a_disabled_queue_takes_nothing() -> None:
    """R-T2: links that are there must go, and no new one is let in."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        await bus.bench.broker.put_queue(QueueDefinition("q", status=SEND_DISABLED))
        assert (await client.refused(link)).condition == "amqp:link:detach-forced"
        error = await client.refused(client.ask_sender("q"))
        assert error.condition == "com.microsoft:entity-disabled"

    serve(talk)


def test_a_full_store_refuses_with_a_condition_that_is_tried_again() -> None:
    """R-T2."""
    store = MemoryStore()

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        store.full = True
        outcome = await client.send(link, plain("a"))
        assert condition_of(outcome) == "com.microsoft:server-busy"

    serve(talk, store=store)


def test_reading_stops_while_too_much_waits_for_the_store() -> None:
    """A client that ignores credit cannot fill the memory."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        client.post(link, plain("x" * 5_000))
        client.peer.receive(client.connection.take_output(), bus.clock.now())
        assert client.pipe.is_reading_held
        await client.talk()
        assert not client.pipe.is_reading_held

    serve(talk, limits=GatewayLimits(bytes_in_flight_max=4_000))


def test_a_message_without_an_id_gets_one() -> None:
    """R-S9: 32 hex digits; an id that is there stays, whatever its type."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        await client.send(link, plain("none"), plain("text", message_id="mine"))
        receiver = await client.receiver(credit=5)
        first, second = (decode_message(d.payload) for d in client.arrived(receiver))
        assert first.properties is not None
        assert second.properties is not None
        assert len(first.properties.message_id) == 32
        int(first.properties.message_id, 16)
        assert second.properties.message_id == "mine"

    serve(talk)


def test_a_message_scheduled_by_annotation_comes_when_it_is_due() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        due = bus.clock.now() + 5_000
        await client.send(
            link,
            encode_message(
                AmqpMessage(
                    message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due)},
                    properties=Properties(message_id="m"),
                    body="later",
                )
            ),
        )
        receiver = await client.receiver(credit=5)
        assert client.arrived(receiver) == []
        await bus.advance(client, 5_000)
        (delivery,) = client.arrived(receiver)
        assert decode_message(delivery.payload).body == "later"
        assert annotation(delivery.payload, "x-opt-scheduled-enqueue-time") == due
        assert annotation(delivery.payload, "x-opt-enqueued-time") == due

    serve(talk)


def test_a_dead_letter_queue_takes_no_messages() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        error = await client.refused(client.ask_sender("q/$DeadLetterQueue"))
        assert error.condition == "amqp:not-allowed"

    serve(talk)


def test_a_body_goes_through_byte_by_byte() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        payload = plain("ä\x00\n", message_id="m", subject="s")
        await client.send(link, payload)
        receiver = await client.receiver(credit=1)
        (delivery,) = client.arrived(receiver)
        assert delivery.payload.endswith(payload)
        assert body_of(delivery.payload) == "ä\x00\n"

    serve(talk)
