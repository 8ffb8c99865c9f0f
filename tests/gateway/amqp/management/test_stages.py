"""Stages: senders whose messages nobody sees, and what `$management` does with them."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.amqp.frames.states import Accepted, Rejected
from peeklock.amqp.frames.termini import Target
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.encoder import encode
from peeklock.amqp.values.types import Described, Symbol, Ulong
from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule, Rights
from peeklock.entity.blueprint import FIRST_SUBSCRIPTION_LANE
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, condition_of, plain, serve
from tests.gateway.amqp.nodes.transacting import Control, manage_within, peeked, send_within

STAGE = Symbol("com.peeklock:stage")
BATCH = 0x80013700


async def stager(client: Client, stage: Any = "s", address: str = "q") -> Link:
    return await client.sender(address, properties={STAGE: stage})


async def publish(client: Client, links: Any, *stages: str, **more: Any) -> tuple[int, Any]:
    body = {"writer": "w", "batch": 0, "stages": list(stages)} | more
    return await client.manage(links, "com.peeklock:publish-stages", body)


async def drop(client: Client, links: Any, **body: Any) -> tuple[int, Any]:
    return await client.manage(links, "com.peeklock:drop-stages", body)


def batch(*messages: bytes) -> bytes:
    return b"".join(encode(Described(Ulong(0x75), message)) for message in messages)


def test_what_is_staged_is_accepted_and_seen_when_it_is_published() -> None:
    """R-D1: in the order of the stages, and once."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        links = await client.request_links("q/$management")
        two = await stager(client, "two")
        assert two.credit == 1_000
        assert isinstance(await client.send(two, plain("c"), plain("d")), Accepted)
        one = await stager(client, "one")
        assert isinstance(await client.send(one, plain("a"), plain("b")), Accepted)
        assert await peeked(bus, "q") == []
        assert await publish(client, links, "one", "two") == (200, {"message-count": 4})
        assert await peeked(bus, "q") == ["a", "b", "c", "d"]
        assert await publish(client, links, "one", "two") == (200, {"message-count": 0})

    serve(talk)


def test_every_form_of_transfer_is_staged() -> None:
    """R-T3, R-T4, R-T5, R-D1: a thousand at once, batches, settled ones, those of many frames."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        links = await client.request_links("q/$management")
        link = await stager(client)
        many = [str(number) for number in range(900)]
        await client.send(link, *(plain(text) for text in many))
        assert link.credit == 1_000
        await client.send(link, batch(plain("x"), plain("y")), form=BATCH)
        client.post(link, plain("settled"), settled=True)
        client.post(link, batch(plain("v"), plain("w")), settled=True, form=BATCH)
        assert await client.outcomes() == []
        large = "z" * 200_000
        await client.send(link, plain(large))
        await client.send(link, batch(), form=BATCH)
        assert await peeked(bus, "q") == []
        assert await publish(client, links, "s") == (200, {"message-count": 906})
        told = await peeked(bus, "q")
        assert told == [*many, "x", "y", "settled", "v", "w", large]

    serve(talk)


def test_what_cannot_be_staged_is_rejected() -> None:
    """R-D1: with the conditions that a sender knows."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        links = await client.request_links("q/$management")
        link = await stager(client)
        outcome = await client.send(link, plain("x" * 300_000))
        assert condition_of(outcome) == "amqp:link:message-size-exceeded"
        assert condition_of(await client.send(link, b"\x00nonsense")) == "amqp:decode-error"
        assert isinstance(await client.send(link, plain("a")), Accepted)
        assert await publish(client, links, "s") == (200, {"message-count": 1})

    serve(talk)


@pytest.mark.parametrize("stage", ["", "x" * 257, 7, None])
def test_a_stage_has_a_name(stage: Any) -> None:
    """Null is as good as nothing."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = client.session.attach_sender("link", Target(address="q"), properties={STAGE: stage})
        if stage is None:
            await client._attached(link)
            await client.send(link, plain("a"))
            assert await peeked(bus, "q") == ["a"]
            return
        error = await client.refused(link)
        assert "com.peeklock:stage" in (error.description or "")

    serve(talk)


def test_nothing_is_staged_by_way_of_another_entity() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        await client.put_token("other", message_id="id-2")
        properties = {
            STAGE: "s",
            Symbol("com.microsoft:transfer-destination-address"): "other",
        }
        link = client.session.attach_sender("link", Target(address="q"), properties=properties)
        error = await client.refused(link)
        assert "staged" in (error.description or "")

    serve(
        talk,
        QueueDefinition("q", batched_store_access=False),
        QueueDefinition("other", batched_store_access=False),
    )


def test_a_transaction_has_nothing_to_do_with_stages() -> None:
    """R-P7, R-D1: refused clearly, and the transaction can only be rolled back."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        control = await Control.of(client)
        links = await client.request_links("q/$management")
        link = await stager(client)
        txn = await control.declare()
        outcome = await send_within(client, link, plain("a"), txn)
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert "transaction" in (outcome.error.description or "")
        assert isinstance(await control.commit(txn), Rejected)
        for operation, body in (
            ("publish-stages", {"writer": "w", "batch": 0, "stages": ["s"]}),
            ("drop-stages", {"stages": ["s"]}),
        ):
            txn = await control.declare()
            name = f"com.peeklock:{operation}"
            status, _ = await manage_within(client, links, name, body, txn)
            assert status == 400
            assert isinstance(await control.commit(txn), Rejected)
        assert await publish(client, links, "s") == (200, {"message-count": 0})

    serve(talk)


def test_stages_are_dropped_by_name_and_by_prefix() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        links = await client.request_links("q/$management")
        for stage in ("q/1", "q/2", "r/1"):
            await client.send(await stager(client, stage), plain("a"), plain("b"))
        assert await drop(client, links, stages=["q/1", "none"]) == (200, {"message-count": 2})
        assert await drop(client, links, prefix="q/") == (200, {"message-count": 2})
        assert await publish(client, links, "q/1", "q/2", "r/1") == (200, {"message-count": 2})

    serve(talk)


@pytest.mark.parametrize(
    ("operation", "body", "named"),
    [
        ("publish-stages", {"batch": 0, "stages": []}, "writer"),
        ("publish-stages", {"writer": "", "batch": 0, "stages": []}, "writer"),
        ("publish-stages", {"writer": "w" * 257, "batch": 0, "stages": []}, "writer"),
        ("publish-stages", {"writer": "w", "stages": []}, "batch"),
        ("publish-stages", {"writer": "w", "batch": -1, "stages": []}, "batch"),
        ("publish-stages", {"writer": "w", "batch": 0}, "stages"),
        ("publish-stages", {"writer": "w", "batch": 0, "stages": [7]}, "stages"),
        ("publish-stages", {"writer": "w", "batch": 0, "stages": [""]}, "stages"),
        ("publish-stages", {"writer": "w", "batch": 0, "stages": ["s"] * 10_001}, "stages"),
        ("drop-stages", {}, "stages"),
        ("drop-stages", {"prefix": ""}, "prefix"),
        ("drop-stages", {"prefix": 7}, "prefix"),
        ("drop-stages", {"prefix": "a", "stages": ["a"]}, "prefix"),
    ],
)
def test_a_wrong_argument_is_named(operation: str, body: dict[str, Any], named: str) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        links = await client.request_links("q/$management")
        answer = await client.management_answer(links, f"com.peeklock:{operation}", body)
        properties = answer.application_properties or {}
        assert properties["statusCode"] == 400
        assert f"'{named}'" in properties["statusDescription"]

    serve(talk)


@pytest.mark.parametrize(("rights", "status"), [(SEND, 200), (LISTEN, 401)])
def test_publishing_takes_the_right_to_send(rights: Rights, status: int) -> None:
    """R-A1, R-D1."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", rule="rule", key="a key")
        links = await client.request_links("q/$management")
        assert (await publish(client, links, "s"))[0] == status
        assert (await drop(client, links, prefix="s"))[0] == status

    rule = AuthorizationRule("rule", "a key", "another key", rights)
    serve(talk, rules=[rule])


def test_stages_are_the_topics_and_the_queues() -> None:
    """R-D1: a topic's messages are routed when they are published."""

    async def talk(bus: AmqpHarness) -> None:
        broker = bus.bench.broker
        await broker.put_topic(TopicDefinition("t", batched_store_access=False))
        await broker.put_subscription(SubscriptionDefinition("t", "late"))
        client = await bus.authorized("t")
        link = await stager(client, "s", "t")
        await client.send(link, plain("a"), plain("b"))
        links = await client.request_links("t/$management")
        assert await publish(client, links, "s") == (200, {"message-count": 2})
        assert await peeked(bus, "t/Subscriptions/late", FIRST_SUBSCRIPTION_LANE) == ["a", "b"]
        for address in ("t/Subscriptions/late", "q/$DeadLetterQueue"):
            await client.put_token(address.split("/$")[0], message_id=address)
            links = await client.request_links(f"{address}/$management")
            assert (await publish(client, links, "s"))[0] == 400
            assert (await drop(client, links, stages=["s"]))[0] == 400

    serve(talk)


def test_stages_of_a_partitioned_queue() -> None:
    """R-P3, R-D1."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        links = await client.request_links("q/$management")
        link = await stager(client)
        texts = [str(number) for number in range(20)]
        for text in texts:
            client.post(link, plain(text, group_id=text))
        assert sum(count for _, count in await client.outcomes()) == 20
        assert await publish(client, links, "s") == (200, {"message-count": 20})
        assert await publish(client, links, "s") == (200, {"message-count": 0})
        assert await drop(client, links, prefix="s") == (200, {"message-count": 0})

    serve(talk, QueueDefinition("q", partitions=4, batched_store_access=False))
