"""A batch is divided by bytes, and a session stays whole."""

from hypothesis import given
from hypothesis import strategies as st

from peeklock.spark.source.claim_keeper import ClaimedMessage
from peeklock.spark.source.slices import divide

_claims = st.lists(
    st.builds(
        ClaimedMessage,
        st.integers(0, 3).flatmap(lambda p: st.integers(p << 48, (p << 48) + 500)),
        st.integers(0, 100_000),
        st.none() | st.sampled_from(["red", "blue", "green"]),
    ),
    unique_by=lambda claimed: claimed.number,
    max_size=60,
)


@given(_claims, st.integers(1, 1 << 20), st.integers(1, 70))
def test_every_message_is_in_one_task_and_sessions_are_whole(
    claims: list[ClaimedMessage], slice_bytes: int, least: int
) -> None:
    slices = divide(claims, slice_bytes, least)
    assert all(slices)
    assert all(numbers == sorted(numbers) for numbers in slices)
    numbers = [number for one in slices for number in one]
    assert sorted(numbers) == sorted(claimed.number for claimed in claims)
    where = {number: at for at, one in enumerate(slices) for number in one}
    for claimed in claims:
        if claimed.session_id is not None:
            members = [
                where[other.number]
                for other in claims
                if other.session_id == claimed.session_id
                and other.number >> 48 == claimed.number >> 48
            ]
            assert len(set(members)) == 1


def test_small_batches_are_one_task_and_large_ones_are_many() -> None:
    small = [ClaimedMessage(number, 1_000) for number in range(1_000)]
    assert len(divide(small, 8 << 20, 1)) == 1
    assert len(divide(small, 8 << 20, 4)) == 4
    large = [ClaimedMessage(number, 100_000) for number in range(1_000)]
    sizes = [len(one) for one in divide(large, 8 << 20, 1)]
    assert len(sizes) == 12
    assert max(sizes) - min(sizes) <= 1
    assert divide([], 8 << 20, 4) == []
