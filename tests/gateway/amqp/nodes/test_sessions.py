"""Session receivers: who gets which session, the attach that waits, and how a session ends."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.amqp.events import AttachAnswered, LinkDetached
from peeklock.amqp.frames.states import Accepted
from peeklock.amqp.frames.termini import Source
from peeklock.amqp.messages.message import decode_message
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.composites import ACCEPTED
from peeklock.amqp.values.types import Char, Described, Symbol, Uint, Ulong
from peeklock.entity.definition import QueueDefinition
from peeklock.store.memory import MemoryStore
from peeklock.store.store import Unavailable
from tests.gateway.amqp.amqp_harness import (
    SESSION_FILTER,
    AmqpHarness,
    Client,
    annotation,
    bodies,
    condition_of,
    plain,
    serve,
)

WITH_SESSIONS = QueueDefinition("q", requires_session=True, batched_store_access=False)
PARTITIONED = QueueDefinition("q", requires_session=True, batched_store_access=False, partitions=4)
# A session is in one partition, and nobody outside can tell which.
on_both = pytest.mark.parametrize("queue", [WITH_SESSIONS, PARTITIONED], ids=["one", "four"])
LOCKED_UNTIL = "com.microsoft:locked-until-utc"


async def filled(bus: AmqpHarness, *texts: str) -> Client:
    """A client that has sent messages; the first letter of each is its session."""
    client = await bus.authorized()
    if texts:
        sender = await client.sender()
        await client.send(sender, *(plain(text, group_id=text[0]) for text in texts))
    return client


def session_of(link: Link) -> Any:
    """The session that the broker says a link has got."""
    told = told_session(link)
    return told.value if isinstance(told, Described) else told


def told_session(link: Link) -> Any:
    """How the broker says it."""
    assert isinstance(link.source, Source)
    assert link.source.filter is not None
    return link.source.filter[SESSION_FILTER]


def is_attached(client: Client, link: Link) -> bool:
    return link in [event.link for event in client.take(AttachAnswered)]


@pytest.mark.parametrize(
    "wanted",
    [
        "b",
        Described(Ulong(0x137000000C), "b"),
        Described(Symbol("com.microsoft:session-filter"), "b"),
    ],
)
def test_a_named_session_is_given_at_once(wanted: Any) -> None:
    """The answer names the session in the form of the wish, and the end of its lock in ticks."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1", "b1", "a2", "b2")
        link = await client.session_receiver(wanted, credit=5)
        assert told_session(link) == wanted
        assert type(session_of(link)) is str
        assert link.source.address == "q"
        until = bus.clock.now() + 60_000
        assert link.properties == {LOCKED_UNTIL: 621_355_968_000_000_000 + until * 10_000}
        assert bodies(client.arrived(link)) == ["b1", "b2"]

    serve(talk, WITH_SESSIONS)


def test_a_session_without_messages_is_given_too() -> None:
    """The empty id is a session like any other, and not the same as none."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1")
        link = await client.session_receiver("", credit=1)
        assert session_of(link) == ""
        sender = await client.sender()
        await client.send(sender, plain("nameless", group_id=""))
        assert bodies(client.arrived(link)) == ["nameless"]

    serve(talk, WITH_SESSIONS)


@pytest.mark.parametrize("wanted", [None, Described(Ulong(0x137000000C), None)])
def test_the_next_session_is_the_free_one_with_the_oldest_message(wanted: Any) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "b1", "a1", "c1")
        links = [await client.session_receiver(wanted) for _ in range(3)]
        assert [session_of(link) for link in links] == ["b", "a", "c"]

    serve(talk, WITH_SESSIONS)


@on_both
def test_the_attach_waits_for_a_session_and_nothing_else_does(queue: QueueDefinition) -> None:
    """Other links of the connection go on; credit that came meanwhile counts."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus)
        link = client.ask_session(None)
        link.grant(2)
        await client.talk()
        assert not is_attached(client, link)
        sender = await client.sender()
        await client.send(sender, plain("a1", group_id="a"), plain("a2", group_id="a"))
        assert is_attached(client, link)
        assert session_of(link) == "a"
        assert bodies(client.arrived(link)) == ["a1", "a2"]

    serve(talk, queue)


@on_both
@pytest.mark.parametrize(
    ("timeout_ms", "waits_ms"), [(None, 65_000), (Uint(3_000), 3_000), (Uint(70_000), 70_000)]
)
def test_a_wait_ends_with_its_time(timeout_ms: Any, waits_ms: int, queue: QueueDefinition) -> None:
    """The time that the client allows, whatever its size; 65 seconds when it says nothing."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus)
        link = client.ask_session(None, timeout_ms=timeout_ms)
        await bus.advance(client, waits_ms - 1)
        assert client.take(LinkDetached) == []
        await bus.advance(client, 1)
        assert (await client.refused(link)).condition == "com.microsoft:timeout"

    serve(talk, queue)


@on_both
def test_a_session_that_another_holds_cannot_be_locked(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1")
        await client.session_receiver("a")
        other = await bus.authorized()
        error = await other.refused(other.ask_session("a"))
        assert error.condition == "com.microsoft:session-cannot-be-locked"
        assert "The requested session 'a' cannot be accepted." in str(error.description)

    serve(talk, queue)


@on_both
def test_whoever_gives_up_waiting_gets_nothing(queue: QueueDefinition) -> None:
    """Detached or disconnected meanwhile: the session is free for the next."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus)
        gone = client.ask_session(None)
        await client.talk()
        gone.detach()
        await client.talk()
        lost = await bus.authorized()
        lost.ask_session(None)
        await lost.talk()
        lost.peer.lost()
        link = client.ask_session(None)
        await client.talk()
        sender = await client.sender()
        await client.send(sender, plain("a1", group_id="a"))
        assert is_attached(client, link)

    serve(talk, queue)


@on_both
def test_a_session_that_was_given_to_somebody_gone_is_free(queue: QueueDefinition) -> None:
    """The broker accepts while the client's last word is on its way."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1")
        gone = client.ask_session("a")
        gone.detach()
        await client.talk()
        assert session_of(await client.session_receiver("a")) == "a"

    serve(talk, queue)


@on_both
def test_closing_frees_the_session_and_counts_no_delivery(queue: QueueDefinition) -> None:
    """What was not settled comes back in order."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1", "a2", "a3")
        link = await client.session_receiver("a", credit=2)
        assert len(client.arrived(link)) == 2
        link.detach()
        await client.talk()
        link = await client.session_receiver("a", credit=5)
        arrived = client.arrived(link)
        assert bodies(arrived) == ["a1", "a2", "a3"]
        for delivery in arrived:
            header = decode_message(delivery.payload).header
            assert header is not None
            assert header.delivery_count == 0
            until = bus.clock.now() + 60_000
            assert annotation(delivery.payload, "x-opt-locked-until") == until

    serve(talk, queue)


@on_both
def test_a_lost_connection_frees_the_session(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1")
        await client.session_receiver("a", credit=1)
        client.peer.lost()
        other = await bus.authorized()
        link = await other.session_receiver("a", credit=1)
        assert bodies(other.arrived(link)) == ["a1"]

    serve(talk, queue)


@on_both
def test_a_lock_that_ends_ends_the_link(queue: QueueDefinition) -> None:
    """Its messages come back, and this time the delivery counts."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1")
        link = await client.session_receiver("a", credit=1)
        await bus.advance(client, 60_001)
        error = await client.refused(link)
        assert error.condition == "com.microsoft:session-lock-lost"
        link = await client.session_receiver("a", credit=1)
        (delivery,) = client.arrived(link)[-1:]
        header = decode_message(delivery.payload).header
        assert header is not None
        assert header.delivery_count == 1

    serve(talk, queue)


@on_both
def test_settling_in_a_session(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1", "a2")
        link = await client.session_receiver("a", credit=2)
        first, second = client.arrived(link)
        assert await client.settle(link, [first.id], ACCEPTED) == [Accepted()]
        assert await client.settle(link, [second.id], ACCEPTED) == [Accepted()]

    serve(talk, queue)


def test_settling_after_the_lock_has_ended() -> None:
    """The gateway may hear of it before the timer of the broker has fired."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1")
        link = await client.session_receiver("a", credit=1)
        (delivery,) = client.arrived(link)
        bus.clock.advance(60_001)
        (answer,) = await client.settle(link, [delivery.id], ACCEPTED)
        assert condition_of(answer) == "com.microsoft:session-lock-lost"

    serve(talk, WITH_SESSIONS)


def test_sessions_and_plain_receivers_do_not_mix() -> None:
    """Dead letters of an entity with sessions are plain."""

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus)
        await client.put_token("plain")
        error = await client.refused(client.ask_receiver(Source(address="q")))
        assert error.condition == "amqp:not-allowed"
        assert (
            "It is not possible for an entity that requires sessions to create a non-sessionful "
            "message receiver."
        ) in str(error.description)
        for address in ("plain", "q/$DeadLetterQueue"):
            error = await client.refused(client.ask_session("a", address))
            assert error.condition == "amqp:not-allowed"
        await client.receiver("q/$DeadLetterQueue")

    serve(talk, WITH_SESSIONS, QueueDefinition("plain"))


@pytest.mark.parametrize(
    "wanted", [Uint(3), Described(Ulong(5), "a"), Described(Symbol("x"), 3), Char("a"), "s" * 129]
)
def test_a_wish_that_cannot_be_read_is_refused(wanted: Any) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus)
        error = await client.refused(client.ask_session(wanted))
        assert error.condition == "com.microsoft:argument-error"

    serve(talk, WITH_SESSIONS)


def test_a_time_that_cannot_be_read_is_refused() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus)
        error = await client.refused(client.ask_session(None, timeout_ms="soon"))
        assert error.condition == "com.microsoft:argument-error"

    serve(talk, WITH_SESSIONS)


@on_both
def test_a_token_that_ends_ends_the_wait(queue: QueueDefinition) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", life_ms=10_000)
        link = client.ask_session(None)
        await bus.advance(client, 10_000)
        assert (await client.refused(link)).condition == "amqp:unauthorized-access"

    serve(talk, queue)


def test_a_store_that_fails_ends_waits_and_sessions() -> None:
    """Nobody waits for an answer that will not come."""
    store = MemoryStore()

    def fail() -> None:
        raise Unavailable("the disk is gone")

    async def talk(bus: AmqpHarness) -> None:
        client = await filled(bus, "a1")
        held = await client.session_receiver("a")
        waiting = client.ask_session(None)
        await client.talk()
        sender = await client.sender()
        store.before_commit = fail
        await client.send(sender, plain("a2", group_id="a"))
        for link in (held, waiting):
            assert (await client.refused(link)).condition == "amqp:internal-error"

    serve(talk, WITH_SESSIONS, store=store)


def test_every_session_of_all_partitions_is_given_once() -> None:
    """To those who take the next one, whatever partition it is in."""

    async def talk(bus: AmqpHarness) -> None:
        names = "abcdefghijkl"
        client = await filled(bus, *(f"{name}{turn}" for turn in range(3) for name in names))
        seen: dict[str, list[str]] = {}
        for _ in names:
            link = await client.session_receiver(None, credit=9)
            seen[session_of(link)] = bodies(client.arrived(link))
        assert seen == {name: [f"{name}{turn}" for turn in range(3)] for name in names}

    serve(talk, PARTITIONED)
