"""What import has to do: the steps that lead from what a broker has to what a file says.

First all queues and topics are made, without forwarding, because destinations must exist; then the
subscriptions with their rules; then what is there already, or forwards, is changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from peeklock.auth.rights import AuthorizationRule
from peeklock.cli.entities.inventory import SIZE, queue_of, subscription_of, topic_of
from peeklock.client.administration import atom, places
from peeklock.client.administration.api import AdministrationApi
from peeklock.client.administration.atom import Description
from peeklock.client.administration.places import ResourcePath
from peeklock.configuration.content import (
    ConfiguredNamespace,
    ConfiguredSubscription,
)
from peeklock.configuration.writing import (
    queue_properties,
    rule_properties,
    subscription_properties,
    topic_properties,
)
from peeklock.entity.definition import MESSAGE_SIZE_MAX_DEFAULT, NO_SIZE_LIMIT

CREATE: Final = "create"
UPDATE: Final = "update"
DELETE: Final = "delete"

_FORWARDS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
_WINDOW: Final = "DuplicateDetectionHistoryTimeWindow"
_KEYS: Final = "AuthorizationRules"
_SIZE_MAX: Final = "MaxMessageSizeInKilobytes"


@final
@dataclass(frozen=True, slots=True)
class PlanStep:
    """One thing to do, and what it changes: of each property the value before and after."""

    verb: str
    place: ResourcePath
    changes: dict[str, tuple[Any, Any]]
    perform: Callable[[], object]


@final
class ImportPlanner:
    """Compares a namespace of a file with a broker."""

    def __init__(self, admin: AdministrationApi) -> None:
        self._admin = admin
        self._entities: list[PlanStep] = []
        self._subscriptions: list[PlanStep] = []
        self._changes: list[PlanStep] = []

    def plan(self, namespace: ConfiguredNamespace) -> list[PlanStep]:
        """Return the steps in their order; none where all is as it should be."""
        for queue in namespace.queues:
            place = places.queue(queue.definition.path)
            known = self._admin.find(place)
            before = None if known is None else queue_properties(queue_of(known))
            self._entity(place, queue_properties(queue.definition), queue.rules, known, before)
        for topic in namespace.topics:
            place = places.topic(topic.definition.path)
            known = self._admin.find(place)
            before = None if known is None else topic_properties(topic_of(known))
            self._entity(place, topic_properties(topic.definition), topic.rules, known, before)
            for subscription in topic.subscriptions:
                self._subscription(subscription, is_new=known is None)
        return [*self._entities, *self._subscriptions, *self._changes]

    def _entity(
        self,
        place: ResourcePath,
        wanted: dict[str, Any],
        rules: Sequence[AuthorizationRule],
        known: Description | None,
        before: dict[str, Any] | None,
    ) -> None:
        """Plan for a queue or topic."""
        if known is None or before is None:
            bare = {key: value for key, value in wanted.items() if key not in _FORWARDS}
            # The default is smaller than what may be chosen.
            if bare.get(_SIZE_MAX) == MESSAGE_SIZE_MAX_DEFAULT // 1024:
                del bare[_SIZE_MAX]
            self._create(self._entities, place, bare, tuple(rules))
            forwards = {key: ("", wanted[key]) for key in _FORWARDS if wanted.get(key)}
            if forwards:
                self._update(place, wanted, tuple(rules), forwards)
            return
        keys = _merged(rules, known.keys)
        changes = _differences(before, wanted)
        if keys != known.keys:
            changes[_KEYS] = (_told(known.keys), _told(keys))
        if changes:
            self._update(place, wanted, keys, changes)

    def _subscription(self, subscription: ConfiguredSubscription, *, is_new: bool) -> None:
        definition = subscription.definition
        place = places.subscription(definition.topic, definition.name)
        wanted = subscription_properties(definition)
        known = None if is_new else self._admin.find(place)
        rules = {
            rule.name.lower(): Description(atom.RULE, rule.name, rule_properties(rule))
            for rule in subscription.rules
        }
        if known is None:
            first, *others = rules.values()
            self._create(self._subscriptions, place, wanted, (), first)
            for rule in others:
                self._add_rule(self._subscriptions, subscription, rule)
            return
        changes = _differences(
            subscription_properties(subscription_of(definition.topic, known)), wanted
        )
        if changes:
            self._update(place, wanted, (), changes)
        # A file without rules leaves those that there are.
        if subscription.gives_rules:
            self._rules(subscription, rules)

    def _rules(self, subscription: ConfiguredSubscription, wanted: dict[str, Description]) -> None:
        definition = subscription.definition
        listed = self._admin.every(places.rules(definition.topic, definition.name))
        known = {rule.name.lower(): rule for rule in listed}
        for key, rule in wanted.items():
            if key not in known:
                self._add_rule(self._changes, subscription, rule)
                continue
            changes = _differences(known[key].values, rule.values)
            if changes:
                place = places.rule(definition.topic, definition.name, known[key].name)
                self._changes.append(
                    PlanStep(UPDATE, place, changes, _call(self._admin.update, place, rule))
                )
        # Last, so that no message finds a subscription without rules.
        for key, rule in known.items():
            if key not in wanted:
                place = places.rule(definition.topic, definition.name, rule.name)
                self._changes.append(PlanStep(DELETE, place, {}, _call(self._admin.delete, place)))

    def _add_rule(
        self, steps: list[PlanStep], subscription: ConfiguredSubscription, rule: Description
    ) -> None:
        definition = subscription.definition
        place = places.rule(definition.topic, definition.name, rule.name)
        changes = {key: (None, value) for key, value in rule.values.items()}
        steps.append(PlanStep(CREATE, place, changes, _call(self._admin.create, place, rule)))

    def _create(
        self,
        steps: list[PlanStep],
        place: ResourcePath,
        values: dict[str, Any],
        keys: tuple[AuthorizationRule, ...],
        first_rule: Description | None = None,
    ) -> None:
        new = Description(place.kind, place.path, _sent(values), keys=keys)
        perform = _call(self._admin.create, place, new, first_rule)
        steps.append(PlanStep(CREATE, place, {}, perform))

    def _update(
        self,
        place: ResourcePath,
        values: dict[str, Any],
        keys: tuple[AuthorizationRule, ...],
        changes: dict[str, tuple[Any, Any]],
    ) -> None:
        changed = Description(place.kind, place.path, _sent(values), keys=keys)
        perform = _call(self._admin.update, place, changed)
        self._changes.append(PlanStep(UPDATE, place, changes, perform))


def _call(method: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    return lambda: method(*arguments)


def _differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        key: (before.get(key), after.get(key))
        for key in {**after, **before}
        if before.get(key) != after.get(key)
    }


def _sent(values: dict[str, Any]) -> dict[str, Any]:
    """Return what is sent. A window without detection has no effect, and somebody's may be kept; a
    quota that is none is not said."""
    is_off = values.get("RequiresDuplicateDetection") is False
    return {
        key: value
        for key, value in values.items()
        if not (is_off and key == _WINDOW) and not (key == SIZE and value == NO_SIZE_LIMIT)
    }


def _merged(
    wanted: Sequence[AuthorizationRule], known: tuple[AuthorizationRule, ...]
) -> tuple[AuthorizationRule, ...]:
    """Return the rules that are to be: a file without rules leaves those that there are, and a rule
    without keys keeps those that it has."""
    if not wanted:
        return known
    before = {rule.name: rule for rule in known}
    merged = {}
    for rule in wanted:
        same = before.get(rule.name)
        if same is not None:
            keys = (rule.primary_key, rule.secondary_key or same.secondary_key)
            if not rule.primary_key:
                keys = (same.primary_key, same.secondary_key)
            rule = AuthorizationRule(rule.name, *keys, rule.rights, same.times)
        merged[rule.name] = rule
    # In the order that they have: another one is no change.
    names = [name for name in before if name in merged]
    return tuple(merged[name] for name in [*names, *(n for n in merged if n not in before)])


def _told(keys: Sequence[AuthorizationRule]) -> list[str]:
    return [repr(key) for key in keys]
