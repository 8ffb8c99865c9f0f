"""Correlation filters (protocol 12.4), and the index against trying them one by one."""

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peeklock.entity.rules.condition import Condition
from peeklock.entity.rules.correlation import SIZE_MAX, CorrelationFilter, CorrelationIndex
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.operand import USER
from tests.entity.rules import drawing
from tests.entity.rules.drawing import STRANGE
from tests.entity.rules.reading import message

FIELDS = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}


@pytest.mark.parametrize(("field", "name"), FIELDS.items())
def test_each_field_is_compared_with_its_property(field: str, name: str) -> None:
    filter = CorrelationFilter(**{field: "x"})  # type: ignore[arg-type] # one name of many
    assert filter.evaluate(message(**{name: "x"})) is True
    assert filter.evaluate(message(**{name: "X"})) is False
    assert filter.evaluate(message()) is False


def test_all_that_is_set_must_be_equal() -> None:
    filter = CorrelationFilter(label="l", to="t", properties={"a": 1, "b": "x"})
    assert filter.evaluate(message({"a": 1, "b": "x"}, Label="l", To="t")) is True
    assert filter.evaluate(message({"a": 1, "b": "x"}, Label="l", To="other")) is False
    assert filter.evaluate(message({"a": 1}, Label="l", To="t")) is False
    assert filter.evaluate(message({"a": 2, "b": "x"}, Label="l", To="t")) is False


def test_the_empty_text_is_a_value() -> None:
    assert CorrelationFilter(label="").evaluate(message(Label="")) is True
    assert CorrelationFilter(label="").evaluate(message()) is False


def test_property_keys_fold_case_and_values_do_not() -> None:
    filter = CorrelationFilter(properties={"COLOR": "red"})
    assert filter.evaluate(message({"Color": "red"})) is True
    assert filter.evaluate(message({"Color": "Red"})) is False
    assert filter.evaluate(message({"Color": "red", "COLOR": "blue"})) is False


@pytest.mark.parametrize("five", [5, 5.0, Decimal(5)])
def test_numbers_are_compared_by_value(five: Any) -> None:
    filter = CorrelationFilter(properties={"n": five})
    for other in (5, 5.0, Decimal(5), drawing.Narrow(5)):
        assert filter.evaluate(message({"n": other})) is True
    assert filter.evaluate(message({"n": "5"})) is False


def test_booleans_are_no_numbers_and_a_null_is_met_by_a_null() -> None:
    assert CorrelationFilter(properties={"a": True}).evaluate(message({"a": 1})) is False
    assert CorrelationFilter(properties={"a": None}).evaluate(message({"a": None})) is True
    assert CorrelationFilter(properties={"a": None}).evaluate(message()) is False
    assert CorrelationFilter(properties={"a": None}).evaluate(message({"a": 1})) is False
    assert CorrelationFilter(properties={"a": 1}).evaluate(message({"a": None})) is False


def test_a_filter_that_asks_nothing_is_refused() -> None:
    with pytest.raises(RuleError, match="at least one property"):
        CorrelationFilter()
    with pytest.raises(RuleError, match="the property a has a type that rules do not know"):
        CorrelationFilter(properties={"a": STRANGE})  # type: ignore[dict-item] # what is refused


def test_a_filter_has_a_size() -> None:
    CorrelationFilter(label="x" * (SIZE_MAX - 5))
    for properties in ({"x": "y" * SIZE_MAX}, {"x": b"y" * SIZE_MAX}, {"x" * SIZE_MAX: 1}):
        with pytest.raises(RuleError, match="at most 8,192 characters"):
            CorrelationFilter(properties=properties)


def test_filters_are_equal_to_the_type() -> None:
    def of(value: Any) -> CorrelationFilter:
        return CorrelationFilter(label="l", properties={"a": value})

    assert of(1) == of(1)
    assert hash(of(1)) == hash(of(1))
    assert of(1) != of(True)
    assert of(1) != of(1.0)
    assert of(1) != CorrelationFilter(to="l", properties={"a": 1})
    assert of(1) != "filter"
    assert repr(of(1)) == "CorrelationFilter(Label='l', a=1)"


filters = st.builds(
    CorrelationFilter,
    label=st.none() | st.sampled_from(["a", "ab"]),
    correlation_id=st.none() | st.sampled_from(["", "a"]),
    properties=st.dictionaries(
        st.sampled_from(["a", "A", "Color"]),
        st.one_of(
            drawing.texts,
            drawing.numbers,
            st.sampled_from([v for v in drawing.OTHERS if v is not drawing.STRANGE]),
        ),
        min_size=1,
        max_size=2,
    ),
)


@given(
    st.lists(filters, max_size=25),
    st.lists(st.tuples(drawing.user_bags, drawing.system_bags), max_size=5),
    st.data(),
)
def test_the_index_finds_what_trying_all_finds(
    some: list[CorrelationFilter], arriving: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    index: CorrelationIndex[tuple[int]] = CorrelationIndex()
    items = {(number,): filter for number, filter in enumerate(some)}
    for item, filter in items.items():
        index.add(filter.conditions, item)
    for item in list(items):
        if data.draw(st.booleans(), "leaves"):
            index.remove(items.pop(item).conditions, item)
    for user, system in arriving:
        reader = drawing.reader_of(user, system)
        one_by_one = [item for item, filter in items.items() if filter.evaluate(reader) is True]
        assert sorted(index.find(reader)) == one_by_one


def test_conditions_in_any_order_share_a_group() -> None:
    index: CorrelationIndex[str] = CorrelationIndex()
    a, b = Condition(USER, "a", 1), Condition(USER, "b", "x")
    index.add([a, b], "first")
    index.add([b, a], "second")
    assert index.find(message({"a": 1.0, "b": "x"})) == ["first", "second"]
    index.remove([a, b], "second")
    index.remove([a, b], "first")
    assert index.find(message({"a": 1, "b": "x"})) == []


def test_an_item_may_also_be_wanted_where_the_property_is_missing() -> None:
    index: CorrelationIndex[str] = CorrelationIndex()
    condition = Condition(USER, "a", "x")
    index.add([condition], "only")
    index.add([condition], "also", when_missing=True)
    assert index.find(message({"a": "x"})) == ["only", "also"]
    assert index.find(message({"a": "y"})) == []
    assert index.find(message({"a": STRANGE})) == []
    assert index.find(message({"a": None})) == ["also"]
    assert index.find(message()) == ["also"]
    index.remove([condition], "also")
    assert index.find(message()) == []
    assert index.find(message({"a": "x"})) == ["only"]


def test_a_boolean_and_a_number_have_different_keys() -> None:
    index: CorrelationIndex[str] = CorrelationIndex()
    for expected in (True, False, 1, 0, None):
        index.add([Condition(USER, "a", expected)], repr(expected))
    for value in (True, False, 1, 0, None):
        assert index.find(message({"a": value})) == [repr(value)]
    assert index.find(message({"a": 1.0})) == ["1"]


def test_what_is_no_number_is_found_by_nothing() -> None:
    index: CorrelationIndex[str] = CorrelationIndex()
    index.add([Condition(USER, "a", math.nan)], "never")
    for value in (math.nan, Decimal("NaN"), STRANGE, None, 1):
        assert index.find(message({"a": value})) == []


def test_large_integers_share_a_key_and_are_told_apart() -> None:
    index: CorrelationIndex[str] = CorrelationIndex()
    index.add([Condition(USER, "a", 2**53)], "even")
    index.add([Condition(USER, "a", 2**53 + 1)], "odd")
    assert index.find(message({"a": 2**53 + 1})) == ["odd"]
    assert index.find(message({"a": 2.0**53})) == ["even", "odd"]
