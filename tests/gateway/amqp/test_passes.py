"""What costs much is done in passes: none of them does more than some hundred dear things."""

from __future__ import annotations

from typing import Any

import pytest

from peeklock.amqp.dialect import BATCH_FORMAT, TRANSFER_DESTINATION
from peeklock.amqp.errors import MESSAGE_SIZE_EXCEEDED
from peeklock.amqp.events import LinkDetached, SettlementsReceived
from peeklock.amqp.frames.states import Accepted, Rejected
from peeklock.amqp.messages.sections import BODY_SECTIONS_MAX
from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.amqp.sessions.link import Link
from peeklock.amqp.values.types import Symbol
from peeklock.auth.keyring import TokenGrant
from peeklock.auth.rights import DEVELOPMENT_KEY, ROOT_RULE_NAME, SEND
from peeklock.auth.sas import generate_sas
from peeklock.entity.definition import QueueDefinition
from peeklock.gateway.amqp.nodes.attaching import EXPIRED_AT_ONCE
from peeklock.gateway.amqp.nodes.batches import BATCH_COUNT_MAX
from peeklock.gateway.amqp.passes import LINK_COST, PASS_COST, TOKEN_COST, Begun
from tests.gateway.amqp.amqp_harness import (
    HOST,
    HOUR_MS,
    AmqpHarness,
    bodies,
    condition_of,
    plain,
    request,
    serve,
)

# A data section with nothing in it: the smallest message, and as a part of a batch.
TINY = b"\x00\x53\x75\xa0\x00"
PART = b"\x00\x53\x75\xa0\x05" + TINY


def test_a_long_batch_is_read_in_passes_and_keeps_its_place() -> None:
    count = 3 * PASS_COST

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        client.post(link, plain("before"))
        client.post(link, PART * count, form=BATCH_FORMAT)
        client.post(link, plain("after"))
        outcomes = await client.outcomes()
        assert sum(number for _, number in outcomes) == 3
        assert all(isinstance(outcome, Accepted) for outcome, _ in outcomes)
        assert client.passes >= 3
        links = await client.request_links("q/$management")
        for number, body in ((1, b"before"), (count + 2, b"after")):
            asked = {"from-sequence-number": number, "message-count": 1}
            _, found = await client.manage(links, "peek-message", asked)
            assert body in found["messages"][0]["message"]

    serve(talk)


def test_a_batch_that_is_refused_half_read_leaves_nothing_to_the_next_one() -> None:
    part = b"\x00\x53\x75\xa0\x06\x00\x53\x75\xa0\x01"

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        await client.put_token("other")
        link = await client.sender(properties={Symbol(TRANSFER_DESTINATION): "other"})
        client.post(link, PART * (2 * PASS_COST), form=BATCH_FORMAT)
        client.post(link, part + b"x" + part + b"y", form=BATCH_FORMAT)
        client.peer.receive(client.connection.take_output(), bus.clock.now())
        assert client.peer.is_behind
        # The link stays: what was changed is the entity that its messages are forwarded to.
        await bus.bench.broker.put_queue(_queue("other", message_size_max=1_024))
        outcomes = [outcome for outcome, _ in await client.outcomes()]
        assert condition_of(outcomes[0]) == MESSAGE_SIZE_EXCEEDED
        assert isinstance(outcomes[1], Accepted)
        receiver = await client.receiver("other", credit=10)
        assert bodies(client.arrived(receiver)) == ["x", "y"]

    serve(talk, _queue("q"), _queue("other"))


def _queue(path: str, **more: Any) -> QueueDefinition:
    return QueueDefinition(path, batched_store_access=False, **more)


def test_what_was_begun_of_a_delivery_belongs_to_no_other_one() -> None:
    first, second = (IncomingDelivery(at, b"", 0, False, b"", None) for at in range(2))
    begun = Begun()
    begun.keep(first, "half")
    assert begun.take(second) is None
    assert begun.take(first) is None, "it was given up"
    begun.keep(first, "half")
    assert begun.take(first) == "half"
    assert begun.take(first) is None


def test_a_batch_of_too_many_messages_is_rejected_and_the_link_stays() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        most = await client.send(link, PART * BATCH_COUNT_MAX, form=BATCH_FORMAT)
        assert isinstance(most, Accepted)
        # Sections that are no messages are counted as well.
        for payload in (PART * (BATCH_COUNT_MAX + 1), b"\x00\x53\x70\x45" * 25_000):
            outcome = await client.send(link, payload, form=BATCH_FORMAT)
            assert isinstance(outcome, Rejected)
            assert outcome.error is not None
            assert outcome.error.condition == MESSAGE_SIZE_EXCEEDED
            assert str(BATCH_COUNT_MAX) in (outcome.error.description or "")
        assert isinstance(await client.send(link, plain("one more")), Accepted)

    serve(talk)


def test_a_message_has_a_bounded_number_of_sections() -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        assert isinstance(await client.send(link, TINY * BODY_SECTIONS_MAX), Accepted)
        outcome = await client.send(link, TINY * (BODY_SECTIONS_MAX + 1))
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert "sections" in (outcome.error.description or "")

    serve(talk)


def test_many_tokens_are_looked_at_in_passes() -> None:
    count = 2 * PASS_COST // TOKEN_COST

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        audience = f"sb://{HOST}/q"
        token = generate_sas(audience, ROOT_RULE_NAME, DEVELOPMENT_KEY, bus.clock.now() + HOUR_MS)
        asked = request({"operation": "put-token", "type": "x", "name": audience}, token, "id")
        pairs: list[tuple[Link, Link]] = []
        for _ in range(0, count, 50):
            client.session = client.connection.begin_session()
            pairs.append(await client.request_links("$cbs"))
        client.passes = 0
        for requests, _ in pairs:
            for _ in range(50):
                client.post(requests, asked)
        await client.talk()
        assert client.passes >= 1
        assert sum(len(client.arrived(responses)) for _, responses in pairs) == count

    serve(talk)


def test_a_lost_connection_is_taken_apart_in_passes() -> None:
    count = 2 * PASS_COST // LINK_COST

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        for _ in range(count):
            client.session.attach_sender(client._name(), (await client.sender()).target)
        await client.talk()
        parts = 1
        while not client.peer.lost():
            parts += 1
        assert parts >= 3
        assert bus.namespace_context.connection_quota.count == 0
        assert client.peer._attaching.is_empty

    serve(talk)


def test_a_session_of_many_links_ends_in_passes_before_what_follows() -> None:
    count = 2 * PASS_COST // LINK_COST

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        first = client.session
        for _ in range(count):
            await client.sender()
        client.passes = 0
        first.end()
        client.session = client.connection.begin_session()
        link = await client.sender()
        assert client.passes >= 2
        assert isinstance(await client.send(link, plain("x")), Accepted)

    serve(talk)


def test_what_came_before_a_connection_was_lost_is_still_done() -> None:
    """Messages that came settled have nobody else who knows of them."""

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.authorized()
        link = await client.sender()
        client.post(link, PART * (2 * PASS_COST), form=BATCH_FORMAT, settled=True)
        client.peer.receive(client.connection.take_output(), bus.clock.now())
        assert client.peer.is_behind
        while not client.peer.lost():
            pass
        other = await bus.authorized()
        links = await other.request_links("q/$management")
        asked = {"from-sequence-number": 2 * PASS_COST, "message-count": 1}
        status, _ = await other.manage(links, "peek-message", asked)
        assert status == 200

    serve(talk)


def test_links_whose_right_ends_go_in_passes_and_are_not_served_meanwhile() -> None:
    count = 2 * PASS_COST // LINK_COST

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", life_ms=60_000)
        links = [await client.sender() for _ in range(count)]
        client.passes = 0
        bus.clock.advance(61_000)
        # All of it comes in one read, behind the end of the token.
        for link in links:
            client.post(link, plain("too late"))
        await client.talk()
        assert client.passes >= 2
        assert len(client.take(LinkDetached)) == count
        assert client.take(SettlementsReceived) == []
        await client.put_token("q")
        manage = await client.request_links("q/$management")
        asked = {"from-sequence-number": 0, "message-count": 1}
        assert (await client.manage(manage, "peek-message", asked))[0] == 204

    serve(talk)


@pytest.mark.parametrize("count", [3 * EXPIRED_AT_ONCE - 1, 3 * EXPIRED_AT_ONCE])
def test_very_many_tokens_end_in_passes_and_nobody_is_served_meanwhile(count: int) -> None:
    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        await client.put_token("q", life_ms=60_000)
        link = await client.sender()
        for number in range(count):
            client.peer._token_rights.put(
                TokenGrant(f"other{number}", SEND, bus.clock.wall() + 10_000, "r")
            )
        client.passes = 0
        bus.clock.advance(61_000)
        client.post(link, plain("too late"))
        await client.talk()
        assert client.passes >= 3
        assert len(client.take(LinkDetached)) == 1
        assert client.take(SettlementsReceived) == []
        assert client.peer._token_rights.is_empty

    serve(talk)


def test_the_links_of_a_path_are_listed_when_it_is_reviewed() -> None:
    """Each of thousands of tokens that end at once may be for all links of a connection."""
    path = "a/b/c/d/e/f/g/h"
    count = 150

    async def talk(bus: AmqpHarness) -> None:
        client = await bus.connect()
        for end in range(1, len(path) + 1, 2):
            await client.put_token(path[:end], life_ms=60_000)
        for _ in range(count):
            await client.sender(path)
        client.passes = 0
        bus.clock.advance(61_000)
        client.peer.tick(bus.clock.now())
        assert client.peer.is_behind
        assert len(client.peer._attaching._doubted) <= count
        await client.talk()
        assert len(client.take(LinkDetached)) == count
        assert not client.peer.is_behind

    serve(talk, *(_queue(path[:end]) for end in range(1, len(path) + 1, 2)))
