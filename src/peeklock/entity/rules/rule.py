"""Rules, and what those of one subscription make of a message.

All matching rules without an action give one copy together, each with an action gives its own
(protocol 11.7). A rule that fails concerns itself alone: the others give their copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.rules.action import Changes, SqlAction
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.errors import FilterError, RuleError
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.values import PropertyReader, Truth, fold

Filter: TypeAlias = TrueFilter | FalseFilter | CorrelationFilter | SqlFilter


@final
@dataclass(slots=True, init=False)
class Rule:
    """A filter under a name, with what happens to the messages that it takes."""

    name: Final[str]
    filter: Final[Filter]
    action: Final[SqlAction | None]
    created_at: Final[int]

    def __init__(
        self, name: str, filter: Filter, action: SqlAction | None = None, created_at: int = 0
    ) -> None:
        self.name = name
        self.filter = filter
        self.action = action
        self.created_at = created_at


@final
@dataclass(slots=True, init=False)
class PlainCopy:
    """The message as it came."""

    def __init__(self) -> None:
        pass


@final
@dataclass(slots=True, init=False)
class ChangedCopy:
    """The message as a rule's action changed it."""

    rule: Final[str]
    changes: Final[Changes]

    def __init__(self, rule: str, changes: Changes) -> None:
        self.rule = rule
        self.changes = changes


@final
@dataclass(slots=True, init=False)
class RuleFailure:
    """No copy: the filter or the action could not be evaluated."""

    rule: Final[str]
    text: Final[str]

    def __init__(self, rule: str, text: str) -> None:
        self.rule = rule
        self.text = text


Outcome: TypeAlias = PlainCopy | ChangedCopy | RuleFailure
Outcomes: TypeAlias = tuple[Outcome, ...]
"""What one subscription gets: the plain copy first, then the rest in the order of the rules."""

PLAIN: Final = PlainCopy()
ONLY_PLAIN: Final[Outcomes] = (PLAIN,)


@final
class RuleSet:
    """The rules of one subscription, in the order of their making."""

    __slots__ = ("rules",)

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: Final[tuple[Rule, ...]] = tuple(rules)
        names = {fold(rule.name) for rule in self.rules}
        if len(names) != len(self.rules):
            raise RuleError("two rules of a subscription have the same name")

    def match(self, reader: PropertyReader) -> Outcomes:
        """Say what the subscription gets of a message; nothing, where no rule takes it."""
        gathered = RuleOutcomes()
        for rule in self.rules:
            try:
                if rule.filter.evaluate(reader) is True:
                    gathered.take(rule, reader)
            except FilterError as wrong:
                gathered.fail(rule, wrong)
        return gathered.outcomes()


@final
class RuleOutcomes:
    """What the rules of a subscription have given so far."""

    __slots__ = ("_others", "_plain")

    def __init__(self, is_plain: bool = False) -> None:
        self._plain: bool = is_plain
        self._others: list[Outcome] = []

    def take(self, rule: Rule, reader: PropertyReader) -> None:
        """Add what a rule gives that takes the message."""
        if rule.action is None:
            self._plain = True
            return
        try:
            self._others.append(ChangedCopy(rule.name, rule.action.apply(reader, rule.name)))
        except FilterError as wrong:
            self.fail(rule, wrong)

    def fail(self, rule: Rule, wrong: FilterError) -> None:
        """Add that a rule could not be evaluated."""
        self._others.append(RuleFailure(rule.name, wrong.text))

    def outcomes(self) -> Outcomes:
        """Give it all in order."""
        if not self._plain:
            return tuple(self._others)
        return (PLAIN, *self._others) if self._others else ONLY_PLAIN


@final
@dataclass(slots=True, init=False)
class Explanation:
    """What one rule makes of a message, for a person who wants to know.

    `truth` is what the filter says, unknown included; `error` is set when filter or action failed.
    """

    rule: Final[Rule]
    truth: Final[Truth]
    changes: Final[Changes | None]
    error: Final[str | None]

    def __init__(
        self, rule: Rule, truth: Truth, changes: Changes | None, error: str | None
    ) -> None:
        self.rule = rule
        self.truth = truth
        self.changes = changes
        self.error = error

    def takes(self) -> bool:
        """Return whether the rule gives a copy."""
        return self.truth is True and self.error is None


def explain(rules: Iterable[Rule], reader: PropertyReader) -> list[Explanation]:
    """Say for each rule whether it takes a message and what its action makes of it."""
    return [_explained(rule, reader) for rule in rules]


def _explained(rule: Rule, reader: PropertyReader) -> Explanation:
    truth: Truth = None
    try:
        truth = rule.filter.evaluate(reader)
        changes: Changes | None = None
        if truth is True and rule.action is not None:
            changes = rule.action.apply(reader, rule.name)
    except FilterError as wrong:
        return Explanation(rule, truth, None, wrong.text)
    return Explanation(rule, truth, changes, None)
