"""Places of connections without a token, and turns of those who show wrong keys."""

from __future__ import annotations

import random

import pytest

from peeklock.budgets import Budget
from peeklock.gateway.quotas.unauthenticated import UnauthenticatedConnections, address_of
from peeklock.gateway.quotas.wrong_key_throttle import (
    FREE_MAX,
    PAUSE_MS,
    WAIT_MS_MAX,
    WrongKeyThrottle,
)


class Somebody:
    def __init__(self) -> None:
        self.is_gone = False

    def make_room(self) -> None:
        self.is_gone = True


def places(limit: int) -> tuple[UnauthenticatedConnections, Budget]:
    budget = Budget("places", limit)
    return UnauthenticatedConnections(budget), budget


def test_the_one_longest_without_progress_goes() -> None:
    unauthenticated, budget = places(3)
    everybody = [Somebody() for _ in range(3)]
    for each in everybody:
        unauthenticated.came(each, "10.0.0.1")
    unauthenticated.progressed(everybody[0], "10.0.0.1")
    unauthenticated.came(Somebody(), "10.0.0.1")
    assert [each.is_gone for each in everybody] == [False, True, False]
    unauthenticated.came(Somebody(), "10.0.0.1")
    assert [each.is_gone for each in everybody] == [False, True, True]
    assert (budget.used, budget.refused) == (3, 2)


def test_it_goes_from_the_address_with_most_places() -> None:
    unauthenticated, _ = places(10)
    first = Somebody()
    unauthenticated.came(first, "10.0.0.1")
    crowd = [Somebody() for _ in range(9)]
    for each in crowd:
        unauthenticated.came(each, "10.0.0.2")
    for _ in range(8):
        unauthenticated.came(Somebody(), "10.0.0.3")
    assert not first.is_gone
    assert sum(each.is_gone for each in crowd) >= 4


def test_whoever_has_a_token_is_no_stranger_any_more() -> None:
    unauthenticated, budget = places(2)
    known = Somebody()
    unauthenticated.came(known, "10.0.0.1")
    unauthenticated.left(known, "10.0.0.1")
    unauthenticated.left(known, "10.0.0.1")
    unauthenticated.progressed(known, "10.0.0.1")
    assert budget.used == 0
    assert not unauthenticated.let_one_go()
    unauthenticated.came(Somebody(), "10.0.0.1")
    assert unauthenticated.let_one_go()


def test_counts_stay_right_whatever_happens() -> None:
    unauthenticated, budget = places(50)
    random_source = random.Random(5)
    here: dict[Somebody, str] = {}
    living: list[str] = []
    for _ in range(5_000):
        here = {each: address for each, address in here.items() if not each.is_gone}
        if here and random_source.random() < 0.4:
            each = random_source.choice(list(here))
            unauthenticated.left(each, here.pop(each))
        else:
            each = Somebody()
            here[each] = unauthenticated.came(each, f"10.0.0.{random_source.randrange(6)}")
        living = [address for each, address in here.items() if not each.is_gone]
        assert budget.used == len(living) <= 50
    counts = [living.count(address) for address in set(living)]
    assert unauthenticated._most == max(counts)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
    ],
)
def test_what_counts_as_one_address(host: str, address: str) -> None:
    assert address_of(host) == address


def test_wrong_keys_are_slowed_by_address() -> None:
    waiting = Budget("waiting", 1_000)
    wrong_keys = WrongKeyThrottle(waiting)
    for _ in range(FREE_MAX):
        assert wrong_keys.wait_ms("a", 0) == 0
        wrong_keys.missed("a", 0)
    waits = [wrong_keys.wait_ms("a", 1) for _ in range(WAIT_MS_MAX // PAUSE_MS + 10)]
    assert waits[0] == 0
    wrong_keys.missed("a", 1)
    assert wrong_keys.wait_ms("b", 1) == 0
    seen = 0
    for at in range(0, 10_000, 10):
        wait_ms = wrong_keys.wait_ms("c", at)
        if wait_ms >= 0:
            seen += 1
        if wait_ms == 0:
            wrong_keys.missed("c", at)
    assert seen <= FREE_MAX + (10_000 + WAIT_MS_MAX) // PAUSE_MS + 1
    assert waiting.refused > 0
    # Who waits long enough is as good as new.
    assert wrong_keys.wait_ms("c", 1_000_000) == 0
