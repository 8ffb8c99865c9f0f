"""A batch is cut where its entries end, and no part of that takes long."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.gateway.http.messages.entries import VALUES_MAX, entries_of
from peeklock.gateway.http.messages.malformed import MalformedRequest

MB = 1 << 20
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def found(body: bytes) -> list[Any]:
    return [json.loads(entry) for entry in entries_of(body) if entry is not None]


@given(st.lists(VALUES, min_size=1), st.booleans(), st.sampled_from([None, 1]))
def test_entries_are_what_the_array_has(
    document: list[Any], is_ascii: bool, indent: int | None
) -> None:
    text = json.dumps(document, ensure_ascii=is_ascii, indent=indent)
    assert found(text.encode("utf-8", "surrogatepass")) == document


@pytest.mark.parametrize("unit", ["x", "\\", '"', "\u00e9", "\u20ac"])
@pytest.mark.parametrize("size", [65_530, 65_533, 65_536, 65_539, 200_000])
def test_strings_longer_than_a_look_are_whole(unit: str, size: int) -> None:
    document = [{"Body": unit * size}, {"Body": "x" + unit * size}, {"Body": ""}]
    assert found(json.dumps(document, ensure_ascii=False).encode()) == document


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1," * (MB // 4) + b"1]",
        b'[{"Body":"' + b"x" * (4 * MB) + b'"}]',
        b'[{"Body":"' + b'\\"' * (2 * MB) + b'"}]',
        b"[" + b'{"Body":"' + b'"},{"Body":"'.join([b"x" * 65_536] * 60) + b'"}]',
        b"[" + b",".join([b'{"a":[' + b"1," * (VALUES_MAX - 8) + b"1]}"] * 300) + b"]",
        b"[" + b" " * (4 * MB) + b"{}]",
        b"[{}]" + b" " * (4 * MB),
    ],
    ids=["numbers", "long", "escapes", "strings", "values", "blanks", "behind"],
)
def test_no_part_of_it_takes_long(body: bytes) -> None:
    """To read each of them at once took up to 200 ms, in which nobody else had a turn."""
    steps = [0.0]
    began = time.thread_time()
    for entry in entries_of(body):
        steps[-1] += time.thread_time() - began
        if entry is None:
            steps.append(0.0)
        began = time.thread_time()
    assert len(steps) >= 50
    # Each takes less than 1 ms; the longest two are left out, because the machine has others too.
    assert sorted(steps)[-3] < 0.01


def test_an_array_of_an_array_that_has_no_end_is_refused_at_once() -> None:
    body = b"[[" + b"1," * (20 * MB)
    began = time.thread_time()
    with pytest.raises(MalformedRequest, match="1024 values"):
        found(body)
    # To read all of it takes seconds.
    assert time.thread_time() - began < 0.5
