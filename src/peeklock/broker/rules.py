"""The rules of a subscription as its owner changes them."""

from __future__ import annotations

from collections.abc import Sequence

from peeklock.broker.changes import KNOWN, NEW, EntityError
from peeklock.entity.definition import DEFAULT_RULE_NAME
from peeklock.entity.refusals import ENTITY_EXISTS, ENTITY_NOT_FOUND, Refusal
from peeklock.entity.rules.filter import TrueFilter
from peeklock.entity.rules.rule import Rule
from peeklock.entity.topics.commands import AddRule, RemoveRule, RuleCommand


def default_rules() -> tuple[Rule, ...]:
    """What a subscription has that was given no rules: it takes everything."""
    return (Rule(DEFAULT_RULE_NAME, TrueFilter()),)


def stamped(rules: Sequence[Rule], now: int, known: Sequence[Rule] = ()) -> tuple[Rule, ...]:
    """Rules with the instant of their making; those that are there already keep theirs."""
    ages = {rule.name: rule for rule in known}
    made: list[Rule] = []
    for rule in rules:
        before = ages.get(rule.name)
        is_same = (
            before is not None and before.filter == rule.filter and before.action == rule.action
        )
        created_at = before.created_at if is_same and before is not None else now
        made.append(Rule(rule.name, rule.filter, rule.action, rule.created_at or created_at))
    return tuple(made)


def in_order(rules: Sequence[Rule]) -> list[Rule]:
    """The rules as they are listed: by name, that of a new subscription first."""
    return sorted(rules, key=lambda rule: (rule.name != DEFAULT_RULE_NAME, rule.name.lower()))


def with_change(
    rules: tuple[Rule, ...], command: RuleCommand, where: str, now: int
) -> tuple[Rule, ...]:
    """The rules with one more, or one less; `where` names their subscription."""
    if isinstance(command, AddRule):
        return with_rule(rules, command.rule, NEW, where, now)
    assert isinstance(command, RemoveRule), f"no rules are changed by {command!r}"
    return without_rule(rules, command.name, where)


def with_rule(
    rules: tuple[Rule, ...], rule: Rule, expect: str, where: str, now: int
) -> tuple[Rule, ...]:
    """The rules with one more, or with this one in the place of the one that has its name."""
    places = [at for at, known in enumerate(rules) if known.name.lower() == rule.name.lower()]
    if places and expect == NEW:
        text = f"The messaging entity '{where}|{rule.name}' already exists."
        raise EntityError(Refusal(ENTITY_EXISTS, text))
    if not places:
        if expect == KNOWN:
            raise _no_rule(where, rule.name)
        return (*rules, Rule(rule.name, rule.filter, rule.action, now))
    at = places[0]
    known = rules[at]
    changed = Rule(known.name, rule.filter, rule.action, known.created_at)
    return (*rules[:at], changed, *rules[at + 1 :])


def without_rule(rules: tuple[Rule, ...], name: str, where: str) -> tuple[Rule, ...]:
    """The rules with one less."""
    kept = tuple(rule for rule in rules if rule.name.lower() != name.lower())
    if len(kept) == len(rules):
        raise _no_rule(where, name)
    return kept


def _no_rule(where: str, name: str) -> EntityError:
    text = f"The messaging entity '{where}|{name}' could not be found."
    return EntityError(Refusal(ENTITY_NOT_FOUND, text))
