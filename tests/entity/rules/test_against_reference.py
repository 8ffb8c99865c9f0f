"""Whatever is written and whatever arrives: the broker's evaluation equals the slow reference's."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from peeklock.entity.rules.errors import FilterError, RuleError
from peeklock.entity.rules.filter import SqlFilter
from tests.entity.rules import drawing
from tests.entity.rules.reference import Failed, Node, truth

Message = tuple[dict[str, Any], dict[str, Any]]
messages = st.lists(st.tuples(drawing.user_bags, drawing.system_bags), min_size=1, max_size=3)


@settings(max_examples=400)
@given(drawing.conditions, messages)
def test_a_condition_is_as_true_as_the_reference_says(node: Node, arriving: list[Message]) -> None:
    text = drawing.written(node)
    assume(len(text) <= 1_024)
    filter = made(text)
    if isinstance(filter, RuleError):
        # Only a constant pattern of LIKE is looked at before there is a message.
        assert "LIKE" in filter.text, (text, filter)
        return
    for user, system in arriving:
        assert evaluated(filter, user, system) == expected(node, user, system), text


@settings(max_examples=100)
@given(drawing.conditions)
def test_a_text_is_kept_to_the_character(node: Node) -> None:
    text = "\t " + drawing.written(node).replace(" ", "  ") + "\r\n"
    assume(len(text) <= 1_024)
    filter = made(text)
    if isinstance(filter, SqlFilter):
        assert filter.text == text
        assert SqlFilter(filter.text) == filter


@settings(max_examples=200)
@given(st.text(alphabet="ab'\"[]@.()<>=!+-*/%;, \n\\1eE_éß", max_size=30))
def test_any_text_is_a_rule_or_a_clear_error(text: str) -> None:
    filter = made(text)
    if isinstance(filter, RuleError):
        assert filter.line >= 1
        assert filter.column >= 1
        assert f"(line {filter.line}, column {filter.column})" in str(filter)


def made(text: str) -> SqlFilter | RuleError:
    try:
        return SqlFilter(text)
    except RuleError as wrong:
        return wrong


def expected(node: Node, user: dict[str, Any], system: dict[str, Any]) -> object:
    try:
        return truth(node, drawing.world_of(user, system))
    except Failed:
        return "failed"


def evaluated(filter: SqlFilter, user: dict[str, Any], system: dict[str, Any]) -> object:
    try:
        return filter.evaluate(drawing.reader_of(user, system))
    except FilterError:
        return "failed"
