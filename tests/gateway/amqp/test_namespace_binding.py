"""Which namespace a connection belongs to: by host name, by key, or the first."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peeklock.amqp.errors import AmqpError
from peeklock.amqp.events import AttachAnswered, Closed, Opened
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.sasl import plain as plain_credential
from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.rights import SEND, AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.entity.definition import QueueDefinition
from tests.gateway.amqp.amqp_harness import (
    HOUR_MS,
    AmqpHarness,
    Client,
    bodies,
    plain,
    request,
    serve,
)

ONE: Any = {"rule": "root", "key": "key-1"}
TWO: Any = {"rule": "root", "key": "key-2"}
FULL = "amqp:resource-limit-exceeded"


def run(test: Callable[[AmqpHarness], Awaitable[None]], **options: Any) -> None:
    """Two namespaces with a queue `q` each, and another one in the second alone."""
    namespaces = Namespaces(
        [
            Namespace("one", [AuthorizationRule("root", "key-1"), AuthorizationRule("own", "x")]),
            Namespace("two", [AuthorizationRule("root", "key-2")]),
        ]
    )

    async def whole(bus: AmqpHarness) -> None:
        broker = bus.bench.broker
        q = QueueDefinition("q", batched_store_access=False)
        await broker.put_queue(q, namespace="two")
        rules = [AuthorizationRule("sender", "key", rights=SEND)]
        await broker.put_queue(QueueDefinition("only"), rules, namespace="two")
        await test(bus)

    serve(whole, namespaces=namespaces, **options)


def status(answer: Any) -> int:
    found: int = answer.application_properties["status-code"]
    return found


def text(answer: Any) -> str:
    found: str = answer.application_properties["status-description"]
    return found


async def closed(client: Client) -> AmqpError:
    await client.talk()
    (event,) = client.take(Closed)
    assert event.error is not None
    return event.error


async def send(client: Client, body: str) -> None:
    await client.send(await client.sender(), plain(body))


async def received(client: Client) -> list[str]:
    return bodies(client.arrived(await client.receiver(credit=10)))


def test_queues_of_the_same_name_do_not_see_each_others_messages() -> None:
    """R-F7."""

    async def talk(bus: AmqpHarness) -> None:
        first = await bus.connect(host="one.localhost")
        second = await bus.connect(host="TWO.servicebus.windows.net")
        assert status(await first.put_token("q", **ONE)) == 202
        assert status(await second.put_token("q", **TWO)) == 202
        await send(first, "a")
        await send(second, "b")
        assert await received(first) == ["a"]
        assert await received(second) == ["b"]

    run(talk)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "three.localhost", None])
def test_where_the_host_says_nothing_the_key_does(host: str | None) -> None:
    """R-F7."""

    async def talk(bus: AmqpHarness) -> None:
        first = await bus.connect(host=host)
        second = await bus.connect(host=host)
        assert status(await first.put_token("q", **ONE)) == 202
        assert status(await second.put_token("only", **TWO)) == 202
        assert status(await second.put_token("q", **TWO)) == 202
        await send(first, "a")
        await send(second, "b")
        assert await received(second) == ["b"]

    run(talk)


def test_the_key_of_an_entity_says_it_too() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        assert status(await client.put_token("only", rule="sender", key="key")) == 202
        await client.sender("only")

    run(talk)


def test_a_key_of_another_namespace_is_refused_where_the_host_says_which() -> None:
    """R-F7, R-T2."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect(host="two.localhost")
        answer = await client.put_token("q", **ONE)
        assert status(answer) == 401
        assert "SystemTracker:two," in text(answer)
        assert status(await client.put_token("q", rule="own", key="x")) == 401
        assert status(await client.put_token("q", **TWO)) == 202

    run(talk)


def test_a_connection_stays_in_its_namespace() -> None:
    """R-F7."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        assert status(await client.put_token("q", **ONE)) == 202
        assert status(await client.put_token("only", **TWO)) == 401
        assert (await client.refused(client.ask_sender("only"))).condition == (
            "amqp:unauthorized-access"
        )
        assert status(await client.put_token("", **ONE)) == 202
        error = await client.refused(client.ask_sender("only"))
        assert error.condition == "amqp:not-found"
        assert "SystemTracker:one:Queue:only" in str(error.description)

    run(talk)


def test_a_wrong_token_does_not_decide() -> None:
    """It is refused in the name of the namespace that knows its rule (R-T2)."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        expired = await client.put_token("q", **TWO, life_ms=-1)
        assert status(expired) == 401
        assert "SystemTracker:two," in text(expired)
        assert status(await client.put_token("q", rule="root", key="wrong")) == 401
        assert status(await client.put_token("q", **ONE, life_ms=-1)) == 401
        assert status(await client.put_token("only", **TWO)) == 202

    run(talk)


def test_sends_to_other_entities_stay_within() -> None:
    """A destination of a sender is looked for in the namespace of its connection."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect(host="one.localhost")
        await client.put_token("", **ONE)
        link = client.session.attach_sender(
            "via",
            Target(address="q"),
            source=Source(address="here"),
            properties={"com.microsoft:transfer-destination-address": "sb://two.localhost/only"},
        )
        assert (await client.refused(link)).condition == "amqp:not-found"

    run(talk)


# --- a key by SASL


def test_a_key_by_sasl_goes_where_it_is_good() -> None:
    """R-F7."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect(plain_credential("root", "key-2"))
        await client.sender("only")
        named = await bus.connect(plain_credential("root", "key-2"), host="two.localhost")
        await named.sender("only")
        assert bus.namespace_contexts.of_key("root", "key-2").connection_quota.count == 2

    run(talk)


def test_a_key_by_sasl_is_refused_where_the_host_says_another_namespace() -> None:
    """R-F7, R-T2."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect(plain_credential("root", "key-2"), host="one.localhost")
        assert client.pipe.is_closed
        assert not client.take(Opened)
        assert bus.namespace_context.connection_quota.count == 0

    run(talk)


def test_a_key_by_sasl_is_refused_at_open_if_the_host_comes_only_then() -> None:
    """R-F7, R-T2: generic clients may leave the host out of SASL."""

    async def talk(bus: AmqpHarness) -> None:
        client = Client(bus, plain_credential("root", "key-2"), host="one.localhost")
        # Open is written already, the credential is not.
        client.connection.hostname = None
        error = await closed(client)
        assert error.condition == "amqp:unauthorized-access"
        assert str(error.description).startswith("InvalidSignature")
        same = Client(bus, plain_credential("root", "key-2"), host="two")
        same.connection.hostname = None
        await same.talk()
        await same.sender("only")

    run(talk)


# --- how many


def test_one_too_many_is_told_so_and_who_only_opened_takes_no_place() -> None:
    """R-F7."""

    async def talk(bus: AmqpHarness) -> None:
        for _ in range(3):
            await bus.connect(host="two.localhost")
        first = await bus.connect(host="two.localhost")
        assert status(await first.put_token("q", **TWO)) == 202
        second = await bus.connect(host="two.localhost")
        with pytest.raises(AssertionError):
            await second.put_token("q", **TWO)  # no answer: the connection is closed
        error = await closed(second)
        assert error.condition == FULL
        assert str(error.description).startswith(
            "The namespace 'two' has 1 connections, as many as it may have. TrackingId:"
        )
        assert "SystemTracker:two," in str(error.description)
        # The other one has room.
        other = await bus.connect(host="one.localhost")
        assert status(await other.put_token("q", **ONE)) == 202
        # Who was turned away leaves no room behind, who was in does.
        second.peer.lost()
        first.peer.lost()
        again = await bus.connect(plain_credential("root", "key-2"), host="two.localhost")
        await again.sender()
        more = await bus.connect(plain_credential("root", "key-2"), host="two.localhost")
        assert (await closed(more)).condition == FULL

    run(talk, connections_max=1)


def test_one_too_many_is_told_so_with_its_token_where_only_that_says_which() -> None:
    """R-F7."""

    async def talk(bus: AmqpHarness) -> None:
        first = await bus.connect()
        assert status(await first.put_token("q", **TWO)) == 202
        second = await bus.connect()
        with pytest.raises(AssertionError):
            await second.put_token("q", **TWO)  # no answer: the connection is closed
        assert (await closed(second)).condition == FULL
        assert bus.namespace_context.connection_quota.count == 0
        third = await bus.connect()
        assert status(await third.put_token("q", **ONE)) == 202

    run(talk, connections_max=1)


def test_who_is_turned_away_gets_no_rights_by_what_it_sent_along() -> None:
    """Clients write ahead: token and links come before they have read that there is no room."""

    async def talk(bus: AmqpHarness) -> None:
        first = await bus.connect(host="two.localhost")
        assert status(await first.put_token("q", **TWO)) == 202
        late = await bus.connect()
        requests, _ = await late.request_links("$cbs")
        token = generate_sas("sb://localhost/q", "root", "key-2", bus.clock.now() + HOUR_MS)
        properties = {"operation": "put-token", "name": "sb://localhost/q"}
        late.post(requests, request(properties, token, "id"))
        late.ask_sender("q")
        assert (await closed(late)).condition == FULL
        assert late.take(AttachAnswered) == []

    run(talk, connections_max=1)


def test_the_log_names_the_namespace(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(bus: AmqpHarness) -> None:
        caplog.set_level(logging.INFO, "peeklock")
        client = await bus.connect(host="two.localhost")
        await client.put_token("q", **ONE)

    run(talk)
    lines = [record.getMessage() for record in caplog.records]
    assert any("connection-opened" in line and "namespace=two" in line for line in lines)
    assert any("put-token" in line and "namespace=two" in line for line in lines)
