"""Tokens of issuers: which are believed, for how long, and what they are worth."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from peeklock.auth.issuer import TokenIssuer, WebToken
from peeklock.auth.keyring import KeyRing, TokenGrant
from peeklock.auth.namespaces import Namespace, Namespaces
from peeklock.auth.refusal import (
    EXPIRED_TOKEN,
    INVALID_SIGNATURE,
    MALFORMED_TOKEN,
    NO_ROLE,
    UNSUPPORTED_TOKEN,
    AuthRefusal,
)
from peeklock.auth.rights import ALL_RIGHTS, LISTEN, NO_RIGHTS, SEND
from peeklock.gateway.tokens import issuers as issuers_module
from peeklock.gateway.tokens.issuers import Issuers, KeysError
from tests.broker.broker_harness import until
from tests.gateway.issuer import AUDIENCE, ISSUER, ROLES, LocalIssuer

NOW = 1_700_000_000_000


@pytest.fixture
def local() -> LocalIssuer:
    return LocalIssuer()


def believing(directory: Path, local: LocalIssuer, **options: Any) -> Issuers:
    (directory / "keys.json").write_bytes(local.published())
    issuers = Issuers(directory)
    believed = (TokenIssuer(local.issuer, keys_file="keys.json", **options),)
    assert issuers.hold(believed, issuers.load(believed))
    return issuers


def reason(found: WebToken | TokenGrant | AuthRefusal) -> str:
    assert isinstance(found, AuthRefusal), found
    return found.reason


def test_roles_are_worth_rights(tmp_path: Path, local: LocalIssuer) -> None:
    issuers = believing(tmp_path, local)
    for rights, expected in (
        ((), NO_RIGHTS),
        (("Send",), SEND),
        (("Send", "Listen"), SEND | LISTEN),
        (("Manage",), ALL_RIGHTS),
    ):
        for _ in range(2):
            found = issuers.read(local.token(NOW, *rights), NOW)
            assert isinstance(found, WebToken)
            assert (found.subject, found.rights) == ("somebody", expected)
            assert found.expires_at == NOW + 3_600_000 + 60_000
    own = believing(tmp_path, local, roles={"writers": SEND})
    for roles, worth in (("writers", SEND), (["x", "writers"], SEND), (["Writers"], 0), (None, 0)):
        found = own.read(local.token(NOW, roles=roles), NOW)
        assert isinstance(found, WebToken)
        assert found.rights == worth


def unsigned(local: LocalIssuer) -> str:
    return jwt.encode({"iss": ISSUER}, "", "none", headers={"kid": "first"}) + "AAAA"


def with_public_key_as_secret(local: LocalIssuer) -> str:
    """HS256 by the published key, which a careless check takes for good."""
    public = local.keys["first"].public_key()
    secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    good = local.token(NOW, "Manage").split(".")[1]
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "first"}).encode())
    text = f"{head.decode().rstrip('=')}.{good}"
    sign = base64.urlsafe_b64encode(hmac.new(secret, text.encode(), hashlib.sha256).digest())
    return f"{text}.{sign.decode().rstrip('=')}"


def by_another(local: LocalIssuer) -> str:
    return LocalIssuer().token(NOW, "Manage")


def changed(local: LocalIssuer) -> str:
    head, _, sign = local.token(NOW, "Send").split(".")
    return f"{head}.{local.token(NOW, 'Manage').split('.')[1]}.{sign}"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (unsigned, INVALID_SIGNATURE),
        (with_public_key_as_secret, INVALID_SIGNATURE),
        (by_another, INVALID_SIGNATURE),
        (changed, INVALID_SIGNATURE),
        (lambda _: LocalIssuer("https://other/").token(NOW), INVALID_SIGNATURE),
        (lambda local: local.token(NOW, aud="https://other"), INVALID_SIGNATURE),
        (lambda local: local.token(NOW, aud=None), INVALID_SIGNATURE),
        (lambda local: local.token(NOW, exp=None), INVALID_SIGNATURE),
        (lambda local: local.token(NOW, exp="never"), INVALID_SIGNATURE),
        (lambda local: local.token(NOW, exp=1e300), INVALID_SIGNATURE),
        (lambda local: local.token(NOW, roles={"a": 1}), INVALID_SIGNATURE),
        (lambda local: local.token(NOW, iss=None), INVALID_SIGNATURE),
        (lambda local: local.token(NOW, exp=NOW // 1000 - 60), EXPIRED_TOKEN),
        (lambda local: local.token(NOW, nbf=NOW // 1000 + 61), EXPIRED_TOKEN),
        (lambda local: local.token(NOW, exp=NOW // 1000 + 28 * 3600 + 61), EXPIRED_TOKEN),
        (lambda _: "a.b.c", MALFORMED_TOKEN),
        (lambda _: "e30.e30.e30", INVALID_SIGNATURE),
    ],
)
def test_what_is_not_believed(
    tmp_path: Path, local: LocalIssuer, make: Callable[[LocalIssuer], str], expected: str
) -> None:
    issuers = believing(tmp_path, local)
    assert reason(issuers.read(make(local), NOW)) == expected


def test_clocks_may_differ_a_little(tmp_path: Path, local: LocalIssuer) -> None:
    issuers = believing(tmp_path, local)
    strict = believing(tmp_path, local, skew_ms=0)
    for token in (
        local.token(NOW, exp=NOW // 1000 - 59),
        local.token(NOW, nbf=NOW // 1000 + 59),
        local.token(NOW, exp=NOW // 1000 + 28 * 3600 + 59),
    ):
        assert isinstance(issuers.read(token, NOW), WebToken)
        assert reason(strict.read(token, NOW)) == EXPIRED_TOKEN
        assert isinstance(strict.read(token, None), WebToken), "its time is no matter"


def test_keys_change_and_what_was_believed_is_no_more(tmp_path: Path, local: LocalIssuer) -> None:
    issuers = believing(tmp_path, local)
    ring = KeyRing([])
    called: list[int] = []
    ring.watch(lambda: called.append(1))
    token = local.token(NOW, "Send")
    assert reason(ring.verify(token, "q", NOW)) == UNSUPPORTED_TOKEN
    ring.believe(issuers)
    grant = ring.verify(f"Bearer {token}", "sb://localhost/q", NOW)
    assert isinstance(grant, TokenGrant)
    assert (grant.path, grant.rights, grant.rule_name) == ("q", SEND, "somebody")
    assert ring.current_rights(grant) == SEND
    local.rotate("second")
    newer = local.token(NOW, "Send")
    assert reason(ring.verify(newer, "q", NOW)) == INVALID_SIGNATURE
    (tmp_path / "keys.json").write_bytes(local.published())
    believed = (TokenIssuer(ISSUER, keys_file="keys.json"),)
    assert issuers.hold(believed, issuers.load(believed))
    assert not issuers.hold(believed, issuers.load(believed)), "nothing is different"
    assert isinstance(ring.verify(newer, "q", NOW), TokenGrant)
    assert ring.current_rights(grant) == SEND, "the older key is still there"
    del local.keys["first"]
    (tmp_path / "keys.json").write_bytes(local.published())
    assert issuers.hold(believed, issuers.load(believed))
    ring.believe(issuers)
    assert ring.current_rights(grant) == NO_RIGHTS
    assert len(called) == 2


def test_a_token_without_a_role_is_no_grant(tmp_path: Path, local: LocalIssuer) -> None:
    ring = KeyRing([])
    ring.believe(believing(tmp_path, local))
    for roles in ([], ["Reader"], None):
        refused = ring.verify(local.token(NOW, roles=roles), "q", NOW)
        assert reason(refused) == NO_ROLE
        assert isinstance(refused, AuthRefusal)
        assert "'somebody' gives no right: its claim 'roles'" in refused.text


def test_a_grant_follows_what_its_token_rests_on(tmp_path: Path, local: LocalIssuer) -> None:
    issuers = believing(tmp_path, local)
    ring = KeyRing([])
    ring.believe(issuers)
    several = local.token(NOW, "Send", "Listen", aud=["https://other", AUDIENCE])
    grant = ring.verify(several, "q", NOW)
    assert isinstance(grant, TokenGrant)
    name: dict[str, Any] = {"keys_file": "keys.json"}
    keys = issuers.load((TokenIssuer(ISSUER, **name),))
    send_only = {ROLES["Send"]: SEND}
    for believed, expected in (
        ((TokenIssuer(ISSUER, **name),), SEND | LISTEN),
        ((TokenIssuer(ISSUER, roles=send_only, **name),), SEND),
        ((TokenIssuer(ISSUER, ("https://other",), **name),), NO_RIGHTS),
        ((TokenIssuer(ISSUER, (AUDIENCE,), **name),), SEND | LISTEN),
        ((), NO_RIGHTS),
    ):
        issuers.hold(believed, keys)
        assert ring.current_rights(grant) == expected


def test_grants_of_long_tokens_do_not_keep_them(tmp_path: Path, local: LocalIssuer) -> None:
    ring = KeyRing([])
    ring.believe(believing(tmp_path, local))
    token = local.token(NOW, "Send", groups="x" * 8_000)

    def grants() -> list[TokenGrant | AuthRefusal]:
        # Each request brings its own copy of the text.
        return [ring.verify(f"Bearer {token}", f"q{each}", NOW) for each in range(100)]

    grants()
    tracemalloc.start()
    kept = grants()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(kept[-1], TokenGrant)
    assert size < 100 * 1_000


@pytest.mark.parametrize("kid", [None, "first"])
def test_a_token_that_does_not_fit_has_keys_fetched_soon(
    tmp_path: Path, local: LocalIssuer, kid: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another key of the same name, and tokens that name none; and the key that is gone takes what
    it has signed along."""
    published = [local.published()]
    monkeypatch.setattr(issuers_module, "fetch", lambda _: published[-1])
    monkeypatch.setattr(issuers_module, "FETCH_PAUSE_S", 0.001)
    withdrawn: list[int] = []

    def token(issuer: LocalIssuer) -> str:
        headers = None if kid is None else {"kid": kid}
        said = jwt.decode(issuer.token(NOW, "Send"), options={"verify_signature": False})
        return jwt.encode(said, issuer.keys["first"], "ES256", headers=headers)

    async def scenario() -> None:
        issuers = Issuers(tmp_path, lambda: withdrawn.append(1))
        believed = (TokenIssuer(ISSUER, keys_url="https://i/keys"),)
        issuers.hold(believed, issuers.load(believed))
        issuers.begin()
        older = issuers.read(token(local), NOW)
        assert isinstance(older, WebToken)
        assert issuers.current_rights(older.proof) == SEND
        newer = LocalIssuer()
        published.append(newer.published())
        shown = token(newer)
        await until(lambda: isinstance(issuers.read(shown, NOW), WebToken))
        assert issuers.current_rights(older.proof) == NO_RIGHTS
        assert withdrawn == [1]
        issuers.end()

    asyncio.run(scenario())


def test_a_token_without_a_name_has_keys_fetched_where_there_are_several(
    tmp_path: Path, local: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.rotate("second")
    published = [local.published()]
    monkeypatch.setattr(issuers_module, "fetch", lambda _: published[-1])
    monkeypatch.setattr(issuers_module, "FETCH_PAUSE_S", 0.001)

    async def scenario() -> None:
        issuers = Issuers(tmp_path)
        believed = (TokenIssuer(ISSUER, keys_url="https://i/keys"),)
        issuers.hold(believed, issuers.load(believed))
        issuers.begin()
        said = jwt.decode(local.token(NOW, "Send"), options={"verify_signature": False})
        shown = jwt.encode(said, local.keys["second"], "ES256")
        assert reason(issuers.read(shown, NOW)) == INVALID_SIGNATURE
        del local.keys["first"]
        published.append(local.published())
        await until(lambda: isinstance(issuers.read(shown, NOW), WebToken))
        issuers.end()

    asyncio.run(scenario())


def test_a_first_fetch_that_fails_is_tried_again_soon(
    tmp_path: Path, local: LocalIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [OSError("no"), OSError("not yet")]

    def fetch(_: str) -> bytes:
        if answers:
            raise answers.pop()
        return local.published()

    monkeypatch.setattr(issuers_module, "fetch", fetch)
    monkeypatch.setattr(issuers_module, "FETCH_PAUSE_S", 0.001)

    async def scenario() -> None:
        issuers = Issuers(tmp_path)
        believed = (TokenIssuer(ISSUER, keys_url="https://i/keys"),)
        issuers.hold(believed, issuers.load(believed))
        issuers.begin()
        await until(lambda: bool(issuers._keys[ISSUER]))
        issuers.end()

    asyncio.run(scenario())


def test_a_token_finds_the_namespace_that_believes_it(tmp_path: Path, local: LocalIssuer) -> None:
    one, two = Namespace("one"), Namespace("two")
    namespaces = Namespaces([one, two])
    token = local.token(NOW)
    assert namespaces.of_token(token) is one
    two.keys.believe(believing(tmp_path, local))
    assert namespaces.of_token(f"bearer {token}") is two


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": [1]}',
        '{"keys": []}',
        '{"keys": [{"kty": "oct", "k": "YQ"}]}',
        '{"keys": [{"kty": "RSA"}]}',
        '{"keys": [{"kty": "EC", "crv": "P-256", "x": 1, "y": 2}]}',
    ],
)
def test_files_that_have_no_keys(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(KeysError, match=r"keys\.json"):
        Issuers(tmp_path).load((TokenIssuer(ISSUER, keys_file="keys.json"),))
    with pytest.raises(KeysError, match="missing"):
        Issuers(tmp_path).load((TokenIssuer(ISSUER, keys_file="missing.json"),))


def test_keys_that_are_not_for_this_are_left_out(tmp_path: Path, local: LocalIssuer) -> None:
    symmetric = {"kty": "oct", "k": "c2VjcmV0", "kid": "s", "alg": "HS256"}
    (tmp_path / "keys.json").write_bytes(
        local.published(symmetric, {"kty": "RSA", "use": "enc", "kid": "e"}, {"kty": "new"})
    )
    issuers = Issuers(tmp_path)
    believed = (TokenIssuer(ISSUER, keys_file="keys.json"),)
    issuers.hold(believed, issuers.load(believed))
    assert isinstance(issuers.read(local.token(NOW), NOW), WebToken)
    forged = jwt.encode({"iss": ISSUER}, "c2VjcmV0" * 8, "HS256", headers={"kid": "s"})
    assert reason(issuers.read(forged, NOW)) == INVALID_SIGNATURE


def test_an_issuer_that_cannot_be_reached_is_believed_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        issuers = Issuers(tmp_path)
        believed = (TokenIssuer(ISSUER, keys_url="http://127.0.0.1:1/keys"),)
        assert issuers.hold(believed, issuers.load(believed))
        issuers.begin()
        assert reason(issuers.read(LocalIssuer().token(NOW), NOW)) == INVALID_SIGNATURE
        issuers.end()
        await asyncio.sleep(0)

    asyncio.run(scenario())
