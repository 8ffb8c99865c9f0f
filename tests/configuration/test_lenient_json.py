"""JSON with comments and trailing commas."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.configuration.lenient_json import loads


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1} // end', {"a": 1}),
        ('// start\n{"a": /* in between */ 1}', {"a": 1}),
        ('{"a": 1, /* over\nlines */ "b": 2,}', {"a": 1, "b": 2}),
        ("[1, 2,\n // the last\n]", [1, 2]),
        ("[[1,],]", [[1]]),
        ('{"url": "sb://localhost/*not a comment*/"}', {"url": "sb://localhost/*not a comment*/"}),
        (r'["quote \" // inside", "back\\"] // out', ['quote " // inside', "back\\"]),
        ('["a,]", ",}"]', ["a,]", ",}"]),
        ("/**/[]/***/", []),
    ],
)
def test_comments_and_trailing_commas_are_left_out(text: str, value: Any) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": 1,\n /* no end', "begins in line 2"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("[NaN]", "NaN is not JSON"),
        ("[,]", "line 1 column 2"),
        ('// x\n{"a" 1}', "line 2 column 6"),
        ("", "line 1"),
        ('["open', "Invalid control character|Unterminated"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        loads(text)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_every_json_text_means_what_it_meant(value: Any) -> None:
    assert loads(json.dumps(value, indent=1)) == value
