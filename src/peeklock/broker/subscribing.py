"""Subscriptions and their rules: made, changed, and asked about by links."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, final

from peeklock.broker.changes import EntityError, check_problems, check_subscription_change
from peeklock.broker.descriptions import write_subscription
from peeklock.broker.entities import Entity, Subscription, Topic, changed
from peeklock.broker.rules import default_rules, stamped, with_change
from peeklock.clock import Clock
from peeklock.entity.definition import SUBSCRIPTION, SubscriptionDefinition
from peeklock.entity.refusals import (
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    QUOTA_EXCEEDED,
    UNAVAILABLE,
    Refusal,
)
from peeklock.entity.replies import Numbered, Refused
from peeklock.entity.rule_commands import ListRules, RuleCommand, RulesFound
from peeklock.entity.rules.errors import RuleError
from peeklock.entity.rules.rule import Rule, RuleSet
from peeklock.store.store import Catalog, StoreError

_log: Final = logging.getLogger("peeklock.broker")


@final
class Subscribing:
    """Keeps the subscriptions of all topics in step with the catalog."""

    __slots__ = ("_catalog", "_changing", "_clock", "_subscriptions_max", "_tasks")

    def __init__(
        self, catalog: Catalog, clock: Clock, changing: asyncio.Lock, subscriptions_max: int
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
    ) -> list[Subscription]:
        """Create or change them; their topics' partitions are told when all are known."""
        put: list[Subscription] = []
        topics: dict[str, Topic] = {}
        try:
            for definition, rules in wishes:
                check_problems(definition.problems())
                topic = find(definition.topic)
                if not isinstance(topic, Topic):
                    text = f"There is no topic '{definition.topic}'."
                    raise EntityError(Refusal(ENTITY_NOT_FOUND, text))
                put.append(await self._put(topic, definition, rules))
                topics[topic.path] = topic
        finally:
            for topic in topics.values():
                topic.partitions.configure(topic.blueprint())
        return put

    async def _put(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: Sequence[Rule] | None,
    ) -> Subscription:
        known = topic.subscriptions.get(definition.name.lower())
        now = self._clock.now()
        if known is None:
            if len(topic.subscriptions) >= self._subscriptions_max:
                text = f"The topic has {len(topic.subscriptions)} subscriptions, the limit."
                raise EntityError(Refusal(QUOTA_EXCEEDED, text))
            kept = stamped(default_rules() if rules is None else rules, now)
            lane, created_at = topic.free_lane(), now
        else:
            check_subscription_change(known.definition, definition)
            kept = known.rules if rules is None else stamped(rules, now, known.rules)
            lane, created_at = known.lane, known.created_at
            if known.definition == definition and known.rules == kept:
                return known
        await self._save(topic, definition, kept, lane, created_at)
        return self.know(topic, definition, kept, lane, created_at)

    def know(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: Sequence[Rule],
        lane: int,
        created_at: int,
    ) -> Subscription:
        """Take a subscription as the catalog has it."""
        known = topic.subscriptions.get(definition.name.lower())
        if known is not None:
            known.rules = tuple(rules)
            if known.definition != definition:
                known.definition = definition
                known.guests.dismiss(changed(known))
            return known
        topic.rules.put(lane, RuleSet(rules))
        topic.knows_lane(lane)
        subscription = Subscription(
            topic, definition, rules, lane, created_at, self._ask_rules, self._clock
        )
        topic.subscriptions[definition.name.lower()] = subscription
        return subscription

    def _ask_rules(self, subscription: Subscription, command: RuleCommand) -> None:
        """Answer what a link asks about the rules of a subscription."""
        if isinstance(command, ListRules):
            rules = list(subscription.rules[command.skip : command.skip + command.top])
            command.origin.replied(RulesFound(command.origin, command.tag, rules))
            command.origin.flush()
            return
        self._begin(self._change_rules(subscription, command))

    async def _change_rules(self, subscription: Subscription, command: RuleCommand) -> None:
        origin = command.origin
        try:
            async with self._changing:
                rules = with_change(subscription.rules, command, self._clock.now())
                await self._save(
                    subscription.topic,
                    subscription.definition,
                    rules,
                    subscription.lane,
                    subscription.created_at,
                )
                subscription.rules = rules
        except EntityError as error:
            origin.replied(Refused(origin, [command.tag], error.refusal))
        except StoreError as error:
            _log.error("catalog-failed path=%s error=%r", subscription.path, str(error))
            refusal = Refusal(UNAVAILABLE, "The catalog is out of reach. Try again later.")
            origin.replied(Refused(origin, [command.tag], refusal))
        else:
            origin.replied(Numbered(origin, command.tag, []))
        origin.flush()

    async def _save(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: tuple[Rule, ...],
        lane: int,
        created_at: int,
    ) -> None:
        """Let the rules hold and write them down, or neither."""
        known = topic.subscriptions.get(definition.name.lower())
        try:
            topic.rules.put(lane, RuleSet(rules))
        except RuleError as error:
            raise EntityError(Refusal(INVALID_ARGUMENT, str(error))) from error
        text = write_subscription(definition, rules, lane, created_at)
        path = definition.path.lower()
        try:
            await self._catalog.save(topic.namespace, SUBSCRIPTION, path, text)
        except StoreError:
            if known is None:
                topic.rules.remove(lane)
            else:
                topic.rules.put(lane, RuleSet(known.rules))
            raise
        _log.info("entity-saved kind=subscription path=%s", definition.path)

    async def close(self) -> None:
        """Finish what links have asked."""
        if self._tasks:
            await asyncio.gather(*self._tasks)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
