"""What must be true of a message before a condition is worth evaluating.

Most filters demand that some property equals a constant: `type = 'order' AND amount > 100`. That
demand is a key under which the filter can be found, so that thousands of such filters cost one
look. The short cut must change nothing, errors included: a message of another `type` makes the
filter false before the rest is reached, but one without `type` leaves it undecided, and the rest
is evaluated and may fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from peeklock.entity.rules.condition import Condition, key_of
from peeklock.entity.rules.operand import NAMED, SYSTEM, Constant, NewId, Operand, Property
from peeklock.entity.rules.operators import EQUAL, NOT_EQUAL
from peeklock.entity.rules.predicate import (
    AllOf,
    AnyOf,
    Comparison,
    Exists,
    IsNull,
    Membership,
    Not,
    Predicate,
    PropertyComparison,
    TextMembership,
)
from peeklock.entity.rules.values import SYSTEM_PROPERTIES


@final
@dataclass(slots=True, init=False)
class Guard:
    """Conditions without which a filter is not true.

    `failing` tells that the filter may fail where the property is missing; there is then only one
    condition, and what precedes it cannot fail.
    """

    conditions: Final[list[Condition]]
    failing: Final[bool]

    def __init__(self, conditions: list[Condition], failing: bool) -> None:
        self.conditions = conditions
        self.failing = failing


def guard_of(predicate: Predicate) -> Guard | None:
    """Find the demands of a condition, or None when it has none that help."""
    parts = predicate.parts if isinstance(predicate, AllOf) else [predicate]
    conditions: list[Condition] = []
    failing = False
    for part in parts:
        condition = _demand(part)
        if condition is not None and not failing:
            conditions.append(condition)
        elif not cannot_fail(part):
            failing = True
    if not conditions:
        return None
    return Guard(conditions[:1] if failing else conditions, failing)


def cannot_fail(predicate: Predicate) -> bool:
    """Return whether evaluating gives a truth for every message."""
    if isinstance(predicate, PropertyComparison):
        return predicate.operator in (EQUAL, NOT_EQUAL) and _is_known(
            predicate.scope, predicate.name
        )
    if isinstance(predicate, Comparison):
        compares_kinds = predicate.operator in (EQUAL, NOT_EQUAL)
        return compares_kinds and _is_safe(predicate.left) and _is_safe(predicate.right)
    if isinstance(predicate, (AllOf, AnyOf)):
        return all(cannot_fail(part) for part in predicate.parts)
    if isinstance(predicate, Not):
        return cannot_fail(predicate.predicate)
    if isinstance(predicate, (IsNull, Exists)):
        return _is_safe(predicate.property)
    if isinstance(predicate, TextMembership):
        return _is_safe(predicate.operand)
    if isinstance(predicate, Membership):
        return _is_safe(predicate.operand) and all(_is_safe(item) for item in predicate.items)
    return False


def _demand(predicate: Predicate) -> Condition | None:
    if not isinstance(predicate, PropertyComparison) or not cannot_fail(predicate):
        return None
    if predicate.operator != EQUAL or key_of(predicate.constant) is None:
        return None
    return Condition(predicate.scope, predicate.name, predicate.constant)


def _is_safe(operand: Operand) -> bool:
    if isinstance(operand, Property):
        return operand.scope != NAMED and _is_known(operand.scope, operand.name)
    return isinstance(operand, (Constant, NewId))


def _is_known(scope: int, name: str) -> bool:
    return scope != SYSTEM or name in SYSTEM_PROPERTIES
