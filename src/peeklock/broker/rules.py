"""The rules of a subscription as its owner changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from peeklock.broker.changes import EntityError
from peeklock.entity.refusals import ENTITY_EXISTS, ENTITY_NOT_FOUND, Refusal
from peeklock.entity.rule_commands import AddRule, RemoveRule, RuleCommand
from peeklock.entity.rules.filter import TrueFilter
from peeklock.entity.rules.rule import Rule

DEFAULT_RULE: Final = "$Default"


def default_rules() -> tuple[Rule, ...]:
    """What a subscription has that was given no rules: it takes everything."""
    return (Rule(DEFAULT_RULE, TrueFilter()),)


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


def with_change(rules: tuple[Rule, ...], command: RuleCommand, now: int) -> tuple[Rule, ...]:
    """The rules with one more, or one less."""
    if isinstance(command, AddRule):
        rule = command.rule
        if any(known.name.lower() == rule.name.lower() for known in rules):
            text = f"The subscription has a rule '{rule.name}' already."
            raise EntityError(Refusal(ENTITY_EXISTS, text))
        return (*rules, Rule(rule.name, rule.filter, rule.action, now))
    assert isinstance(command, RemoveRule), f"no rules are changed by {command!r}"
    kept = tuple(rule for rule in rules if rule.name.lower() != command.name.lower())
    if len(kept) == len(rules):
        text = f"The messaging entity '{command.name}' could not be found among the rules."
        raise EntityError(Refusal(ENTITY_NOT_FOUND, text))
    return kept
