"""The authorization matrix of AMQP links: everything that can be attached to, with everything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import pytest

from peeklock.amqp.frames.termini import Coordinator
from peeklock.amqp.sasl import plain as plain_credential
from peeklock.auth.sas import generate_sas
from peeklock.gateway.amqp import address as addresses
from tests.gateway.matrix.amqp_client import UNAUTHORIZED, AmqpClient
from tests.gateway.matrix.credentials import (
    COMBINATIONS,
    CREDENTIALS,
    ENTITY,
    HOST,
    HOUR_MS,
    NAMESPACE,
    OTHER,
    OTHER_PATH,
    RIGHTS,
    Credential,
    key_of,
    rule_name,
)
from tests.gateway.matrix.watched_broker import WatchedBroker, inhabit

NOT_FOUND = "amqp:not-found"
# What a link takes beside one of the three rights.
ANY: Final = "any right"
NONE: Final = "no right"

Attach: TypeAlias = Callable[[AmqpClient, str], Awaitable[str]]


@dataclass(frozen=True)
class Way:
    """A link: how it is asked for, where, whose rules count, and what it takes (protocol 2.3)."""

    name: str
    attach: Attach
    path: str
    home: str
    needed: str


WAYS = [
    Way("sender", AmqpClient.sender, "q", "q", "Send"),
    Way("sender to a topic", AmqpClient.sender, "t", "t", "Send"),
    Way("receiver", AmqpClient.receiver, "q", "q", "Listen"),
    Way("receiver of dead letters", AmqpClient.receiver, "q/$DeadLetterQueue", "q", "Listen"),
    Way("of failed transfers", AmqpClient.receiver, "q/$Transfer/$DeadLetterQueue", "q", "Listen"),
    Way("a topic's", AmqpClient.receiver, "t/$Transfer/$DeadLetterQueue", "t", "Listen"),
    Way("receiver of a subscription", AmqpClient.receiver, "t/Subscriptions/s", "t", "Listen"),
    Way(
        "of its dead letters",
        AmqpClient.receiver,
        "t/Subscriptions/s/$DeadLetterQueue",
        "t",
        "Listen",
    ),
    Way(
        "session receiver", AmqpClient.session_receiver, "with-sessions", "with-sessions", "Listen"
    ),
    Way("requests", AmqpClient.sender, "q/$management", "q", ANY),
    Way("answers", AmqpClient.receiver, "q/$management", "q", ANY),
    Way("a subscription's", AmqpClient.sender, "t/Subscriptions/s/$management", "t", ANY),
    Way("its answers", AmqpClient.receiver, "t/Subscriptions/s/$management", "t", ANY),
    Way("of dead letters", AmqpClient.sender, "q/$DeadLetterQueue/$management", "q", ANY),
    Way("their answers", AmqpClient.receiver, "q/$DeadLetterQueue/$management", "q", ANY),
    Way("tokens", AmqpClient.sender, "$cbs", "q", NONE),
    Way("answers about tokens", AmqpClient.receiver, "$cbs", "q", NONE),
]


def is_let_in(way: Way, rights: frozenset[str]) -> bool:
    if way.needed == ANY:
        return bool(rights)
    return way.needed == NONE or way.needed in rights


async def settled(broker: WatchedBroker) -> None:
    await broker.queue("q")
    await broker.queue("with-sessions", requires_session=True)
    await broker.topic("t")


def test_every_kind_of_node_has_an_expectation() -> None:
    """Whoever adds a kind of address says here who may attach to it."""
    kinds = {name for name in vars(addresses) if name.isupper() and not name.startswith("_")}
    sub_queues = {"OWN", "DEAD_LETTERS", "TRANSFER_DEAD_LETTERS"}
    imported = {"DEAD", "TRANSFER_DEAD"}
    assert kinds - imported == {"ENTITY", "MANAGEMENT", "TOKENS", "COORDINATOR"} | sub_queues
    attached = {
        (found.kind, found.sub_queue, way.attach is AmqpClient.sender)
        for way in WAYS
        for found in [addresses.parse_address(way.path)]
    }
    for lane in (addresses.OWN, addresses.DEAD_LETTERS, addresses.TRANSFER_DEAD_LETTERS):
        assert (addresses.ENTITY, lane, False) in attached
    for kind in (addresses.ENTITY, addresses.MANAGEMENT, addresses.TOKENS):
        assert (kind, addresses.OWN, True) in attached


def test_every_link_takes_its_right() -> None:
    """R-T2: what is allowed is attached, what is not is refused and changes nothing."""

    async def visit(broker: WatchedBroker) -> None:
        await settled(broker)
        for credential in CREDENTIALS:
            before = await broker.state()
            for way in WAYS:
                # Each on its own connection: what one token gives must not help the next.
                peer = await AmqpClient.of(broker)
                await peer.show(credential, way.home, way.path)
                is_good = is_let_in(way, credential.gives())
                found = await way.attach(peer, way.path)
                assert found == ("" if is_good else UNAUTHORIZED), (str(credential), way.name)
                peer.leave()
            after = await broker.state()
            # A session receiver takes a lock on its session, and that is kept.
            if "Listen" in credential.gives():
                after["commits"] = before["commits"]
            assert after == before, credential

    inhabit(visit)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.name))
def test_a_key_shown_as_it_is_gives_the_same(way: Way) -> None:
    """SASL PLAIN: the rule's own place and all below it."""

    async def visit(broker: WatchedBroker) -> None:
        await settled(broker)
        for place, path in ((NAMESPACE, ""), (ENTITY, way.home), (OTHER, OTHER_PATH)):
            for rights in COMBINATIONS:
                name = rule_name(place, rights)
                client = await broker.bus.connect(plain_credential(name, key_of(path, name)))
                peer = AmqpClient(client)
                gives = Credential(place, rights, place).gives()
                found = await way.attach(peer, way.path)
                assert found == ("" if is_let_in(way, gives) else UNAUTHORIZED), name
                peer.leave()

    inhabit(visit)


@pytest.mark.parametrize("key", ["", "not the key"])
def test_a_wrong_key_opens_no_connection(key: str) -> None:
    async def visit(broker: WatchedBroker) -> None:
        await settled(broker)
        for place in (NAMESPACE, ENTITY, "nobody"):
            name = rule_name(place, frozenset(RIGHTS))
            client = await broker.bus.connect(plain_credential(name, key))
            assert client.pipe.is_closed, name

    inhabit(visit)


def test_anybody_may_ask_for_a_coordinator() -> None:
    """A client may declare a transaction before it puts any token; what the transaction does comes
    on links that are checked."""

    async def visit(broker: WatchedBroker) -> None:
        for credential in CREDENTIALS:
            peer = await AmqpClient.of(broker)
            await peer.show(credential, "other", "other")
            assert await peer.coordinator(Coordinator()) == ""
            peer.leave()

    inhabit(visit)


def test_sending_by_way_of_an_entity_takes_the_right_on_both() -> None:
    """Every credential for the one, with every credential for the other."""

    async def visit(broker: WatchedBroker) -> None:
        await broker.queue("q")
        await broker.queue("beyond")
        # Of those that give the same one is enough here: they were told apart above.
        some = {(each.gives(), each.defect): each for each in CREDENTIALS}
        before = await broker.state()
        for first in some.values():
            for second in some.values():
                peer = await AmqpClient.of(broker)
                await peer.show(first, "q", "q")
                await peer.show(second, "beyond", "beyond")
                # A token for the whole namespace is put for one of the two; none opens both.
                is_good = "Send" in first.gives() and "Send" in second.gives()
                found = await peer.sender("q", "beyond")
                assert found == ("" if is_good else UNAUTHORIZED), (str(first), str(second))
                peer.leave()
        assert await broker.state() == before

    inhabit(visit)


@pytest.mark.parametrize(
    ("made_for", "asked", "is_good"),
    [
        ("q", "q", True),
        ("Q/", "q", True),
        ("q", "q2", False),
        ("q2", "q", False),
        ("q/$management", "q", False),
        ("q/$DeadLetterQueue", "q", False),
        ("q", "q/$DeadLetterQueue", True),
        ("t/Subscriptions/s", "t/subscriptions/S", True),
        ("t/Subscriptions/s", "t/Subscriptions/s2", False),
        ("t/Subscriptions/s", "t/$Transfer/$DeadLetterQueue", False),
        ("t", "t/Subscriptions/s", True),
        ("t/Subscriptions", "t/Subscriptions/s", True),
    ],
)
def test_a_token_is_good_for_its_resource_and_all_below(
    made_for: str, asked: str, is_good: bool
) -> None:
    """Protocol 2.2: by whole segments of the path, in any case."""

    async def visit(broker: WatchedBroker) -> None:
        await settled(broker)
        await broker.queue("q2")
        await broker.subscription("t", "s2")
        name = rule_name(NAMESPACE, frozenset(RIGHTS))
        until = broker.clock.now() + HOUR_MS
        token = generate_sas(f"sb://{HOST}/{made_for}", name, key_of("", name), until)
        peer = await AmqpClient.of(broker)
        assert (await peer.put(token, asked) == 202) == is_good
        # Put for what it is good for, it still opens nothing else.
        await peer.put(token, made_for)
        assert await peer.receiver(asked) == ("" if is_good else UNAUTHORIZED)

    inhabit(visit)


def test_whether_an_entity_exists_is_told_to_nobody_without_a_right() -> None:
    """What is not there is refused like what is there."""

    async def visit(broker: WatchedBroker) -> None:
        for credential in CREDENTIALS:
            peer = await AmqpClient.of(broker)
            await peer.show(credential, "missing", "missing")
            for attach in (AmqpClient.sender, AmqpClient.receiver, AmqpClient.session_receiver):
                assert await attach(peer, "missing") == UNAUTHORIZED
            peer.leave()
        peer = await AmqpClient.of(broker)
        assert await peer.put(broker.root(), "") == 202
        for attach in (AmqpClient.sender, AmqpClient.receiver, AmqpClient.session_receiver):
            assert await attach(peer, "missing") == NOT_FOUND

    inhabit(visit)
