"""The rules of one subscription (protocol 11.7), and how they are explained (R-F6)."""

from typing import Any

import pytest

from peeklock.entity.rules.action import Changes, SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import (
    PLAIN,
    ChangedCopy,
    Explanation,
    PlainCopy,
    Rule,
    RuleFailure,
    RuleSet,
    explain,
)
from tests.entity.rules.reading import message

FAILING = SqlFilter("n / zero = 1")


def rule(name: str, filter: Any, action: str | None = None) -> Rule:
    return Rule(name, filter, None if action is None else SqlAction(action))


def outcomes(*rules: Rule, **user: Any) -> list[Any]:
    return list(RuleSet(rules).match(message(user)))


def test_no_matching_rule_gives_nothing() -> None:
    assert outcomes(n=1) == []
    assert outcomes(rule("a", FalseFilter()), rule("b", SqlFilter("n = 2")), n=1) == []


def test_unknown_is_not_taken() -> None:
    assert outcomes(rule("a", SqlFilter("nope = 1")), rule("b", SqlFilter("NOT nope = 1"))) == []


def test_all_rules_without_action_give_one_copy_together() -> None:
    rules = [rule("a", TrueFilter()), rule("b", SqlFilter("n = 1"))]
    rules.append(rule("c", CorrelationFilter(properties={"n": 1})))
    assert outcomes(*rules, n=1) == [PlainCopy()]


def test_each_rule_with_an_action_gives_its_own_copy() -> None:
    rules = [
        rule("a", TrueFilter(), "SET x = 1"),
        rule("b", SqlFilter("n = 1"), "SET x = x + 1"),
        rule("c", SqlFilter("n = 2"), "SET x = 3"),
        rule("d", TrueFilter()),
    ]
    assert outcomes(*rules, n=1, x=5) == [
        PLAIN,
        ChangedCopy("a", Changes({"RuleName": "a", "x": 1}, {})),
        ChangedCopy("b", Changes({"RuleName": "b", "x": 6}, {})),
    ]


def test_a_copy_names_its_rule_unless_the_action_says_otherwise() -> None:
    rules = [
        rule("read", TrueFilter(), "SET by = rulename + '!'"),
        rule("set", TrueFilter(), "SET rulename = 'mine'"),
        rule("removed", TrueFilter(), "REMOVE RuleName"),
    ]
    made = [
        each.changes.applied_to({"n": 1, "RULENAME": "sent"})
        for each in outcomes(*rules, n=1, RULENAME="sent")
        if isinstance(each, ChangedCopy)
    ]
    assert made == [
        {"n": 1, "RULENAME": "read", "by": "read!"},
        {"n": 1, "RULENAME": "mine"},
        {"n": 1},
    ]


def test_an_error_concerns_its_own_rule_only() -> None:
    rules = [
        rule("a", FAILING),
        rule("b", TrueFilter(), "SET x = n / zero"),
        rule("c", TrueFilter(), "SET x = 1"),
        rule("d", TrueFilter()),
    ]
    zero = "a number is divided by zero"
    assert outcomes(*rules, n=1, zero=0) == [
        PLAIN,
        RuleFailure("a", zero),
        RuleFailure("b", zero),
        ChangedCopy("c", Changes({"RuleName": "c", "x": 1}, {})),
    ]


def test_names_are_unique_whatever_their_case() -> None:
    with pytest.raises(RuleError, match="two rules of a subscription have the same name"):
        RuleSet([rule("a", TrueFilter()), rule("A", FalseFilter())])


def test_rules_are_explained() -> None:
    """R-F6: which rules of a subscription would take a message, and what they make of it."""
    rules = [
        rule("takes", TrueFilter()),
        rule("changes", SqlFilter("n = 1"), "SET x = 1"),
        rule("no", SqlFilter("n = 2"), "SET x = 1"),
        rule("unknown", SqlFilter("nope = 2")),
        rule("fails", FAILING),
        rule("fails late", TrueFilter(), "SET x = n / zero"),
    ]
    explained = explain(rules, message({"n": 1, "zero": 0}))
    zero = "a number is divided by zero"
    assert explained == [
        Explanation(rules[0], True, None, None),
        Explanation(rules[1], True, Changes({"RuleName": "changes", "x": 1}, {}), None),
        Explanation(rules[2], False, None, None),
        Explanation(rules[3], None, None, None),
        Explanation(rules[4], None, None, zero),
        Explanation(rules[5], True, None, zero),
    ]
    assert [one.takes() for one in explained] == [True, True, False, False, False, False]
