"""Offsets: exact, small, and refused where they do not belong."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.spark.offsets import (
    NUMBER_MAX,
    ClaimOffset,
    OffsetProblem,
    PlaceOffset,
    pack,
    partition_of,
    unpack,
)

_numbers = st.builds(
    lambda partition, low: partition << 48 | low, st.integers(0, 40), st.integers(0, 5_000)
) | st.integers(0, NUMBER_MAX)


@given(st.lists(_numbers, max_size=300))
def test_what_is_packed_is_unpacked_in_order(numbers: list[int]) -> None:
    assert unpack(pack(numbers)) == sorted(set(numbers))


@given(st.sets(st.integers(0, 300)))
def test_a_set_has_one_text(numbers: set[int]) -> None:
    shuffled = sorted(numbers, key=lambda number: number * 7919 % 311)
    assert pack(shuffled) == pack(sorted(numbers))


def test_ten_thousand_scattered_numbers_stay_small() -> None:
    """R-D1: an offset is repeated in every progress event."""
    numbers = random.Random(1).sample(range(1, 40_000), 10_000)
    assert len(pack(numbers)) < 19_000
    assert len(pack(range(1_000_000, 1_100_000))) < 15
    assert unpack(pack(numbers)) == sorted(numbers)


def test_partitions_are_the_upper_bits() -> None:
    assert pack([1, 2, 3, (3 << 48) | 7]) == "0:BC;3:HA"
    assert [partition_of(number) for number in unpack("0:BC;3:HA")] == [0, 0, 0, 3]


@pytest.mark.parametrize("text", ["x", "0", "0:B", "0:g", "0:B!", "-1:BA", ":BA", "0:" + "_" * 20])
def test_what_is_no_packed_list_is_refused(text: str) -> None:
    with pytest.raises(OffsetProblem):
        unpack(text)


@pytest.mark.parametrize("number", [-1, NUMBER_MAX + 1])
def test_what_is_no_number_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="sequence number"):
        pack([number])


def test_a_claim_offset_comes_back_from_json() -> None:
    offset = ClaimOffset("orders", 3, pack([5, 6, 9]))
    text = json.dumps(offset.json())
    assert text == '{"v": 1, "m": "claim", "e": "orders", "n": 3, "c": "0:FBCA"}'
    assert ClaimOffset.read(json.loads(text), "orders").numbers == [5, 6, 9]


def test_a_place_offset_has_its_partitions_in_order() -> None:
    offset = PlaceOffset("journal", "orders", {10: 1, 2: 5, 0: 7})
    text = json.dumps(offset.json())
    assert text == '{"v": 1, "m": "journal", "e": "orders", "p": {"0": 7, "2": 5, "10": 1}}'
    assert PlaceOffset.read(json.loads(text), "journal", "orders") == offset


@pytest.mark.parametrize(
    "offset",
    [
        {"v": 2, "m": "claim", "e": "orders", "n": 1, "c": ""},
        {"v": 1, "m": "peek", "e": "orders", "p": {}},
        {"v": 1, "m": "claim", "e": "bills", "n": 1, "c": ""},
        {"v": 1, "m": "claim", "e": "orders", "n": "1", "c": ""},
        {},
    ],
)
def test_the_checkpoint_of_another_query_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(OffsetProblem):
        ClaimOffset.read(offset, "orders")
