"""Numbers in order beside a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from peeklock.entity import numbers
from peeklock.entity.numbers import BLOCK_MAX, Numbers


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
