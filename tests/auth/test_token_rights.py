"""Claims: what a connection may do, and when that ends."""

from peeklock.auth.keyring import NEVER, TokenGrant
from peeklock.auth.rights import ALL_RIGHTS, LISTEN, NO_RIGHTS, SEND
from peeklock.auth.token_rights import TokenRights


def test_nothing_is_allowed_without_a_grant() -> None:
    claims = TokenRights()
    assert claims.rights("q1", now=0) == NO_RIGHTS
    assert not claims.allows("q1", LISTEN, now=0)
    assert claims.expires_at("q1", LISTEN) == 0
    assert claims.next_expiry() is None
    assert claims.expire(now=10) == []


def test_a_grant_reaches_down_and_not_sideways() -> None:
    claims = TokenRights()
    claims.put(TokenGrant("q1", SEND, 100, "r"))
    assert claims.allows("Q1/$management", SEND, now=0)
    assert not claims.allows("q1", LISTEN, now=0)
    assert not claims.allows("q2", SEND, now=0)


def test_grants_of_several_paths_add_up() -> None:
    claims = TokenRights()
    claims.put(TokenGrant("q1", SEND, 100, "r"))
    claims.put(TokenGrant("", LISTEN, 50, "s"))
    assert claims.allows("q1", SEND | LISTEN, now=49)
    assert not claims.allows("q1", SEND | LISTEN, now=50)
    assert claims.allows("q1", SEND, now=50)
    assert claims.expires_at("q1", SEND) == 100
    assert claims.expires_at("q1", LISTEN) == 50


def test_a_newer_grant_replaces_the_older_one() -> None:
    claims = TokenRights()
    claims.put(TokenGrant("q1", ALL_RIGHTS, 100, "r"))
    claims.put(TokenGrant("q1", SEND, 200, "s"))
    assert claims.rights("q1", now=150) == SEND
    assert claims.next_expiry() == 200


def test_what_has_expired_is_handed_back_once() -> None:
    claims = TokenRights()
    first, second, third = (
        TokenGrant("q1", SEND, 100, "r"),
        TokenGrant("q2", SEND, 200, "r"),
        TokenGrant("", LISTEN, NEVER, "r"),
    )
    for grant in (first, second, third):
        claims.put(grant)
    assert claims.next_expiry() == 100
    assert claims.expire(now=100) == [first]
    assert claims.next_expiry() == 200
    assert claims.expire(now=100) == []
    assert claims.expire(now=300) == [second]
    assert claims.next_expiry() is None
    assert claims.allows("q1", LISTEN, now=NEVER - 1)
