"""A dictionary in parts beside one that is whole."""

import random
import sys

import pytest

from peeklock.large_dict import PART_MAX, LargeDict


def same(parts: LargeDict[int, str], whole: dict[int, str]) -> None:
    assert len(parts) == len(whole)
    assert bool(parts) == bool(whole)
    assert list(parts) == list(whole)
    assert list(parts.values()) == parts.listed() == list(whole.values())
    assert all(parts.parts()[:-1]), "nothing empty is kept"


@pytest.mark.parametrize("seed", range(4))
def test_it_is_as_one(seed: int) -> None:
    chance = random.Random(seed)
    parts: LargeDict[int, str] = LargeDict()
    whole: dict[int, str] = {}
    span = 4 * PART_MAX
    for _ in range(24):
        first = chance.randrange(span)
        run = [each % span for each in range(first, first + chance.randrange(PART_MAX))]
        kind = chance.randrange(4)
        for key in run:
            if kind < 2:
                parts[key] = whole[key] = f"{seed}-{key}"
            elif kind == 2:
                assert parts.pop(key) == whole.pop(key, None)
            elif key in whole:
                assert parts[key] == whole[key]
                del parts[key], whole[key]
        for key in run[::97]:
            assert parts.get(key) == whole.get(key)
            assert (key in parts) == (key in whole)
        same(parts, whole)
    while whole:
        assert parts.popitem() == whole.popitem()
    same(parts, whole)


def test_what_is_not_there_is_told() -> None:
    parts: LargeDict[int, str] = LargeDict()
    for key in range(PART_MAX + 1):
        parts[key] = "x"
    for missing in (-1, PART_MAX + 1):
        with pytest.raises(KeyError):
            parts[missing]
        with pytest.raises(KeyError):
            del parts[missing]
        assert parts.get(missing) is None
        assert parts.pop(missing) is None


def test_no_part_of_it_grows_large() -> None:
    """One of half a million grew in a step of 13 ms."""
    parts: LargeDict[int, str] = LargeDict()
    for key in range(8 * PART_MAX):
        parts[key] = "x"
    largest = dict.fromkeys(range(PART_MAX), "x")
    assert max(map(sys.getsizeof, parts.parts())) <= sys.getsizeof(largest)


def test_few_keys_are_in_few_parts() -> None:
    """Of each part a key is left, and others come and go."""
    parts: LargeDict[int, str] = LargeDict()
    for first in range(0, 12 * PART_MAX, PART_MAX):
        for key in range(first, first + PART_MAX):
            parts[key] = "x"
        for key in range(first + 1, first + PART_MAX):
            del parts[key]
    assert list(parts) == list(range(0, 12 * PART_MAX, PART_MAX))
    assert len(parts.parts()) <= 3
