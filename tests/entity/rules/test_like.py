"""Patterns of LIKE: pieces between `%`, none of them ever tried twice at one place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.like import Pattern
from peeklock.entity.rules.values import PropertyBag
from tests.entity.rules.reference import Failed, fits, shape_of


def bag() -> PropertyBag:
    return PropertyBag({}, {}, random_source=int)


@settings(max_examples=300)
@given(st.text("ab%_!", max_size=8), st.text("ab%_!\n", max_size=10), st.sampled_from(["", "!"]))
def test_a_pattern_fits_what_the_reference_says(pattern: str, text: str, escape: str) -> None:
    try:
        shape = shape_of(pattern, escape or None)
    except Failed:
        return
    assert Pattern(pattern, escape).matches(text, bag()) == fits(text, shape)


def test_the_ends_do_not_share_characters() -> None:
    assert not Pattern("ab%ba").matches("aba", bag())
    assert Pattern("ab%ba").matches("abba", bag())
    assert not Pattern("a%b%b").matches("ab", bag())
    assert Pattern("").matches("", bag())
    assert Pattern("%").matches("", bag())
    assert not Pattern("_%").matches("", bag())


def test_a_wicked_pattern_takes_no_longer() -> None:
    # With backtracking this would not end in a lifetime.
    assert not Pattern("%a" * 300 + "%b%c").matches("a" * 32_768, bag())
    assert not Pattern("%a_" * 200 + "%b%c").matches("a" * 4_096, bag())


def test_a_search_that_would_take_long_is_an_error() -> None:
    pattern = Pattern("%" + "_" * 400 + "z%")
    assert not pattern.matches("x" * 2_000, bag())
    with pytest.raises(FilterError, match="250,000 characters are too many"):
        pattern.matches("x" * 250_000, bag())
    # Where there is nothing to search for, length does not matter.
    assert Pattern("x%" + "_" * 400).matches("x" * 250_000, bag())
    assert Pattern("%y%").matches("x" * 250_000 + "y", bag())


def test_characters_that_expressions_know_are_only_characters() -> None:
    assert Pattern("a.*_[x]%\\").matches("a.*?[x]...\\", bag())
    assert not Pattern("a.*").matches("abc", bag())
