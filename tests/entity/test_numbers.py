"""Numbers in order beside a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from peeklock.entity import numbers
from peeklock.entity.numbers import BLOCK_MAX, DEALT, SORTED_BITS, Numbers, Sorting


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


@given(st.lists(st.integers(0, 1 << 62), unique=True), st.integers(1, 5))
def test_numbers_are_sorted_a_part_at_a_time(loose: list[int], count: int) -> None:
    sorting = Sorting(loose[:])
    given_out: list[int] = []
    steps = 0
    while not sorting.is_done:
        given_out += sorting.next(count)
        steps += 1
    assert given_out == sorted(loose)
    assert steps <= len(loose) // (DEALT * count) + 1 + len(loose)


def test_a_part_of_dense_numbers_is_bounded() -> None:
    count = 10 << SORTED_BITS
    sorting = Sorting(list(range(count, 0, -1)))
    parts: list[list[int]] = []
    while not sorting.is_done:
        parts.append(sorting.next(100))
    assert parts.count([]) == -(-count // (100 * DEALT))
    assert max(map(len, parts)) <= 100 + (1 << SORTED_BITS)
    assert sum(map(len, parts)) == count
