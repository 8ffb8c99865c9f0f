"""All rules of a topic: whatever the arrangement, each subscription gets what its own rules say."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peeklock.entity.rules import topic
from peeklock.entity.rules.action import Changes, SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import (
    ONLY_PLAIN,
    PLAIN,
    ChangedCopy,
    Filter,
    Rule,
    RuleFailure,
    RuleSet,
)
from peeklock.entity.rules.topic import TopicRules
from peeklock.entity.rules.values import PropertyReader
from tests.entity.rules import drawing
from tests.entity.rules.reading import message
from tests.entity.rules.test_correlation import filters as correlation_filters


def sql(node: Any) -> Filter:
    try:
        return SqlFilter(drawing.written(node))
    except RuleError:
        return SqlFilter("Color = 'a' AND 1 / a > 0")


filters: st.SearchStrategy[Filter] = st.one_of(
    st.sampled_from([TrueFilter(), FalseFilter(), SqlFilter("1=1"), SqlFilter("1=0")]),
    # Few, so that several rules have the same one.
    st.sampled_from(["a > 1", "a = 1", "Color = 'a'", "Color = 'a' AND a > 1", "1 / a > 0"]).map(
        SqlFilter
    ),
    st.sampled_from([SqlFilter("a = @p", {"p": 1}), SqlFilter("a = @p", {"p": True})]),
    drawing.conditions.map(sql),
    correlation_filters,
    st.sampled_from([CorrelationFilter(label="a"), CorrelationFilter(properties={"a": 1})]),
)
actions = st.none() | st.sampled_from(["SET a = 1", "SET a = 1 / a", "REMOVE a"]).map(SqlAction)
rule_sets = st.lists(st.tuples(filters, actions), max_size=3).map(
    lambda drawn: RuleSet([Rule(f"r{n}", f, action) for n, (f, action) in enumerate(drawn)])
)
steps = st.lists(st.tuples(st.integers(0, 6), st.none() | rule_sets), max_size=12)
messages = st.lists(st.tuples(drawing.user_bags, drawing.system_bags), min_size=1, max_size=3)


@settings(max_examples=200)
@given(steps, messages)
def test_everybody_gets_what_their_own_rules_say(
    taken: list[tuple[int, RuleSet | None]], arriving: list[tuple[Any, Any]]
) -> None:
    rules = TopicRules()
    sets: dict[int, RuleSet] = {}
    for key, rule_set in taken:
        if rule_set is not None:
            rules.put(key, rule_set)
            sets[key] = rule_set
        elif key in sets:
            rules.remove(key)
            del sets[key]
    for user, system in arriving:
        reader = drawing.reader_of(user, system)
        one_by_one = {key: sets[key].match(reader) for key in sorted(sets)}
        got = rules.match(reader)
        # As text: what is not a number does not equal itself.
        assert repr(sorted(got)) == repr([item for item in one_by_one.items() if item[1]])
    for key in sets:
        rules.remove(key)
    assert rules.match(message()) == []


def put(*filters: Filter) -> TopicRules:
    rules = TopicRules()
    for key, filter in enumerate(filters):
        rules.put(key, RuleSet([Rule("r", filter)]))
    return rules


def test_those_that_take_everything_come_first_and_all_by_their_keys() -> None:
    rules = put(SqlFilter("n = 1"), TrueFilter(), SqlFilter("n > 0"), SqlFilter("1=1"))
    rules.put(9, RuleSet([Rule("r", CorrelationFilter(properties={"n": 1}))]))
    assert [key for key, _ in rules.match(message({"n": 1}))] == [1, 3, 0, 2, 9]
    rules.put(1, RuleSet([Rule("r", FalseFilter())]))
    assert [key for key, _ in rules.match(message({"n": 1}))] == [3, 0, 2, 9]


def test_2000_subscriptions_that_take_everything_are_not_asked() -> None:
    """R-F7: what takes everything costs the copy of a list."""
    rules = put(*[TrueFilter()] * 2_000)

    class Silent:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"nobody needed {name}")

    silent: Any = Silent()
    found = rules.match(silent)
    assert found == [(key, ONLY_PLAIN) for key in range(2_000)]
    found.clear()
    assert len(rules.match(silent)) == 2_000


class Counting:
    """Counts what is asked of a message."""

    def __init__(self, reader: PropertyReader) -> None:
        self.reader = reader
        self.asked = 0

    def user(self, name: str) -> Any:
        self.asked += 1
        return self.reader.user(name)

    def system(self, name: str) -> Any:
        self.asked += 1
        return self.reader.system(name)

    def user_names(self) -> set[str]:
        self.asked += 1
        return self.reader.user_names()

    def new_id(self) -> Any:
        return self.reader.new_id()

    def spend(self, steps: int) -> None:
        self.reader.spend(steps)


@pytest.mark.parametrize(
    ("make", "asked_max"),
    [
        (lambda n: CorrelationFilter(properties={"n": f"{n}"}), 1),
        (lambda n: CorrelationFilter(properties={"n": f"{n}"}, label="l"), 2),
        (lambda n: CorrelationFilter(properties={"n": n}), 2),
        (lambda n: SqlFilter(f"n = {n}"), 2),
        (lambda n: SqlFilter(f"m > 1 AND n = {n}"), 2_000),
        (lambda n: SqlFilter(f"n = {n} AND m > 1"), 3),
        (lambda n: SqlFilter(f"m = 2 AND n = {n} AND EXISTS(m)"), 5),
        (lambda _: SqlFilter("n > 16"), 1),
    ],
)
def test_thousands_of_filters_are_not_tried_one_by_one(make: Any, asked_max: int) -> None:
    rules = put(*[make(n) for n in range(1_000)])
    texts = isinstance(make(1), CorrelationFilter) and make(1).properties["n"] == "1"
    reader = Counting(message({"n": "17" if texts else 17, "m": 2}, Label="l"))
    found = rules.match(reader)
    assert (17, ONLY_PLAIN) in found
    assert reader.asked <= asked_max


def test_filters_for_different_properties_are_not_tried_one_by_one() -> None:
    rules = put(*[CorrelationFilter(properties={f"N{n}": 1}) for n in range(1_000)])
    reader = Counting(message({"n17": 1, "other": 1, "n18": 2}))
    assert rules.match(reader) == [(17, ONLY_PLAIN)]
    assert reader.asked <= 4
    rules.remove(17)
    assert rules.match(message({"n17": 1})) == []


def test_a_guard_hides_no_error() -> None:
    rules = put(SqlFilter("n = 1 AND m > 'x'"), SqlFilter("m > 'x' AND n = 1"))
    failed = (RuleFailure("r", "a number and a text have no order"),)
    assert rules.match(message({"n": 2, "m": 5})) == [(1, failed)]
    assert rules.match(message({"m": 5})) == [(0, failed), (1, failed)]
    assert rules.match(message({"n": None, "m": 5})) == [(0, failed), (1, failed)]
    assert rules.match(message({"n": 1, "m": 5})) == [(0, failed), (1, failed)]
    assert rules.match(message({"n": 1, "m": "y"})) == [(0, ONLY_PLAIN), (1, ONLY_PLAIN)]


def test_a_rule_is_asked_once_even_where_several_properties_are_missing() -> None:
    rules = put(SqlFilter("a = 1 AND b = 2 AND c > 'x'"))
    failed = [(0, (RuleFailure("r", "a number and a text have no order"),))]
    assert rules.match(message({"a": None, "c": 5})) == failed
    assert rules.match(message({"a": 1, "c": 5})) == failed
    assert rules.match(message({"a": 1, "b": 3, "c": 5})) == []


def test_outcomes_come_in_the_order_of_the_rules_however_they_were_found() -> None:
    filters: list[Filter] = [
        SqlFilter("n > 0"),
        CorrelationFilter(properties={"n": 1}),
        SqlFilter("n = 1"),
    ]
    filters += [SqlFilter("n < 2"), TrueFilter()]
    action = SqlAction("SET x = 1")
    rules = TopicRules()
    rules.put(0, RuleSet([Rule(f"r{n}", f, action) for n, f in enumerate(filters)]))
    ((_, outcomes),) = rules.match(message({"n": 1}))
    names = [outcome.rule for outcome in outcomes if isinstance(outcome, ChangedCopy)]
    assert names == ["r0", "r1", "r2", "r3", "r4"]


def test_plain_and_changed_copies_of_one_subscription() -> None:
    rules = TopicRules()
    action = SqlAction("SET x = 1")
    failing = SqlFilter("n > 'x'")
    rules.put(
        0,
        RuleSet(
            [
                Rule("changed", TrueFilter(), action),
                Rule("hidden", SqlFilter("n = 1")),
                Rule("failing", failing),
                Rule("plain", TrueFilter()),
            ]
        ),
    )
    changed = ChangedCopy("changed", Changes({"RuleName": "changed", "x": 1}, {}))
    text = "a number and a text have no order"
    assert rules.match(message({"n": 1})) == [(0, (PLAIN, changed, RuleFailure("failing", text)))]
    rules.put(1, RuleSet([Rule("failing", failing), Rule("plain", TrueFilter())]))
    assert rules.match(message({"n": "y"})) == [(0, (PLAIN, changed)), (1, ONLY_PLAIN)]


def test_a_topic_has_a_limited_number_of_sql_filters() -> None:
    assert (topic.SQL_FILTERS_MAX, topic.CORRELATION_FILTERS_MAX) == (2_000, 100_000)
    rules = TopicRules()
    many = [Rule(f"r{n}", SqlFilter("a = 1")) for n in range(2_000)]
    rules.put(0, RuleSet(many))
    rules.put(0, RuleSet(many))
    with pytest.raises(RuleError, match="a topic has at most 2,000 SQL filters"):
        rules.put(1, RuleSet(many[:1]))
    rules.remove(0)
    rules.put(1, RuleSet(many[:1]))
    assert rules.match(message({"a": 1})) == [(1, ONLY_PLAIN)]


def test_a_topic_has_a_limited_number_of_correlation_filters() -> None:
    filter = CorrelationFilter(label="l")
    half = RuleSet([Rule(f"r{n}", filter) for n in range(50_000)])
    rules = TopicRules()
    rules.put(0, half)
    rules.put(1, half)
    with pytest.raises(RuleError, match="a topic has at most 100,000 correlation filters"):
        rules.put(2, RuleSet([Rule("one", filter)]))
    rules.put(1, RuleSet([Rule("one", filter)]))
    assert rules.match(message(Label="l")) == [(0, ONLY_PLAIN), (1, ONLY_PLAIN)]
