"""The key ring: which token, for which audience, with which rights."""

from collections.abc import Callable
from functools import partial

import pytest

from peeklock.auth.keyring import NEVER, KeyRing, TokenGrant
from peeklock.auth.refusal import (
    EXPIRED_TOKEN,
    INVALID_AUDIENCE,
    INVALID_SIGNATURE,
    MALFORMED_TOKEN,
    UNSUPPORTED_TOKEN,
    AuthRefusal,
)
from peeklock.auth.rights import ALL_RIGHTS, LISTEN, SEND, AuthorizationRule
from peeklock.auth.sas import generate_sas

NOW = 1_700_000_000_000
LATER = NOW + 3_600_000


def ring(is_host: Callable[[str], bool] | None = None) -> KeyRing:
    keys = KeyRing([AuthorizationRule("root", "root-key", "root-spare")], is_host)
    keys.set_entity_rules(
        "Orders",
        [
            AuthorizationRule("sender", "sender-key", rights=SEND),
            AuthorizationRule("shared", "orders-key", rights=LISTEN),
        ],
    )
    keys.set_entity_rules("invoices", [AuthorizationRule("shared", "invoices-key", rights=SEND)])
    return keys


def token(
    resource: str = "sb://localhost/orders", rule: str = "root", key: str = "root-key"
) -> str:
    return generate_sas(resource, rule, key, LATER)


def reason(answer: object) -> str:
    assert isinstance(answer, AuthRefusal), answer
    assert answer.text.startswith(answer.reason)
    return answer.reason


def test_a_good_token_grants_its_rules_rights_on_the_audience_until_it_expires() -> None:
    answer = ring().verify(token(), "sb://localhost:5672/Orders", NOW)
    assert answer == TokenGrant("orders", ALL_RIGHTS, LATER, "root")


def test_a_token_covers_everything_below_its_resource() -> None:
    for audience in ("orders", "amqps://x/orders/$management", "orders/$DeadLetterQueue"):
        assert isinstance(ring().verify(token(), audience, NOW), TokenGrant)
    assert isinstance(
        ring().verify(token("sb://localhost"), "sb://other/anything", NOW), TokenGrant
    )


def test_a_token_covers_nothing_beside_or_above_its_resource() -> None:
    for audience in ("invoices", "orders2", "sb://localhost/", ""):
        assert reason(ring().verify(token(), audience, NOW)) == INVALID_AUDIENCE


@pytest.mark.parametrize("key", ["root-key", "root-spare"])
def test_either_key_signs(key: str) -> None:
    assert isinstance(ring().verify(token(key=key), "orders", NOW), TokenGrant)


@pytest.mark.parametrize("key", ["wrong", "", "sender-key"])
def test_a_wrong_key_is_an_invalid_signature(key: str) -> None:
    assert reason(ring().verify(token(key=key), "orders", NOW)) == INVALID_SIGNATURE


def test_a_changed_resource_or_expiry_is_an_invalid_signature() -> None:
    good = token()
    assert reason(ring().verify(good.replace("orders", "invoices"), "invoices", NOW)) == (
        INVALID_SIGNATURE
    )
    longer = good.replace(f"se={LATER // 1000}", f"se={LATER // 1000 + 1}")
    assert reason(ring().verify(longer, "orders", NOW)) == INVALID_SIGNATURE


def test_an_expired_token_says_when_it_expired() -> None:
    answer = ring().verify(token(), "orders", LATER)
    assert reason(answer) == EXPIRED_TOKEN
    assert isinstance(answer, AuthRefusal)
    assert "2023-11-14T23:13:20Z" in answer.text
    assert isinstance(ring().verify(token(), "orders", LATER - 1), TokenGrant)


def test_a_stranger_does_not_learn_that_a_token_has_expired() -> None:
    assert reason(ring().verify(token(key="wrong"), "orders", LATER)) == INVALID_SIGNATURE


def test_nobody_learns_whether_a_rule_exists() -> None:
    unknown = ring().verify(token(rule="nobody"), "orders", NOW)
    assert unknown == ring().verify(token(key="wrong"), "orders", NOW)
    assert reason(unknown) == INVALID_SIGNATURE
    assert ring().verify_plain("nobody", "x") == ring().verify_plain("root", "x")


def test_an_entitys_rule_signs_for_the_entity_only() -> None:
    answer = ring().verify(token(rule="sender", key="sender-key"), "orders", NOW)
    assert answer == TokenGrant("orders", SEND, LATER, "sender")
    for resource in ("sb://localhost", "sb://localhost/invoices"):
        elsewhere = token(resource, "sender", "sender-key")
        assert reason(ring().verify(elsewhere, "invoices", NOW)) == INVALID_SIGNATURE


def test_two_entities_may_have_rules_of_one_name() -> None:
    invoices = token("sb://localhost/invoices", "shared", "invoices-key")
    assert ring().verify(invoices, "invoices", NOW) == TokenGrant("invoices", SEND, LATER, "shared")
    stolen = token("sb://localhost/orders", "shared", "invoices-key")
    assert reason(ring().verify(stolen, "orders", NOW)) == INVALID_SIGNATURE


def test_rules_are_replaced_and_forgotten() -> None:
    keys = ring()
    keys.set_entity_rules("orders", [AuthorizationRule("sender", "new-key", rights=SEND)])
    old = token(rule="sender", key="sender-key")
    assert reason(keys.verify(old, "orders", NOW)) == INVALID_SIGNATURE
    keys.set_entity_rules("ORDERS", [])
    assert reason(keys.verify(old, "orders", NOW)) == INVALID_SIGNATURE
    keys.set_entity_rules("never-there", [])
    with pytest.raises(ValueError, match="has a path"):
        keys.set_entity_rules("/", [])


def test_what_is_no_sas_token_is_refused() -> None:
    jwt = ring().verify("eyJhbGciOi.eyJhdWQi.c2ln", "orders", NOW)
    assert reason(jwt) == UNSUPPORTED_TOKEN
    assert isinstance(jwt, AuthRefusal)
    assert "JWT" in jwt.text
    assert reason(ring().verify("", "orders", NOW)) == MALFORMED_TOKEN
    assert reason(ring().verify("password", "orders", NOW)) == MALFORMED_TOKEN


def test_a_rule_without_keys_lets_nobody_in() -> None:
    keys = KeyRing([AuthorizationRule("root", "")])
    assert reason(keys.verify(token(key=""), "orders", NOW)) == INVALID_SIGNATURE
    assert reason(keys.verify_plain("root", "")) == INVALID_SIGNATURE


def test_name_and_key_grant_the_place_of_the_rule_for_ever() -> None:
    assert ring().verify_plain("root", "root-spare") == [TokenGrant("", ALL_RIGHTS, NEVER, "root")]
    assert ring().verify_plain("shared", "orders-key") == [
        TokenGrant("orders", LISTEN, NEVER, "shared")
    ]


def test_name_and_key_that_do_not_fit_are_refused() -> None:
    assert reason(ring().verify_plain("root", "wrong")) == INVALID_SIGNATURE
    assert reason(ring().verify_plain("root", "")) == INVALID_SIGNATURE
    assert reason(ring().verify_plain("nobody", "root-key")) == INVALID_SIGNATURE


def test_no_refusal_shows_a_key() -> None:
    answers = [
        ring().verify(token(key="wrong-secret"), "orders", NOW),
        ring().verify(token(), "orders", LATER),
        ring().verify(token(), "invoices", NOW),
    ]
    plain = ring().verify_plain("root", "wrong-secret")
    texts = [a.text for a in (*answers, plain) if isinstance(a, AuthRefusal)]
    assert len(texts) == 4
    assert not [text for text in texts if "secret" in text or "root-key" in text or "sig=" in text]


def test_a_token_that_was_good_is_checked_again_for_time_and_audience() -> None:
    keys, shown = ring(), token()
    assert isinstance(keys.verify(shown, "orders", NOW), TokenGrant)
    assert reason(keys.verify(shown, "invoices", NOW)) == INVALID_AUDIENCE
    assert keys.verify(shown, "orders/$management", NOW) == TokenGrant(
        "orders/$management", ALL_RIGHTS, LATER, "root"
    )
    assert isinstance(keys.verify(shown, "orders", LATER - 1), TokenGrant)
    assert reason(keys.verify(shown, "orders", LATER)) == EXPIRED_TOKEN


def test_a_token_that_was_good_is_good_no_more_when_its_rule_changes_or_goes() -> None:
    keys = ring()
    shown = token(rule="sender", key="sender-key")
    assert keys.verify(shown, "orders", NOW) == TokenGrant("orders", SEND, LATER, "sender")
    keys.set_entity_rules("orders", [AuthorizationRule("sender", "sender-key", rights=LISTEN)])
    assert keys.verify(shown, "orders", NOW) == TokenGrant("orders", LISTEN, LATER, "sender")
    keys.set_entity_rules("orders", [AuthorizationRule("sender", "new-key", "sender-key")])
    assert keys.verify(shown, "orders", NOW) == TokenGrant("orders", ALL_RIGHTS, LATER, "sender")
    keys.set_entity_rules("orders", [AuthorizationRule("sender", "new-key")])
    assert reason(keys.verify(shown, "orders", NOW)) == INVALID_SIGNATURE
    keys.set_entity_rules("orders", [])
    assert reason(keys.verify(shown, "orders", NOW)) == INVALID_SIGNATURE


def _begins(host: str, path: str) -> bool:
    return path.partition("/")[0] == host


def test_a_host_without_a_scheme_is_the_namespace_and_what_follows_narrows_it() -> None:
    known = ["other"]
    keys = ring(lambda path: _begins(known[0], path))
    whole, part = token("localhost"), token("LocalHost/orders/")
    for is_known in (True, False, True):
        known[0] = "localhost" if is_known else "other"
        for _ in range(2):
            for shown in (whole, part):
                found = keys.verify(shown, "orders", NOW)
                if is_known:
                    assert isinstance(found, TokenGrant)
                else:
                    assert reason(found) == INVALID_AUDIENCE
        assert reason(keys.verify(part, "invoices", NOW)) == INVALID_AUDIENCE
    by_entity = token("localhost/orders", "sender", "sender-key")
    assert isinstance(keys.verify(by_entity, "orders", NOW), TokenGrant)
    assert reason(keys.verify(token("localhost", "sender", "sender-key"), "orders", NOW)) == (
        INVALID_SIGNATURE
    )
    assert reason(keys.verify(token("orders"), "invoices", NOW)) == INVALID_AUDIENCE


@pytest.mark.parametrize(
    "resource", ["localhost:5300", "LocalHost:443/", "[::1]:5300", "10.0.0.7:5300"]
)
def test_a_host_with_a_port_is_the_namespace_if_it_is_ours(resource: str) -> None:
    """An address with a port is nothing else."""
    keys = ring(partial(_begins, "localhost"))
    assert isinstance(keys.verify(token(resource), "orders", NOW), TokenGrant)
    below = keys.verify(token(f"{resource.rstrip('/')}/invoices"), "orders", NOW)
    assert reason(below) == INVALID_AUDIENCE


@pytest.mark.parametrize(
    "resource",
    [
        "sb://ns/a:1",
        "sb://ns/foo:80/orders",
        "sb://ns/localhost:5300",
        "https://ns.servicebus.windows.net/localhost:443/orders",
        "invoices:443",
        "foo:80/orders",
    ],
)
def test_what_only_looks_like_a_port_opens_nothing(resource: str) -> None:
    keys = ring(partial(_begins, "localhost"))
    for _ in range(2):
        assert reason(keys.verify(token(resource), "orders", NOW)) == INVALID_AUDIENCE


def test_any_number_of_tokens_is_taken_and_few_are_remembered() -> None:
    keys = ring()
    for each in range(1_000):
        shown = generate_sas("sb://localhost", "root", "root-key", LATER + each * 1_000)
        assert isinstance(keys.verify(shown, "orders", NOW), TokenGrant)
        spoilt = shown.replace("sig=", "sig=x")
        assert reason(keys.verify(spoilt, "orders", NOW)) == INVALID_SIGNATURE
        assert isinstance(keys.verify(shown, "orders", NOW), TokenGrant)
    long = "sb://localhost/" + "x" * 3_000
    for _ in range(2):
        assert isinstance(keys.verify(token(long), long, NOW), TokenGrant)
