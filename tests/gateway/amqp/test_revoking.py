"""Keys that are removed or changed: what was granted by them ends on living connections too."""

from __future__ import annotations

import pytest

from peeklock.amqp.events import Closed, LinkDetached
from peeklock.amqp.sasl import plain as plain_credential
from peeklock.auth.keyring import NEVER, KeyRing, Proof, TokenGrant
from peeklock.auth.rights import LISTEN, SEND, AuthorizationRule
from peeklock.auth.token_rights import GRANTS_MAX, TokenRights
from peeklock.entity.definition import QueueDefinition
from peeklock.gateway.amqp.namespace_context import GatewayLimits
from tests.gateway.amqp.amqp_harness import AmqpHarness, Client, plain, serve

LISTENER = AuthorizationRule("listener", "listen-key", rights=LISTEN)
SENDER = AuthorizationRule("sender", "send-key", rights=SEND)


async def with_rules(bus: AmqpHarness, *rules: AuthorizationRule, path: str = "q") -> None:
    definition = QueueDefinition(path, batched_store_access=False)
    await bus.bench.broker.put_queue(definition, list(rules))


async def revoked(client: Client) -> list[str]:
    """What the links hear that end now."""
    client.peer.review(client.peer.rights_changed())
    await client.talk()
    return [str(event.error) for event in client.take(LinkDetached)]


def test_links_of_a_removed_key_end() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await with_rules(bus, LISTENER, SENDER)
        client = await bus.connect()
        await client.put_token("q", rule="sender", key="send-key")
        await client.sender()
        assert await revoked(client) == []
        await with_rules(bus, LISTENER)
        (told,) = await revoked(client)
        assert "unauthorized" in told
        assert "key" in told
        # What comes now is not served either.
        assert "unauthorized" in str(await client.refused(client.ask_sender("q")))

    serve(talk)


def test_links_of_a_changed_key_end_and_others_stay() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await with_rules(bus, LISTENER, SENDER)
        client = await bus.connect(plain_credential("sender", "send-key"))
        await client.sender()
        other = await bus.authorized()
        sender = await other.sender()
        changed = AuthorizationRule("sender", "another-key", rights=SEND)
        await with_rules(bus, LISTENER, changed)
        assert len(await revoked(client)) == 1
        assert await revoked(other) == []
        assert await other.send(sender, plain("x"))

    serve(talk)


def test_a_key_that_became_the_second_one_is_still_good() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await with_rules(bus, SENDER)
        client = await bus.connect(plain_credential("sender", "send-key"))
        await client.sender()
        await with_rules(bus, AuthorizationRule("sender", "new-key", "send-key", rights=SEND))
        assert await revoked(client) == []

    serve(talk)


def test_rights_that_a_rule_lost_end_and_those_it_won_begin() -> None:
    async def talk(bus: AmqpHarness) -> None:
        both = AuthorizationRule("both", "key", rights=SEND | LISTEN)
        await with_rules(bus, both)
        client = await bus.connect()
        await client.put_token("q", rule="both", key="key")
        await client.sender()
        await client.receiver()
        await with_rules(bus, AuthorizationRule("both", "key", rights=LISTEN))
        assert len(await revoked(client)) == 1
        await with_rules(bus, both)
        assert await revoked(client) == []
        await client.sender()

    serve(talk)


def test_a_new_queue_of_the_same_name_has_keys_of_its_own() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await with_rules(bus, SENDER, path="other")
        client = await bus.connect(plain_credential("sender", "send-key"))
        await client.sender("other")
        await bus.bench.broker.remove("other")
        await with_rules(bus, AuthorizationRule("sender", "theirs", rights=SEND), path="other")
        await revoked(client)
        error = await client.refused(client.ask_sender("other"))
        assert error.condition == "amqp:unauthorized-access"

    serve(talk)


def test_who_has_no_right_left_goes_when_no_token_follows() -> None:
    async def talk(bus: AmqpHarness) -> None:
        await with_rules(bus, SENDER)
        client = await bus.connect(plain_credential("sender", "send-key"))
        await client.sender()
        await with_rules(bus)
        await revoked(client)
        await bus.advance(client, 20_001)
        assert len(client.take(Closed)) == 1

    serve(talk, limits=GatewayLimits(token_timeout_ms=20_000))


def test_a_token_looks_only_at_the_links_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of links with a token each: what one token costs does not grow with them."""
    asked: list[str] = []
    rights = TokenRights.rights

    def counting(self: TokenRights, path: str, now: int) -> int:
        asked.append(path)
        return rights(self, path, now)

    async def talk(bus: AmqpHarness) -> None:
        names = [f"q{number}" for number in range(20)]
        for name in names:
            await with_rules(bus, LISTENER, SENDER, path=name)
        client = await bus.connect()
        for name in names:
            await client.put_token(name, rule="sender", key="send-key")
            await client.sender(name)
        monkeypatch.setattr(TokenRights, "rights", counting)
        await client.put_token("q1", rule="sender", key="send-key")
        assert asked == []
        await client.put_token("q1", rule="listener", key="listen-key")
        assert asked == ["q1"]
        assert len(client.take(LinkDetached)) == 1

    serve(talk)


def test_the_last_of_many_grants_ends_in_its_turn() -> None:
    token_rights = TokenRights()
    for number in range(GRANTS_MAX + 10):
        token_rights.put(TokenGrant(f"q{number}", SEND, 1_000 + number, "r"))
    assert token_rights.rights("q0", 0) == 0
    assert token_rights.rights(f"q{GRANTS_MAX + 9}/$management", 0) == SEND
    assert token_rights.next_expiry() == 1_010
    for _ in range(100):
        assert token_rights.put(TokenGrant("q20", SEND, 9_000, "r")) is None
    assert len(token_rights.expire(1_019)) == 10
    assert token_rights.next_expiry() == 1_021


def test_links_of_a_token_that_gives_way_end() -> None:
    """It was forgotten, and with it that its links are to end: they outlived token and key."""

    async def talk(bus: AmqpHarness) -> None:
        for name in ("q1", "q2"):
            await with_rules(bus, SENDER, path=name)
        client = await bus.connect()
        await client.put_token("q1", rule="sender", key="send-key")
        await client.sender("q1")
        for number in range(GRANTS_MAX - 1):
            client.peer._token_rights.put(TokenGrant(f"other{number}", SEND, NEVER - 1, "r"))
        assert client.take(LinkDetached) == []
        await client.put_token("q2", rule="sender", key="send-key")
        (detached,) = client.take(LinkDetached)
        assert "newer token" in str(detached.error)

    serve(talk)


def test_grants_are_reviewed_some_at_a_time() -> None:
    keys = KeyRing([])
    token_rights = TokenRights()
    for number in range(100):
        proof = Proof("", "gone", "key")
        token_rights.put(TokenGrant(f"q{number}", SEND, 1_000 + number, "gone", proof))
    assert token_rights.begin_review() == 100
    assert len(token_rights.review(keys, 60)) == 60
    token_rights.expire(1_005)  # some of those that are left
    assert len(token_rights.review(keys, 60)) in range(34, 41)
    assert token_rights.is_empty
