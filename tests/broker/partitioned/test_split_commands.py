"""A page of what several partitions list."""

from hypothesis import given
from hypothesis import strategies as st

from peeklock.broker.partitioned.split_commands import page_of


@given(
    st.dictionaries(st.text("ab", max_size=8), st.integers(0, 4)),
    st.integers(0, 30),
    st.integers(0, 10),
)
def test_a_page_is_that_of_one_list(by_partition: dict[str, int], skip: int, top: int) -> None:
    lists = [
        sorted(name for name in by_partition if by_partition[name] == partition_index)
        for partition_index in range(5)
    ]
    assert page_of(lists, skip, top) == sorted(by_partition)[skip : skip + top]


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Counted.compared += 1
        return str.__lt__(self, other)


def test_a_far_page_costs_what_it_shows() -> None:
    """All names up to its end were put into order."""
    names = [Counted(f"{number:06}") for number in range(40_000)]
    lists: list[list[str]] = [list(names[partition_index::16]) for partition_index in range(16)]
    Counted.compared = 0
    assert page_of(lists, 39_000, 5) == names[39_000:39_005]
    assert Counted.compared < 10_000
