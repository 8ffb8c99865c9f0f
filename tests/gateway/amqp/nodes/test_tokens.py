"""Tokens and rights: nothing without them, and nothing after they end."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest

from peeklock.amqp.events import AttachAnswered, Closed, LinkDetached
from peeklock.amqp.frames.termini import Source, Target
from peeklock.amqp.sasl import SaslCredential, external
from peeklock.amqp.sasl import plain as plain_credential
from peeklock.amqp.values.types import Int, Ulong
from peeklock.auth.rights import DEVELOPMENT_KEY, LISTEN, ROOT_RULE_NAME, SEND, AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.entity.definition import QueueDefinition
from peeklock.gateway.amqp.namespace_context import GatewayLimits
from peeklock.gateway.amqp.peer import LOOK_MS
from tests.gateway.amqp.amqp_harness import HOST, AmqpHarness, Client, plain, serve

LISTENER = AuthorizationRule("listener", "listen-key", rights=LISTEN)
SENDER = AuthorizationRule("sender", "send-key", rights=SEND)


@pytest.mark.parametrize(
    "message_id", ["text", UUID(int=5), Ulong(7), b"raw", None], ids=lambda v: type(v).__name__
)
def test_a_token_is_answered_with_the_id_of_its_request(message_id: Any) -> None:
    """The type stays too: the clients compare both."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        answer = await client.put_token("q", message_id=message_id)
        assert answer.properties is not None
        assert answer.properties.correlation_id == message_id
        assert type(answer.properties.correlation_id) is type(message_id)
        assert answer.application_properties is not None
        assert answer.application_properties["status-code"] == 202
        assert type(answer.application_properties["status-code"]) is Int
        await client.sender()

    serve(talk)


def status(answer: Any) -> tuple[int, str]:
    told = answer.application_properties
    return told["status-code"], told["status-description"]


def test_tokens_that_are_refused() -> None:
    """R-T2: each with its status and a text."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        for expected, text, options in (
            (401, "InvalidSignature: The token has an invalid signature.", {"key": "wrong"}),
            (401, "InvalidSignature:", {"rule": "nobody"}),
            (401, "ExpiredToken: The token is expired. Expiration time:", {"life_ms": -1_000}),
        ):
            code, told = status(await client.put_token("q", **options))
            assert (code, told[: len(text)]) == (expected, text)
        code, told = status(await client.put_token("nothing"))
        assert code == 404
        assert "The messaging entity 'sb://localhost/nothing' could not be found." in told
        assert "TrackingId:" in told
        error = await client.refused(client.ask_sender("q"))
        assert error.condition == "amqp:unauthorized-access"

    serve(talk)


def test_neither_keys_nor_signatures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Every refusal is a line with its tracking id; none of them helps a reader to get in."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        for options in ({"key": "a-wrong-key"}, {"rule": "nobody"}, {"life_ms": -1_000}, {}):
            await client.put_token("q", **options)
        await client.refused(client.ask_sender("nothing"))

    with caplog.at_level(logging.DEBUG):
        serve(talk)
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "tracking" in line]) >= 4
    for secret in ("SAS_KEY_VALUE", "a-wrong-key", "sig=", "SharedAccessSignature"):
        assert not [line for line in lines if secret in line], secret


@pytest.mark.parametrize(
    ("properties", "body", "code"),
    [
        ({"operation": "put-token", "name": f"sb://{HOST}/q"}, "no token", 400),
        ({"operation": "put-token", "name": f"sb://{HOST}/q"}, "a.b.c", 401),
        ({"operation": "put-token", "name": f"sb://{HOST}/q"}, 7, 400),
        ({"operation": "put-token"}, "SharedAccessSignature x", 400),
        ({"operation": "delete-token", "name": "x"}, "t", 501),
        ({}, None, 501),
    ],
)
def test_requests_that_make_no_sense(properties: dict[Any, Any], body: Any, code: int) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        links = await client.request_links("$cbs")
        answer = await client.request(links, properties, body)
        assert status(answer)[0] == code

    serve(talk)


def test_a_request_that_cannot_be_read_is_rejected() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        requests, _ = await client.request_links("$cbs")
        outcome = await client.send(requests, b"nonsense")
        assert outcome.error.condition == "amqp:decode-error"

    serve(talk)


def test_a_request_without_a_link_for_its_answer_is_rejected() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        requests = await client.sender("$cbs")
        outcome = await client.send(requests, plain("x"))
        assert outcome.error.condition == "amqp:not-allowed"

    serve(talk)


def test_the_answer_goes_to_the_link_that_the_request_names() -> None:
    """By its name, as JavaScript does, or by its target, as Go does."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        requests = await client.sender("$cbs")
        by_name = await client.receiver("$cbs", credit=5)
        by_target = await client.receiver("$cbs", target=Target(address="here"), credit=5)
        for reply_to, link in ((by_name.name, by_name), ("here", by_target)):
            await client.send(requests, plain("x", message_id="m", reply_to=reply_to))
            assert len(client.arrived(link)) == 1

    serve(talk)


def test_answers_wait_for_credit() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        requests = await client.sender("$cbs")
        responses = await client.receiver("$cbs")
        await client.send(requests, plain("x"), plain("y"))
        assert client.arrived(responses) == []
        for _ in range(2):
            responses.grant(1)
            await client.talk()
            assert len(client.arrived(responses)) == 1

    serve(talk)


def test_a_client_that_never_takes_its_answers_loses_the_link() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        requests = await client.sender("$cbs")
        responses = await client.receiver("$cbs")
        await client.send(requests, *(plain("x") for _ in range(6)))
        error = await client.refused(responses)
        assert error.condition == "amqp:resource-limit-exceeded"
        # The next one is the only one again, and gets the answers.
        again = await client.receiver("$cbs", credit=10)
        await client.send(requests, plain("x"))
        assert len(client.arrived(again)) == 1

    serve(talk, limits=GatewayLimits(responses_waiting_max=5))


def test_nothing_but_the_token_node_is_open_before_a_token() -> None:
    """Deny by default."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        for address in ("q", "Q/$management", "q/$DeadLetterQueue", "nothing", "$else"):
            sender = await client.refused(client.ask_sender(address))
            receiver = await client.refused(client.ask_receiver(Source(address=address)))
            assert sender.condition == receiver.condition == "amqp:unauthorized-access"

    serve(talk)


def test_rights_are_checked_for_each_link() -> None:
    """R-T2: the token is fine, the attach is refused with the right that is missing."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        assert status(await client.put_token("q", rule="listener", key="listen-key"))[0] == 202
        error = await client.refused(client.ask_sender("q"))
        assert error.condition == "amqp:unauthorized-access"
        assert "'Send' claim(s) are required" in str(error.description)
        await client.receiver()
        assert status(await client.put_token("q", rule="sender", key="send-key"))[0] == 202
        error = await client.refused(client.ask_receiver(Source(address="q/$deadletterqueue")))
        assert "'Listen' claim(s) are required" in str(error.description)

    serve(talk, rules=[LISTENER, SENDER])


def test_keys_of_one_queue_do_not_open_another() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await bus.bench.broker.put_queue(QueueDefinition("other"))
        client = await bus.connect()
        answer = await client.put_token("other", rule="listener", key="listen-key")
        assert status(answer)[0] == 401
        await client.put_token("q")
        error = await client.refused(client.ask_sender("other"))
        assert error.condition == "amqp:unauthorized-access"

    serve(talk, rules=[LISTENER])


def test_a_token_that_replaces_rights_takes_links_with_it() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        await client.put_token("q", rule="listener", key="listen-key")
        assert (await client.refused(link)).condition == "amqp:unauthorized-access"

    serve(talk, rules=[LISTENER])


def test_links_end_with_their_token() -> None:
    """The text is the one that clients know."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", life_ms=30_000)
        link = await client.receiver(credit=1)
        await bus.advance(client, 30_000)
        error = await client.refused(link)
        assert error.condition == "amqp:unauthorized-access"
        assert str(error.description).startswith("ExpiredToken:")
        # The connection lives, and a new token opens the queue again.
        await client.put_token("q")
        await client.receiver()

    serve(talk)


def test_tokens_end_by_the_clock_on_the_wall() -> None:
    """Who made a token had no other clock than that; ours may be ahead of it for a while."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", life_ms=30_000)
        bus.clock.set_wall(-30_000)
        link = await client.receiver()
        await bus.advance(client, 30_000)
        assert not client.take(LinkDetached)
        bus.clock.set_wall(0)
        # It is looked at before long, though nothing else happens.
        assert client.peer.deadline <= bus.clock.now() + LOOK_MS
        await bus.advance(client, LOOK_MS)
        assert (await client.refused(link)).condition == "amqp:unauthorized-access"

    serve(talk)


def test_what_arrives_after_the_token_ended_is_not_served() -> None:
    """Even when the timer has not rung yet."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", life_ms=30_000)
        link = await client.sender()
        await bus.bench.advance(30_000)
        client.post(link, plain("late"))
        await client.talk()
        assert len(client.take(LinkDetached)) == 1
        other = await bus.authorized()
        assert other.arrived(await other.receiver(credit=1)) == []

    serve(talk)


def test_a_renewed_token_keeps_the_links() -> None:
    """Also when a wrong one came between."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", life_ms=30_000)
        await client.sender()
        await bus.advance(client, 20_000)
        assert status(await client.put_token("q", key="wrong"))[0] == 401
        assert status(await client.put_token("q", life_ms=60_000))[0] == 202
        await bus.advance(client, 20_000)
        assert client.take(LinkDetached) == []

    serve(talk)


def test_a_connection_without_a_token_is_closed() -> None:
    """As the service does after 20 seconds."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await bus.advance(client, 19_999)
        assert client.take(Closed) == []
        await bus.advance(client, 1)
        (closed,) = client.take(Closed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:connection:forced"
        assert client.pipe.is_closed

    serve(talk)


def test_a_token_for_the_namespace_opens_everything() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        token = generate_sas(
            f"sb://{HOST}/", ROOT_RULE_NAME, DEVELOPMENT_KEY, bus.clock.now() + 60_000
        )
        links = await client.request_links("$cbs")
        properties = {"operation": "put-token", "name": f"amqps://{HOST}:5671/"}
        assert status(await client.request(links, properties, token))[0] == 202
        await client.sender("amqps://anything:1/Q")

    serve(talk)


def test_plain_needs_no_token() -> None:
    """A generic client gives the rule's name and key, and has its rights at once."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect(plain_credential(ROOT_RULE_NAME, DEVELOPMENT_KEY))
        await client.sender()
        await bus.advance(client, 60_000)
        assert client.take(Closed) == []
        listener = await bus.connect(plain_credential("listener", "listen-key"))
        await listener.receiver()
        error = await listener.refused(listener.ask_sender("q"))
        assert error.condition == "amqp:unauthorized-access"

    serve(talk, rules=[LISTENER])


@pytest.mark.parametrize(
    "credential",
    [
        plain_credential(ROOT_RULE_NAME, "wrong"),
        plain_credential("nobody", DEVELOPMENT_KEY),
        SaslCredential("PLAIN", b"no zeros"),
    ],
)
def test_a_wrong_credential_is_turned_away(credential: SaslCredential) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect(credential)
        assert client.pipe.is_closed
        assert client.take(AttachAnswered) == []

    serve(talk)


def test_a_mechanism_that_is_not_offered_is_refused_by_the_client_itself() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect(external())
        (closed,) = client.take(Closed)
        assert "MSSBCBS, PLAIN, ANONYMOUS" in str(closed.error and closed.error.description)

    serve(talk)


def test_a_client_may_leave_sasl_out() -> None:
    """JavaScript does when it has nothing but a signature; it has no rights by that."""

    async def talk(bus: AmqpHarness) -> None:
        client = Client(bus, None)
        await client.talk()
        error = await client.refused(client.ask_sender("q"))
        assert error.condition == "amqp:unauthorized-access"
        await client.put_token("q")
        await client.sender()

    serve(talk)
