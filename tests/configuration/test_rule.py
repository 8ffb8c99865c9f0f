"""The Rules of a subscription."""

from typing import Any

import pytest

from peeklock.configuration.content import ConfiguredSubscription
from peeklock.entity.definition import DEFAULT_RULE_NAME
from peeklock.entity.rules.action import SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Filter, Rule
from peeklock.entity.rules.values import Value
from tests.configuration.written import NAMESPACE, config, parsed, problems, topic

RULES = f"{NAMESPACE}.Topics[0].Subscriptions[0].Rules"
R = f"{RULES}[0]"


def rule(name: str = "r1", **properties: Any) -> dict[str, Any]:
    return {"Name": name, "Properties": properties}


def sql(text: str) -> dict[str, Any]:
    return {"FilterType": "Sql", "SqlFilter": {"SqlExpression": text}}


def written(**subscription: Any) -> str:
    return config(Topics=[topic("t1", {"Name": "s1", **subscription})])


def read(**subscription: Any) -> ConfiguredSubscription:
    return parsed(written(**subscription)).topics[0].subscriptions[0]


def read_filter(**properties: Any) -> Filter:
    return read(Rules=[rule(**properties)]).rules[0].filter


def test_a_subscription_without_rules_takes_everything() -> None:
    """Tools write an empty list where nobody gave a rule: it is no rule either."""
    everything = (Rule(DEFAULT_RULE_NAME, TrueFilter()),)
    for found in (read(), read(Rules=[]), read(Rules=None)):
        assert found.rules == everything
        assert not found.gives_rules


def test_rules_replace_the_one_that_takes_everything_and_keep_their_order() -> None:
    found = read(Rules=[rule("b", **sql("x = 1")), rule("$Default", FilterType="False")])
    assert found.rules == (Rule("b", SqlFilter("x = 1")), Rule("$Default", FalseFilter()))
    assert found.gives_rules


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("True", TrueFilter()),
        ("false", FalseFilter()),
        ("SQL", SqlFilter("a = 1")),
        ("SqlFilter", SqlFilter("a = 1")),
        ("correlation", CorrelationFilter(to="x")),
        ("CorrelationFilter", CorrelationFilter(to="x")),
    ],
)
def test_the_type_decides_in_any_case_and_the_other_filter_has_no_effect(
    kind: str, expected: Filter
) -> None:
    found = read_filter(
        FilterType=kind,
        SqlFilter={"SqlExpression": "a = 1"},
        CorrelationFilter={"To": "x"},
    )
    assert found == expected


def test_the_text_of_a_filter_stays_as_it_is_written() -> None:
    text = "  colour  =  'red' and\tsys.Label LIKE 'a%' "
    found = read_filter(**sql(text))
    assert isinstance(found, SqlFilter)
    assert found.text == text


def test_a_correlation_filter_asks_for_fields_and_properties_of_their_types() -> None:
    values: dict[str, Value] = {"colour": "red", "size": 5, "weight": 1.5, "urgent": True}
    found = read_filter(
        FilterType="Correlation", CorrelationFilter={"Label": "new", "To": "", "Properties": values}
    )
    assert found == CorrelationFilter(label="new", properties=values)


def test_an_action_goes_with_any_filter() -> None:
    action = {"SqlExpression": "SET colour = 'red'; REMOVE size"}
    both = [rule("a", Action=action, **sql("1=1")), rule("b", FilterType="True", Action=action)]
    expected = SqlAction("SET colour = 'red'; REMOVE size")
    assert [r.action for r in read(Rules=both).rules] == [expected, expected]
    none = rule(FilterType="True", Action={"SqlExpression": ""})
    assert read(Rules=[none]).rules[0].action is None


def test_what_deployment_templates_say_beside_is_taken_and_has_no_effect() -> None:
    beside = {"RequiresPreprocessing": False, "CompatibilityLevel": 20}
    found = rule(
        FilterType="Correlation",
        CorrelationFilter={"To": "x", "RequiresPreprocessing": True},
        Action={"SqlExpression": "SET a = 1", **beside},
    )
    other = rule("r2", FilterType="Sql", SqlFilter={"SqlExpression": "a = 1", **beside})
    assert read(Rules=[found, other]).rules == (
        Rule("r1", CorrelationFilter(to="x"), SqlAction("SET a = 1")),
        Rule("r2", SqlFilter("a = 1")),
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("x", f"{R}: must be an object, not text"),
        ({"Properties": sql("a=1")}, f"{R}.Name: is missing"),
        (rule("a b", **sql("a=1")), f"{R}.Name: 'a b' is not a name of 1 to 50 letters, digits"),
        (rule("x" * 51, **sql("a=1")), f"{R}.Name: '{'x' * 51}' is not a name"),
        (rule("$Other", **sql("a=1")), f"{R}.Name: '$Other' is not a name"),
        ({"Name": "r"}, f"{R}.Properties: is missing"),
        ({"Name": "r", "Properties": 1}, f"{R}.Properties: must be an object, not a number"),
        ({"Name": "r", "Extra": 1, "Properties": sql("a=1")}, f"{R}.Extra: is not a known key"),
        (rule(), f"{R}.Properties.FilterType: is missing"),
        (rule(FilterType="Fuzzy"), f"{R}.Properties.FilterType: must be one of Sql, Correlation, "),
        (rule(FilterType=True), f"{R}.Properties.FilterType: must be text, not true"),
        (rule(FilterType="Sql"), f"{R}.Properties.SqlFilter.SqlExpression: is missing"),
        (
            rule(FilterType="Sql", SqlFilter="a=1"),
            f"{R}.Properties.SqlFilter: must be an object, not text",
        ),
        (
            rule(FilterType="Sql", SqlFilter={"SqlExpression": "a=1", "Sql": ""}),
            f"{R}.Properties.SqlFilter.Sql: is not a known key",
        ),
        (
            rule(FilterType="Correlation"),
            f"{R}.Properties.CorrelationFilter: a correlation filter asks for at least one",
        ),
        (
            rule(FilterType="Correlation", CorrelationFilter={"Subject": "x", "To": "y"}),
            f"{R}.Properties.CorrelationFilter.Subject: is not a known key",
        ),
        (
            rule(FilterType="Correlation", CorrelationFilter={"Label": 1, "To": "y"}),
            f"{R}.Properties.CorrelationFilter.Label: must be text, not a number",
        ),
        (
            rule(FilterType="True", Action={"Sql": "x"}),
            f"{R}.Properties.Action.Sql: is not a known key",
        ),
        (
            rule(FilterType="True", Actions={}),
            f"{R}.Properties.Actions: is not a known key; is Act",
        ),
    ],
)
def test_a_wrong_rule_is_named_with_its_path(entry: Any, expected: str) -> None:
    assert problems(written(Rules=[entry]))[0].startswith(expected)


@pytest.mark.parametrize("text", ["", "a =", "SET a = 1", "a = @p", "(" * 3, "x" * 1_025])
def test_a_text_that_is_no_filter_is_named_with_its_path(text: str) -> None:
    (problem,) = problems(written(Rules=[rule(**sql(text))]))
    assert problem.startswith(f"{R}.Properties.SqlFilter.SqlExpression: ")


def test_the_place_in_the_text_is_named() -> None:
    (problem,) = problems(written(Rules=[rule(**sql("a = 1 AND\nb ="))]))
    assert problem.endswith("(line 2, column 4)")


@pytest.mark.parametrize("text", ["a = 1", "SET", "REMOVE 1"])
def test_a_text_that_is_no_action_is_named_with_its_path(text: str) -> None:
    entry = rule(FilterType="True", Action={"SqlExpression": text})
    (problem,) = problems(written(Rules=[entry]))
    assert problem.startswith(f"{R}.Properties.Action.SqlExpression: ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("null", ".Properties.size: must be text, a number or a boolean, not null"),
        ("[1]", ".Properties.size: must be text, a number or a boolean, not a list"),
        ("{}", ".Properties.size: must be text, a number or a boolean, not an object"),
        ("1e999", ".Properties.size: must be text, a number or a boolean, not a number without"),
        ("18446744073709551616", ": the value of the property size is beyond 64 bits"),
    ],
)
def test_a_property_that_no_message_can_have_is_named(value: str, expected: str) -> None:
    wanted = {"To": "x", "Properties": {"size": "SIZE"}}
    text = written(Rules=[rule(FilterType="Correlation", CorrelationFilter=wanted)])
    (problem,) = problems(text.replace('"SIZE"', value))
    assert problem.startswith(f"{R}.Properties.CorrelationFilter{expected}")


def test_the_properties_of_a_filter_are_an_object() -> None:
    entry = rule(FilterType="Correlation", CorrelationFilter={"To": "x", "Properties": ["a"]})
    assert problems(written(Rules=[entry])) == [
        f"{R}.Properties.CorrelationFilter.Properties: must be an object, not a list"
    ]


def test_two_rules_have_two_names() -> None:
    found = problems(written(Rules=[rule("a", FilterType="True"), rule("A", FilterType="True")]))
    assert found == [f"{RULES}[1].Name: 'A' is given twice"]
