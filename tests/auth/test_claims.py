"""Claims: what a connection may do, and when that ends."""

from peeklock.auth.claims import Claims
from peeklock.auth.keyring import NEVER, Grant
from peeklock.auth.rights import ALL_RIGHTS, LISTEN, NO_RIGHTS, SEND


def test_nothing_is_allowed_without_a_grant() -> None:
    claims = Claims()
    assert claims.rights("q1", now=0) == NO_RIGHTS
    assert not claims.allows("q1", LISTEN, now=0)
    assert claims.expires_at("q1", LISTEN) == 0
    assert claims.next_expiry() is None
    assert claims.expire(now=10) == []


def test_a_grant_reaches_down_and_not_sideways() -> None:
    claims = Claims()
    claims.put(Grant("q1", SEND, 100, "r"))
    assert claims.allows("Q1/$management", SEND, now=0)
    assert not claims.allows("q1", LISTEN, now=0)
    assert not claims.allows("q2", SEND, now=0)


def test_grants_of_several_paths_add_up() -> None:
    claims = Claims()
    claims.put(Grant("q1", SEND, 100, "r"))
    claims.put(Grant("", LISTEN, 50, "s"))
    assert claims.allows("q1", SEND | LISTEN, now=49)
    assert not claims.allows("q1", SEND | LISTEN, now=50)
    assert claims.allows("q1", SEND, now=50)
    assert claims.expires_at("q1", SEND) == 100
    assert claims.expires_at("q1", LISTEN) == 50


def test_a_newer_grant_replaces_the_older_one() -> None:
    claims = Claims()
    claims.put(Grant("q1", ALL_RIGHTS, 100, "r"))
    claims.put(Grant("q1", SEND, 200, "s"))
    assert claims.rights("q1", now=150) == SEND
    assert claims.next_expiry() == 200


def test_what_has_expired_is_handed_back_once() -> None:
    claims = Claims()
    first, second, third = (
        Grant("q1", SEND, 100, "r"),
        Grant("q2", SEND, 200, "r"),
        Grant("", LISTEN, NEVER, "r"),
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
