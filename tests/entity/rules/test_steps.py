"""What the rules of a topic may do with one message has a budget over all of them."""

from __future__ import annotations

import pytest

from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.filter import SqlFilter
from peeklock.entity.rules.rule import ONLY_PLAIN, Rule, RuleFailure, RuleSet
from peeklock.entity.rules.topic import TopicRules
from peeklock.entity.rules.values import SHORT_STEPS_MAX, STEPS_MAX, PropertyBag, StepBudget

LONG = "a" * 32_000


def bag(**values: str) -> PropertyBag:
    return PropertyBag(dict(values), {}, random_source=int)


def greedy(number: int) -> RuleSet:
    patterns = " OR ".join(f"v LIKE '%a_{number}{each}b%'" for each in range(20))
    return RuleSet([Rule("greedy", SqlFilter(patterns))])


def test_rules_beyond_the_budget_are_errors_and_the_others_are_not() -> None:
    rules = TopicRules()
    for number in range(60):
        rules.put(number, greedy(number))
    rules.put(1_000, RuleSet([Rule("modest", SqlFilter("short LIKE '%e_l%'"))]))
    rules.put(1_001, RuleSet([Rule("plain", SqlFilter("v LIKE '%aaaa%'"))]))
    taken = dict(rules.match(bag(v=LONG, short="hello")))
    failed = [
        outcome
        for key, outcomes in taken.items()
        if key < 1_000
        for outcome in outcomes
        if isinstance(outcome, RuleFailure)
    ]
    assert len(failed) >= 58
    assert "too many steps" in failed[0].text
    # Short work and plain text are not paid for by what somebody else's rules have done.
    assert taken[1_000] == ONLY_PLAIN
    assert taken[1_001] == ONLY_PLAIN


def test_many_modest_rules_are_served() -> None:
    rules = TopicRules()
    for number in range(2_000):
        rules.put(number, RuleSet([Rule("r", SqlFilter(f"v LIKE '%a_c%' OR v = '{number}'"))]))
    assert len(rules.match(bag(v="x" * 60 + "abc" + "x" * 60))) == 2_000


@pytest.mark.parametrize("steps", [SHORT_STEPS_MAX, SHORT_STEPS_MAX + 1])
def test_each_kind_of_work_has_its_own(steps: int) -> None:
    budget = StepBudget()
    for _ in range(STEPS_MAX // steps):
        budget.spend(steps)
    with pytest.raises(FilterError):
        budget.spend(steps)
    other = SHORT_STEPS_MAX if steps > SHORT_STEPS_MAX else SHORT_STEPS_MAX + 1
    budget.spend(other)


def test_patterns_out_of_a_message_and_joined_texts_are_paid_for() -> None:
    reader = bag(v="x", p="%_" * 400, t="a" * 16_000)
    assert tries(SqlFilter("v LIKE p"), reader) <= STEPS_MAX // (800 * 1_024)
    assert tries(SqlFilter("t + t = 'x'"), bag(t="a" * 16_000)) <= STEPS_MAX // 2_000


def tries(filter: SqlFilter, reader: PropertyBag) -> int:
    """How often a filter can be evaluated for one message."""
    for count in range(STEPS_MAX):
        try:
            filter.evaluate(reader)
        except FilterError:
            return count
    raise AssertionError("there is no end")
