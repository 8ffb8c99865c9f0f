"""Numbers in order beside a sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.entity import numbers
from peeklock.entity.numbers import BLOCK_MAX, Numbers, Sorting


@given(st.lists(st.integers(0, 60)), st.lists(st.integers(0, 60)), st.integers(-1, 61))
def test_numbers_are_found_from_any_on(added: list[int], removed: list[int], low: int) -> None:
    kept = Numbers()
    known: list[int] = []
    for number in added:
        if number not in known:
            known.append(number)
            kept.add(number)
    for number in removed:
        if number in known:
            known.remove(number)
            kept.remove(number)
    expected = sorted(each for each in known if each >= low)
    assert kept.first(low, 1 << 60) == expected
    assert kept.first(low, 3) == expected[:3]


def test_many_numbers_in_any_order() -> None:
    kept = Numbers()
    count = 5 * BLOCK_MAX
    for number in [*range(1, count, 2), *range(0, count, 2)]:
        kept.add(number)
    assert kept.first(0, count) == list(range(count))
    for number in range(0, count, 3):
        kept.remove(number)
    left = [number for number in range(count) if number % 3]
    assert kept.first(0, count) == left
    assert kept.first(1000, 5) == [each for each in left if each >= 1000][:5]
    assert max(map(len, kept._blocks)) <= numbers.BLOCK_MAX


@given(st.sets(st.integers(0, (1 << 63) - 1)), st.integers(1, 5), st.integers(1, 7))
def test_numbers_are_sorted_a_part_at_a_time(loose: set[int], heaps: int, count: int) -> None:
    """Whichever heap a number is in."""
    dealt = [[each for each in loose if each % heaps == heap] for heap in range(heaps)]
    sorting = Sorting(dealt)
    given_out: list[int] = []
    steps = 0
    while not sorting.is_done:
        given_out += sorting.next(count)
        steps += 1
    assert given_out == sorted(loose)
    assert steps <= heaps + 1 + len(loose)


@pytest.mark.parametrize("bits", [0, 20])
def test_a_part_of_a_sorted_many_is_bounded(bits: int) -> None:
    """Numbers far from each other were as many heaps, which were put into order in one step."""
    count, heaps = 60_000, 50
    dealt = [range(heap << bits, (count + heap) << bits, heaps << bits) for heap in range(heaps)]
    sorting = Sorting(dealt)
    parts: list[list[int]] = []
    while not sorting.is_done:
        parts.append(sorting.next(100))
    assert parts.count([]) <= heaps + 1
    assert max(map(len, parts)) <= 2 * 100
    assert sum(map(len, parts)) == count
    # Few of them are small: to go through all runs for each number would take long.
    assert len(parts) <= heaps + 2 * count // 100
