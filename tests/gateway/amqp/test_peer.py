"""A connection: links, sessions and its own end."""

from __future__ import annotations

import logging

import pytest

from peeklock.amqp.events import Closed, SessionEnded
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.limits import ConnectionLimits
from peeklock.gateway.quotas.shared_limits import SharedLimits
from tests.gateway.amqp.amqp_harness import AmqpHarness, bodies, plain, serve


def test_links_that_cannot_be() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        session = client.session
        for link, condition in (
            (session.attach_sender("b", Target(dynamic=True)), "amqp:not-implemented"),
            (session.attach_sender("c", Target()), "com.microsoft:argument-error"),
            (session.attach_receiver("d", Source()), "com.microsoft:argument-error"),
            (
                session.attach_sender("e", Target(address="q/$Transfer/$DeadLetterQueue")),
                "amqp:not-allowed",
            ),
        ):
            assert (await client.refused(link)).condition == condition

    serve(talk)


def test_a_missing_queue_is_told_in_the_words_that_javascript_looks_for() -> None:
    """R-T2."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("")
        error = await client.refused(client.ask_sender("amqps://localhost/Nothing"))
        assert error.condition == "amqp:not-found"
        assert "The messaging entity 'sb://localhost/Nothing' could not be found." in str(
            error.description
        )

    serve(talk)


def test_one_link_that_goes_leaves_the_others() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        first = await client.sender()
        second = await client.sender()
        first.detach()
        await client.send(second, plain("a"))
        receiver = await client.receiver(credit=1)
        assert bodies(client.arrived(receiver)) == ["a"]

    serve(talk)


def test_a_second_link_of_the_same_name_takes_the_place_of_the_first() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        first = await client.receiver(credit=5)
        session = client.connection.begin_session()
        second = session.attach_receiver(first.name, Source(address="q"))
        assert (await client.refused(first)).condition == "amqp:link:stolen"
        second.grant(5)
        await client.send(await client.sender(), plain("a"))
        assert bodies(client.arrived(second)) == ["a"]

    serve(talk)


def test_a_session_that_ends_takes_its_receivers_along() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        sender = await client.sender()
        session = client.connection.begin_session()
        link = session.attach_receiver("r", Source(address="q"))
        link.grant(10)
        await client.talk()
        session.end()
        await client.talk()
        await client.send(sender, plain("a"))
        other = await client.receiver(credit=1)
        assert bodies(client.arrived(other)) == ["a"]
        assert client.take(SessionEnded) == []

    serve(talk)


def test_a_close_is_answered_and_ends_everything(caplog: pytest.LogCaptureFixture) -> None:
    """One line for the beginning and one for the end."""
    caplog.set_level(logging.INFO, "peeklock.connections")

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        await client.receiver(credit=10)
        client.connection.close()
        await client.talk()
        assert client.pipe.is_closed
        client.peer.lost()
        other = await bus.authorized()
        await other.send(await other.sender(), plain("a"))
        assert bodies(other.arrived(await other.receiver(credit=1))) == ["a"]

    serve(talk)
    events = [record.getMessage().split()[0] for record in caplog.records]
    assert events == ["connection-opened", "connection-closed", "connection-opened"]


def test_a_lost_connection_says_nothing_more() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        client.post(link, plain("a"))
        client.peer.receive(client.connection.take_output(), bus.clock.now())
        client.peer.lost()
        client.pipe.written.clear()
        client.events.clear()
        await client.talk()
        assert client.events == []
        client.peer.tick(bus.clock.now())
        other = await bus.authorized()
        assert bodies(other.arrived(await other.receiver(credit=1))) == ["a"]

    serve(talk)


def test_a_broker_that_stops_says_so() -> None:
    """R-S8: amqp:connection:forced, which the clients take as a reason to connect again."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        await client.receiver(credit=1)
        client.peer.shut_down()
        await client.talk()
        (closed,) = client.take(Closed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"
        assert client.pipe.is_closed

    serve(talk)


def test_who_only_opened_makes_room_and_who_has_a_token_stays() -> None:
    """R-F7: the refusal is clear."""

    async def talk(bus: AmqpHarness) -> None:
        shared_limits = SharedLimits(unauthenticated_max=1)
        known = await bus.authorized(shared_limits=shared_limits)
        idle = await bus.connect(shared_limits=shared_limits)
        await bus.authorized(shared_limits=shared_limits)
        await idle.talk()
        (closed,) = idle.take(Closed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"
        assert "token" in str(closed.error.description)
        assert idle.pipe.is_closed
        assert not known.pipe.is_closed
        assert shared_limits.unauthenticated.count == 0

    serve(talk)


def test_a_client_that_dawdles_is_cut_off() -> None:
    """A connection that never opens holds nothing for long."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        silent = type(client)(bus, None)
        bus.clock.advance(30_000)
        silent.peer.tick(bus.clock.now())
        assert silent.pipe.is_closed

    serve(talk)


def test_silence_ends_a_connection_and_heartbeats_keep_it() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        for _ in range(10):
            await bus.advance(client, 110_000)
            client.connection.tick(bus.clock.now())
            await client.talk()
        assert client.take(Closed) == []
        await bus.bench.advance(500_000)
        client.peer.tick(bus.clock.now())
        assert client.pipe.is_closed

    serve(talk)


def test_links_have_a_limit() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        await client.sender()
        client.ask_sender("q")
        await client.talk()
        (ended,) = client.take(SessionEnded)
        assert ended.error is not None
        assert ended.error.condition == "amqp:resource-limit-exceeded"

    serve(talk, engine_limits=ConnectionLimits(links_max=3))


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x01", bytes(64)])
def test_noise_ends_the_connection_and_nothing_else(noise: bytes) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        unauthorized = type(client)(bus, None)
        unauthorized.peer.receive(noise, bus.clock.now())
        assert unauthorized.pipe.is_closed
        await client.put_token("q")
        await client.sender()

    serve(talk)
