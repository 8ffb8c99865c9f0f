"""Which links an entity lets in, by its kind and its description, and how they are sent away."""

from __future__ import annotations

import pytest

from peeklock.amqp.frames.termini import Source
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.types import Int
from peeklock.entity.definition import (
    DISABLED,
    RECEIVE_DISABLED,
    SEND_DISABLED,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, bodies, plain, serve

SUBSCRIPTION = "t/Subscriptions/s"


async def with_topic(bus: AmqpHarness) -> Client:
    """A client that may do everything, and the topic `t` with the subscription `s`."""
    await bus.bench.broker.put_topic(TopicDefinition("t", batched_store_access=False))
    await bus.bench.broker.put_subscription(
        SubscriptionDefinition("t", "s", batched_store_access=False)
    )
    return await bus.authorized("")


def ask(client: Client, address: str, *, to_send: bool) -> Link:
    return client.ask_sender(address) if to_send else client.ask_receiver(Source(address=address))


def test_a_subscription_is_received_from_by_its_path() -> None:
    """In any case; its dead letters below it."""

    async def talk(bus: AmqpHarness) -> None:
        client = await with_topic(bus)
        await client.send(await client.sender("t"), plain("a"))
        link = await client.receiver("T/SUBSCRIPTIONS/S", credit=1)
        assert bodies(client.arrived(link)) == ["a"]
        for address in (
            f"{SUBSCRIPTION}/$DeadLetterQueue",
            f"{SUBSCRIPTION}/$Transfer/$DeadLetterQueue",
            "t/$Transfer/$DeadLetterQueue",
            "q/$Transfer/$DeadLetterQueue",
        ):
            await client.receiver(address)

    serve(talk)


def test_each_node_has_its_management() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await with_topic(bus)
        await client.send(await client.sender("t"), plain("a"))
        for address, status in (
            (f"{SUBSCRIPTION}/$management", 200),
            (f"{SUBSCRIPTION}/$DeadLetterQueue/$management", 204),
            (f"{SUBSCRIPTION}/$Transfer/$DeadLetterQueue/$management", 204),
            ("t/$management", 204),
        ):
            links = await client.request_links(address)
            wish = {"from-sequence-number": 1, "message-count": Int(9)}
            assert (await client.manage(links, "peek-message", wish))[0] == status

    serve(talk)


@pytest.mark.parametrize(
    ("address", "to_send", "condition", "words"),
    [
        (SUBSCRIPTION, True, "amqp:not-allowed", "send them to its topic"),
        ("t", False, "amqp:not-allowed", "receive them from one of its subscriptions"),
        ("t/$DeadLetterQueue", False, "amqp:not-allowed", "from a topic"),
        ("q/$DeadLetterQueue", True, "amqp:not-allowed", "to a dead-letter queue"),
        (f"{SUBSCRIPTION}/$DeadLetterQueue", True, "amqp:not-allowed", "to a dead-letter queue"),
        ("t/Subscriptions/none", False, "amqp:not-found", "could not be found"),
        ("none/Subscriptions/s", False, "amqp:not-found", "could not be found"),
    ],
)
def test_what_cannot_be_had(address: str, to_send: bool, condition: str, words: str) -> None:
    """R-T2: a clear refusal, and none that clients would try again."""

    async def talk(bus: AmqpHarness) -> None:
        client = await with_topic(bus)
        error = await client.refused(ask(client, address, to_send=to_send))
        assert error.condition == condition
        assert words in str(error.description)

    serve(talk)


def test_an_entity_that_forwards_gives_only_its_dead_letters() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized("")
        error = await client.refused(client.ask_receiver(Source(address="q")))
        assert error.condition == "amqp:not-allowed"
        assert (
            "Cannot create a message receiver on an entity with auto-forwarding enabled."
        ) in str(error.description)
        await client.receiver("q/$DeadLetterQueue")
        await client.sender("q")

    serve(talk, QueueDefinition("other"), QueueDefinition("q", forward_to="other"))


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [(SEND_DISABLED, False, True), (RECEIVE_DISABLED, True, False), (DISABLED, False, False)],
)
def test_a_disabled_entity_is_named_by_its_kind(status: str, sends: bool, receives: bool) -> None:
    """R-T2: `ns:Queue:q`, `ns:Topic:t`, `ns:Topic:t|s`."""

    async def talk(bus: AmqpHarness) -> None:
        broker = bus.bench.broker
        await broker.put_topic(TopicDefinition("t", status=status))
        await broker.put_subscription(SubscriptionDefinition("t", "s", status=status))
        client = await bus.authorized("")
        for address, to_send, name in (
            ("q", True, "ns:Queue:q"),
            ("q", False, "ns:Queue:q"),
            ("t", True, "ns:Topic:t"),
            (SUBSCRIPTION, False, "ns:Topic:t|s"),
        ):
            link = ask(client, address, to_send=to_send)
            if sends if to_send else receives:
                await client.talk()
                assert link.attached
                continue
            error = await client.refused(link)
            assert error.condition == "com.microsoft:entity-disabled"
            text = str(error.description)
            assert f"Messaging entity '{name}' is currently disabled." in text
            assert f"SystemTracker:{name}," in text

    serve(talk, QueueDefinition("q", status=status))


def test_a_deleted_entity_sends_its_links_away() -> None:
    """All of them, and they are told that it is not there; others stay."""

    async def talk(bus: AmqpHarness) -> None:
        client = await with_topic(bus)
        stays = await client.sender("q")
        links = [await client.receiver(SUBSCRIPTION), *await client.request_links("t/$management")]
        links.append(await client.sender("t"))
        await bus.bench.broker.remove("t")
        for link in links:
            assert (await client.refused(link)).condition == "amqp:not-found"
        assert stays.attached
        await client.send(stays, plain("a"))

    serve(talk)


def test_links_that_go_are_forgotten_by_their_entity() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized("")
        links = bus.queue().links
        link = await client.receiver("q")
        await client.sender("q")
        assert len(links) == 2
        link.detach()
        await client.talk()
        assert len(links) == 1
        await client.refused(client.ask_receiver(Source(address="none")))
        client.peer.lost()
        assert len(links) == 0

    serve(talk)


def test_a_wait_for_a_session_ends_with_the_entity() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized("")
        link = client.ask_session(None)
        await client.talk()
        await bus.bench.broker.remove("q")
        assert (await client.refused(link)).condition == "amqp:not-found"

    serve(talk, QueueDefinition("q", requires_session=True))
