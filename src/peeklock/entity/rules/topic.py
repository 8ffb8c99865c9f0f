"""The rules of all subscriptions of a topic, arranged so that a publish asks as few as possible.

Subscriptions that take everything cost the copy of a list, all together. Filters that demand values
are found by the index. The others are evaluated, and every filter only once, however many rules
have it.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final, TypeAlias, final

from peeklock.entity.rules.correlation import CorrelationFilter, CorrelationIndex
from peeklock.entity.rules.errors import FilterError, RuleError
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import ONLY_PLAIN, Filter, Outcomes, Rule, RuleOutcomes, RuleSet
from peeklock.entity.rules.values import PropertyReader

Taken: TypeAlias = tuple[int, Outcomes]
"""A subscription's key and what it gets."""

# The service's limits for one topic (protocol 11.1).
SQL_FILTERS_MAX: Final = 2_000
CORRELATION_FILTERS_MAX: Final = 100_000


@final
class TopicRules:
    """All rule sets of a topic, each under the key of its subscription."""

    __slots__ = (
        "_always",
        "_always_listed",
        "_correlations",
        "_index",
        "_plain_and_more",
        "_plans",
        "_scanned",
        "_shared",
        "_sqls",
        "_unconditional",
        "version",
    )

    def __init__(self) -> None:
        self.version: int = 0  # another one after each change
        self._plans: dict[int, _Plan] = {}
        # Who gets the plain copy of everything and nothing else; listed when first asked for.
        self._always: dict[int, Taken] = {}
        self._always_listed: list[Taken] | None = None
        # Who gets the plain copy of everything, and more from other rules.
        self._plain_and_more: dict[int, _Plan] = {}
        # Rules with an action that take everything.
        self._unconditional: dict[_Place, None] = {}
        self._shared: dict[CorrelationFilter | SqlFilter, _Shared] = {}
        self._index: CorrelationIndex[_Shared] = CorrelationIndex()
        self._scanned: list[_Shared] = []
        self._sqls: int = 0
        self._correlations: int = 0

    @property
    def subscriptions(self) -> int:
        """How many subscriptions have rules."""
        return len(self._plans)

    @property
    def sql_filters(self) -> int:
        """How many SQL filters there are."""
        return self._sqls

    @property
    def correlation_filters(self) -> int:
        """How many correlation filters there are."""
        return self._correlations

    @property
    def cost(self) -> int:
        """What each message costs at least, in filters that are evaluated; nothing where all
        messages get the same."""
        if len(self._plans) == len(self._always):
            return 0
        evaluated = len(self._scanned) + len(self._plain_and_more) + len(self._unconditional)
        return 1 + evaluated + len(self._always) // 8

    @property
    def cost_max(self) -> int:
        """What a message costs where every subscription that has a filter takes it, or fails."""
        if len(self._plans) == len(self._always):
            return 0
        return self.cost + (len(self._plans) - len(self._always)) // 2

    @property
    def plain_count(self) -> int:
        """How many subscriptions get the plain copy of everything."""
        return len(self._always) + len(self._plain_and_more)

    @property
    def always(self) -> list[int] | None:
        """The subscriptions, in order, where each gets the plain copy of everything, else None."""
        return sorted(self._always) if len(self._plans) == len(self._always) else None

    def put(self, subscription: int, rules: RuleSet) -> None:
        """Let a subscription have these rules, instead of those it may have had."""
        self.version += 1
        before = self._plans.get(subscription)
        plan = _Plan(subscription, rules)
        sqls = self._sqls + plan.sqls - (0 if before is None else before.sqls)
        correlations = (
            self._correlations + plan.correlations - (0 if before is None else before.correlations)
        )
        if sqls > SQL_FILTERS_MAX:
            raise RuleError(f"a topic has at most {SQL_FILTERS_MAX:,} SQL filters")
        if correlations > CORRELATION_FILTERS_MAX:
            raise RuleError(f"a topic has at most {CORRELATION_FILTERS_MAX:,} correlation filters")
        if before is not None:
            self.remove(subscription)
        self._sqls, self._correlations = sqls, correlations
        self._plans[subscription] = plan
        if plan.is_plain and not plan.places:
            self._always[subscription] = (subscription, ONLY_PLAIN)
            self._always_listed = None
        elif plan.is_plain:
            self._plain_and_more[subscription] = plan
        for place in plan.places:
            self._enter(place)

    def remove(self, subscription: int) -> None:
        """Forget the rules of a subscription."""
        self.version += 1
        plan = self._plans.pop(subscription)
        self._sqls -= plan.sqls
        self._correlations -= plan.correlations
        if self._always.pop(subscription, None) is not None:
            self._always_listed = None
        self._plain_and_more.pop(subscription, None)
        for place in plan.places:
            self._leave(place)

    def match(self, reader: PropertyReader) -> list[Taken]:
        """Say what each subscription gets of a message; who gets nothing is left out.

        Those that take everything come first, then the others; both in the order of their keys.
        """
        if self._always_listed is None:
            self._always_listed = [self._always[key] for key in sorted(self._always)]
        taken = list(self._always_listed)
        if len(self._plans) == len(self._always):
            return taken
        tally = _Tally(reader)
        for place in self._unconditional:
            tally.take(place)
        for shared in self._index.find(reader):
            if shared.is_certain:
                tally.take_all(shared)
            else:
                tally.evaluate(shared)
        for shared in self._scanned:
            tally.evaluate(shared)
        for plan in self._plain_and_more.values():
            tally.touch(plan)
        return taken + tally.result()

    def _enter(self, place: _Place) -> None:
        filter = place.rule.filter
        if isinstance(filter, (CorrelationFilter, SqlFilter)) and not place.is_unconditional:
            shared = self._shared.get(filter)
            if shared is None:
                shared = self._shared[filter] = _Shared(filter)
                self._open(filter, shared)
            shared.places[place] = None
        else:
            self._unconditional[place] = None

    def _leave(self, place: _Place) -> None:
        filter = place.rule.filter
        if isinstance(filter, (CorrelationFilter, SqlFilter)) and not place.is_unconditional:
            shared = self._shared[filter]
            del shared.places[place]
            if not shared.places:
                del self._shared[filter]
                self._close(shared)
        else:
            del self._unconditional[place]

    def _open(self, filter: CorrelationFilter | SqlFilter, shared: _Shared) -> None:
        """Make a filter known to the publishes to come."""
        if isinstance(filter, CorrelationFilter):
            self._index.add(filter.conditions, shared)
        elif filter.guard is not None:
            guard = filter.guard
            self._index.add(guard.conditions, shared, is_certain=False, when_missing=guard.failing)
        else:
            self._scanned.append(shared)

    def _close(self, shared: _Shared) -> None:
        filter = shared.filter
        if isinstance(filter, CorrelationFilter):
            self._index.remove(filter.conditions, shared)
        elif filter.guard is not None:
            self._index.remove(filter.guard.conditions, shared)
        else:
            self._scanned.remove(shared)


@final
class _Place:
    """A rule where it stands: which subscription, and which of its rules."""

    __slots__ = ("is_unconditional", "number", "plan", "rule")

    def __init__(self, plan: _Plan, number: int, rule: Rule) -> None:
        self.plan: Final[_Plan] = plan
        self.number: Final[int] = number
        self.rule: Final[Rule] = rule
        self.is_unconditional: Final[bool] = _verdict(rule.filter) is True


@final
class _Shared:
    """A filter, and all the rules that have it; only a SQL filter is evaluated when found."""

    __slots__ = ("filter", "is_certain", "places")

    def __init__(self, filter: CorrelationFilter | SqlFilter) -> None:
        self.filter: Final[CorrelationFilter | SqlFilter] = filter
        self.is_certain: Final[bool] = isinstance(filter, CorrelationFilter)
        # A dictionary for its order: leaving must not cost a walk through a hundred thousand.
        self.places: dict[_Place, None] = {}


@final
class _Plan:
    """The rules of a subscription, sorted by what has to be done about them.

    `is_plain`: it gets the plain copy of everything. `places` are the rules that may add to that.
    `alone` is what the subscription gets when a single rule decides between the plain copy and
    nothing, else None.
    """

    __slots__ = ("alone", "correlations", "is_plain", "places", "sqls", "subscription")

    def __init__(self, subscription: int, rules: RuleSet) -> None:
        self.subscription: Final[int] = subscription
        self.is_plain: bool = any(
            rule.action is None and _verdict(rule.filter) is True for rule in rules.rules
        )
        self.places: Final[list[_Place]] = [
            _Place(self, number, rule)
            for number, rule in enumerate(rules.rules)
            if self._may_add(rule)
        ]
        self.alone: Taken | None = None
        if not self.is_plain and len(self.places) == 1 and self.places[0].rule.action is None:
            self.alone = (subscription, ONLY_PLAIN)
        filters = [rule.filter for rule in rules.rules]
        self.sqls: Final[int] = sum(isinstance(f, SqlFilter) for f in filters)
        self.correlations: Final[int] = sum(isinstance(f, CorrelationFilter) for f in filters)

    def _may_add(self, rule: Rule) -> bool:
        """Return whether a rule can give more than the plain copy of everything already does."""
        if _verdict(rule.filter) is False:
            return False
        if rule.action is not None or not self.is_plain:
            return True
        return isinstance(rule.filter, SqlFilter) and rule.filter.can_fail


@final
class _Tally:
    """What one message has brought to whom, until all rules were asked."""

    __slots__ = ("_reader", "_taken", "_to_gather")

    def __init__(self, reader: PropertyReader) -> None:
        self._reader: PropertyReader = reader
        self._taken: list[Taken] = []
        # By subscription: rules that took the message, or what was wrong with them.
        self._to_gather: dict[int, _Events] = {}

    def evaluate(self, shared: _Shared) -> None:
        """Evaluate a filter for all its rules."""
        try:
            truth = shared.filter.evaluate(self._reader)
        except FilterError as wrong:
            for place in shared.places:
                self.touch(place.plan).add(place, wrong)
            return
        if truth is True:
            self.take_all(shared)

    def take_all(self, shared: _Shared) -> None:
        """Note that all rules of a filter take the message."""
        for place in shared.places:
            self.take(place)

    def take(self, place: _Place) -> None:
        """Note that a rule takes the message."""
        alone = place.plan.alone
        if alone is not None:
            self._taken.append(alone)
        else:
            self.touch(place.plan).add(place, None)

    def touch(self, plan: _Plan) -> _Events:
        """Return the events of a subscription that gets something, or may get it."""
        events = self._to_gather.get(plan.subscription)
        if events is None:
            events = self._to_gather[plan.subscription] = _Events(plan.is_plain)
        return events

    def result(self) -> list[Taken]:
        """Give everybody's outcomes, by the order of the keys."""
        for subscription, events in self._to_gather.items():
            self._taken.append((subscription, events.outcomes(self._reader)))
        self._taken.sort(key=_SUBSCRIPTION)
        return self._taken


_SUBSCRIPTION: Final = itemgetter(0)


@final
class _Events:
    """What the rules of one subscription said to a message."""

    __slots__ = ("_events", "_is_plain")

    def __init__(self, is_plain: bool) -> None:
        self._is_plain: bool = is_plain
        self._events: list[tuple[int, Rule, FilterError | None]] = []

    def add(self, place: _Place, wrong: FilterError | None) -> None:
        """Note what a rule said: nothing wrong means that it takes the message."""
        self._events.append((place.number, place.rule, wrong))

    def outcomes(self, reader: PropertyReader) -> Outcomes:
        """Return the outcomes in the order of the rules."""
        outcomes = RuleOutcomes(self._is_plain)
        self._events.sort(key=_NUMBER)
        for _, rule, wrong in self._events:
            if wrong is None:
                outcomes.take(rule, reader)
            else:
                outcomes.fail(rule, wrong)
        return outcomes.outcomes()


_NUMBER: Final = itemgetter(0)


def _verdict(filter: Filter) -> bool | None:
    """Return what a filter says of every message, None where it depends on the message."""
    if isinstance(filter, TrueFilter):
        return True
    if isinstance(filter, FalseFilter):
        return False
    return filter.constant if isinstance(filter, SqlFilter) else None
