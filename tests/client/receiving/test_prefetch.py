"""Prefetch (R-F4): the size of the cache or 256 KB, whichever is smaller."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.amqp.sessions.delivery import IncomingDelivery
from peeklock.client.receiving.prefetch import PREFETCH_BYTES_MAX, Prefetch


def came(*sizes: int) -> list[IncomingDelivery]:
    return [IncomingDelivery(1, b"", 0, False, b"x" * size, None) for size in sizes]


def test_nothing_is_fetched_ahead_before_it_is_known_how_large_it_is() -> None:
    prefetch = Prefetch(500)
    assert prefetch.grant(1, 0, 0) == 1
    assert prefetch.grant(20, 0, 0) == 20


def test_the_cache_is_filled_as_far_as_it_goes() -> None:
    prefetch = Prefetch(500)
    prefetch.saw(came(100))
    assert prefetch.grant(1, 0, 0) == 500
    prefetch.saw(came(*(64 * 1024 for _ in range(100))))
    assert prefetch.grant(1, 0, 0) == 4
    prefetch.saw(came(*(300 * 1024 for _ in range(100))))
    assert prefetch.grant(1, 0, 0) == 1


def test_it_is_filled_again_by_half() -> None:
    prefetch = Prefetch(100)
    prefetch.saw(came(10))
    assert prefetch.grant(1, 51, 0) == -1
    assert prefetch.grant(1, 50, 0) == 50
    assert prefetch.grant(1, 20, 60) == -1
    assert prefetch.grant(1, 20, 30) == 80
    assert prefetch.grant(1, 100, 0) == -1


def test_a_receive_that_asks_for_more_gets_more() -> None:
    """R-F4: the cache is at least the size of a batch receive."""
    prefetch = Prefetch(10)
    prefetch.saw(came(10))
    assert prefetch.grant(50, 0, 0) == 50
    assert prefetch.grant(50, 10, 5) == 40


@given(st.integers(1, 2000), st.integers(1, 300_000), st.integers(0, 50), st.integers(0, 50))
def test_messages_of_one_size_never_take_more_than_256_kb(
    count: int, size: int, cached: int, credit: int
) -> None:
    prefetch = Prefetch(count)
    prefetch.saw(came(size))
    granted = prefetch.grant(1, cached, credit)
    if granted > 1:
        assert cached + granted <= count
        assert (cached + granted) * size <= PREFETCH_BYTES_MAX


def test_credit_that_a_large_call_did_not_use_does_not_fill_the_cache() -> None:
    prefetch = Prefetch(10)
    prefetch.saw(came(100))
    assert prefetch.grant(100, 0, 0) == 100
    assert prefetch.rest(0, 70) == 10
    assert prefetch.rest(4, 70) == 6
    assert prefetch.rest(15, 70) == 0
    assert prefetch.rest(3, 7) == prefetch.rest(0, 4) == prefetch.rest(20, 0) == -1


def test_a_negative_cache_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="negative"):
        Prefetch(-1)
