"""Subscriptions and their rules: made, changed, and asked about by links."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, final

from peeklock.broker.changes import (
    EITHER,
    KNOWN,
    EntityError,
    check_expected,
    check_problems,
    check_subscription_change,
)
from peeklock.broker.descriptions import write_subscription
from peeklock.broker.entities import Entity, Subscription, Topic, changed
from peeklock.broker.rules import (
    default_rules,
    in_order,
    stamped,
    with_change,
    with_rule,
    without_rule,
)
from peeklock.clock import Clock
from peeklock.entity.definition import SUBSCRIPTION, SubscriptionDefinition
from peeklock.entity.refusals import (
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    QUOTA_EXCEEDED,
    UNAVAILABLE,
    Refusal,
)
from peeklock.entity.replies import Numbered, Refused, RulesFound
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.entity.topics.commands import ListRules, RuleCommand
from peeklock.store.store import Catalog, StoreError

_log: Final = logging.getLogger("peeklock.broker")


@final
class Subscriptions:
    """Keeps the subscriptions of all topics in step with the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        changing: AbstractAsyncContextManager[Any],
        subscriptions_max: int,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        # Held by whoever changes descriptions.
        self._changing = changing
        self._subscriptions_max = subscriptions_max
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(
        self,
        wishes: Sequence[tuple[SubscriptionDefinition, Sequence[Rule] | None]],
        find: Callable[[str], Entity | None],
        expect: str = EITHER,
    ) -> list[Subscription]:
        """Create or change them, all or none; the topics' partitions are told once."""
        plans: list[_Plan] = []
        try:
            for definition, rules in wishes:
                check_problems(definition.problems())
                topic = find(definition.topic)
                if not isinstance(topic, Topic):
                    text = f"There is no topic '{definition.topic}'."
                    raise EntityError(Refusal(ENTITY_NOT_FOUND, text))
                plans.append(self._planned(topic, definition, rules, expect))
            await self._save(plans)
        except (EntityError, StoreError):
            for plan in plans:
                plan.call_off()
            raise
        put = [
            self.know(p.topic, p.definition, p.rules, p.lane, p.created_at, p.updated_at)
            for p in plans
        ]
        for topic in {plan.topic.path: plan.topic for plan in plans if plan.is_new}.values():
            topic.partitions.configure(topic.blueprint())
        return put

    def _planned(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: Sequence[Rule] | None,
        expect: str,
    ) -> _Plan:
        """Let the rules hold; what they were before comes back if the plan is called off."""
        known = topic.subscriptions.get(definition.name.lower())
        now = self._clock.now()
        check_expected(expect, definition.path, is_known=known is not None)
        if known is None:
            if topic.rules.subscriptions >= self._subscriptions_max:
                text = f"The topic has {self._subscriptions_max} subscriptions, the limit."
                raise EntityError(Refusal(QUOTA_EXCEEDED, text))
            kept = stamped(default_rules() if rules is None else rules, now)
            return _Plan(topic, definition, kept, topic.free_lane(), now, now, None)
        check_subscription_change(known.definition, definition)
        kept = known.rules if rules is None else stamped(rules, now, known.rules)
        is_changed = expect == KNOWN or known.definition != definition
        updated_at = now if is_changed else known.updated_at
        return _Plan(topic, definition, kept, known.lane, known.created_at, updated_at, known)

    async def _save(self, plans: Sequence[_Plan]) -> None:
        """Write down what is new, in one go."""
        new = [plan for plan in plans if plan.is_new]
        if new:
            await self._catalog.save_all([plan.entry() for plan in new])
        for plan in new:
            _log.info("entity-saved kind=subscription path=%s", plan.definition.path)

    def know(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: Sequence[Rule],
        lane: int,
        created_at: int,
        updated_at: int,
    ) -> Subscription:
        """Take a subscription as the catalog has it."""
        known = topic.subscriptions.get(definition.name.lower())
        if known is not None:
            known.rules = tuple(rules)
            known.updated_at = updated_at
            if known.definition != definition:
                known.definition = definition
                known.links.dismiss(changed(known))
            return known
        topic.rules.put(lane, RuleSet(rules))
        topic.knows_lane(lane)
        subscription = Subscription(
            topic, definition, rules, lane, created_at, updated_at, self._ask_rules, self._clock
        )
        topic.subscriptions[definition.name.lower()] = subscription
        return subscription

    def _ask_rules(self, subscription: Subscription, command: RuleCommand) -> None:
        """Answer what a link asks about the rules of a subscription."""
        if isinstance(command, ListRules):
            rules = in_order(subscription.rules)[command.skip : command.skip + command.top]
            command.origin.replied(RulesFound(command.origin, command.tag, rules))
            command.origin.flush()
            return
        self._begin(self._change_rules(subscription, command))

    async def _change_rules(self, subscription: Subscription, command: RuleCommand) -> None:
        origin = command.origin
        try:
            async with self._changing:
                _check_alive(subscription)
                rules = with_change(
                    subscription.rules, command, _place_of(subscription), self._clock.now()
                )
                await self._keep_rules(subscription, rules)
        except EntityError as error:
            origin.replied(Refused(origin, [command.tag], error.refusal))
        except StoreError as error:
            _log.error("catalog-failed path=%s error=%r", subscription.path, str(error))
            refusal = Refusal(UNAVAILABLE, "The catalog is out of reach. Try again later.")
            origin.replied(Refused(origin, [command.tag], refusal))
        else:
            origin.replied(Numbered(origin, command.tag, []))
        origin.flush()

    async def put_rule(self, subscription: Subscription, rule: Rule, expect: str) -> Rule:
        """Add a rule or change one, as somebody who holds `changing`; durable when it returns."""
        where = _place_of(subscription)
        rules = with_rule(subscription.rules, rule, expect, where, self._clock.now())
        await self._keep_rules(subscription, rules)
        return next(each for each in rules if each.name.lower() == rule.name.lower())

    async def remove_rule(self, subscription: Subscription, name: str) -> None:
        """Remove a rule, as somebody who holds `changing`; durable when it returns."""
        rules = without_rule(subscription.rules, name, _place_of(subscription))
        await self._keep_rules(subscription, rules)

    async def _keep_rules(self, subscription: Subscription, rules: tuple[Rule, ...]) -> None:
        """Let the rules hold, and write them down."""
        plan = _Plan(
            subscription.topic,
            subscription.definition,
            rules,
            subscription.lane,
            subscription.created_at,
            subscription.updated_at,
            subscription,
        )
        try:
            await self._save([plan])
        except StoreError:
            plan.call_off()
            raise
        subscription.rules = rules

    async def close(self) -> None:
        """Finish what links have asked."""
        if self._tasks:
            await asyncio.gather(*self._tasks)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _place_of(subscription: Subscription) -> str:
    """A subscription as the service's texts name it."""
    topic = subscription.topic
    return f"{topic.namespace}:Topic:{topic.path}|{subscription.definition.name}"


def _check_alive(subscription: Subscription) -> None:
    """A subscription may be deleted while somebody waits to change it; it must not come back."""
    definition = subscription.definition
    if subscription.topic.subscriptions.get(definition.name.lower()) is not subscription:
        text = f"The messaging entity '{subscription.path}' could not be found."
        raise EntityError(Refusal(ENTITY_NOT_FOUND, text))


@final
class _Plan:
    """A subscription as it is to be; its rules hold already, and can be called off."""

    def __init__(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: tuple[Rule, ...],
        lane: int,
        created_at: int,
        updated_at: int,
        known: Subscription | None,
    ) -> None:
        self.topic = topic
        self.definition = definition
        self.rules = rules
        self.lane = lane
        self.created_at = created_at
        self.updated_at = updated_at
        self._known = known
        self.is_new = (
            known is None
            or known.definition != definition
            or known.rules != rules
            or known.updated_at != updated_at
        )
        if self.is_new:
            try:
                topic.rules.put(lane, RuleSet(rules))
            except RuleError as error:
                raise EntityError(Refusal(INVALID_ARGUMENT, str(error))) from error

    def entry(self) -> tuple[str, str, str, str]:
        """What the catalog is to keep."""
        text = write_subscription(
            self.definition, self.rules, self.lane, self.created_at, self.updated_at
        )
        return self.topic.namespace, SUBSCRIPTION, self.definition.path.lower(), text

    def call_off(self) -> None:
        """Let the rules be what they were."""
        if not self.is_new:
            return
        if self._known is None:
            self.topic.rules.remove(self.lane)
        else:
            self.topic.rules.put(self.lane, RuleSet(self._known.rules))
