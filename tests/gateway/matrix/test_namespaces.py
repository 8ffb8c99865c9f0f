"""The authorization matrix of two namespaces: what opens the one opens nothing of the other."""

from __future__ import annotations

import asyncio

from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.rights import AuthorizationRule
from peeklock.auth.sas import generate_sas
from peeklock.entity.definition import QueueDefinition
from tests.gateway.amqp.amqp_harness import AmqpHarness
from tests.gateway.matrix.amqp_client import UNAUTHORIZED, AmqpClient
from tests.gateway.matrix.credentials import (
    COMBINATIONS,
    CREDENTIALS,
    ENTITY,
    HOST,
    HOUR_MS,
    NAMESPACE,
    RIGHTS,
    key_of,
    rule_name,
    rules_at,
)

LINKS = (AmqpClient.sender, AmqpClient.receiver, AmqpClient.session_receiver)


def other_rules() -> list[AuthorizationRule]:
    """Rules with the same names and rights as here, and with other keys."""
    return [
        AuthorizationRule(each.name, f"another {each.primary_key}", rights=each.rights)
        for each in rules_at(NAMESPACE, "")
    ]


def test_no_credential_of_one_namespace_opens_another() -> None:
    """Neither by AMQP nor with a key that has the same name there."""

    async def whole() -> None:
        here = Namespace("ns", rules_at(NAMESPACE, ""))
        bus = AmqpHarness(namespaces=Namespaces([here, Namespace("two", other_rules())]))
        broker = bus.bench.broker
        await broker.start()
        await broker.put_queue(QueueDefinition("q"), rules_at(ENTITY, "q"), "ns")
        await broker.put_queue(QueueDefinition("q"), [], "two")
        for credential in CREDENTIALS:
            token = credential.token("q", "q", bus.clock.now())
            client = await bus.connect(host="two.localhost")
            peer = AmqpClient(client)
            if token is not None:
                assert await peer.put(token, "q") in (400, 401), str(credential)
            for attach in LINKS:
                assert await attach(peer, "q") == UNAUTHORIZED, str(credential)
            peer.leave()
        for rights in COMBINATIONS:
            name = rule_name(NAMESPACE, rights)
            key = f"another {key_of('', name)}"
            token = generate_sas(f"sb://{HOST}/", name, key, bus.clock.now() + HOUR_MS)
            client = await bus.connect(host="two.localhost")
            peer = AmqpClient(client)
            assert await peer.put(token, "q") == 202
            gives = frozenset(RIGHTS) if "Manage" in rights else rights
            assert (await peer.sender("q") == "") == ("Send" in gives)
            assert (await peer.receiver("q") == "") == ("Listen" in gives)
            peer.leave()
        await broker.close()

    asyncio.run(whole())
