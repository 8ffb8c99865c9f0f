"""The entities of a namespace as links see them: queues, topics, subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, final

from peeklock.auth.rights import AuthorizationRule
from peeklock.broker.descriptions import Placement
from peeklock.broker.idleness import Idleness
from peeklock.broker.partitions import Partitions
from peeklock.clock import Clock
from peeklock.entity.blueprint import (
    FIRST_SUBSCRIPTION_LANE,
    Blueprint,
    subscription_policy,
    topic_blueprint,
)
from peeklock.entity.commands import MAIN, Command, TransactionWork
from peeklock.entity.definition import (
    FOREVER_MS,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.refusals import DETACHED, ENTITY_NOT_FOUND, Refusal
from peeklock.entity.rules.rule import Rule
from peeklock.entity.rules.topic import TopicRules
from peeklock.entity.topics.commands import AddRule, ListRules, RemoveRule, RuleCommand
from peeklock.entity.topics.publishing import Publishing
from peeklock.entity.topics.wording import Wording

# A lock token has 16 bits for the lane, and each subscription takes two lanes.
_LANE_MAX: Final = 0xFFFE

# Links that must go with their entity: so many at once, then others have their turn.
DISMISSED_AT_ONCE: Final = 64


class AttachedLink(Protocol):
    """A link, as an entity knows it: only to tell it that it must go."""

    def dismiss(self, refusal: Refusal) -> None:
        """The entity was deleted, disabled or changed so that the link cannot stay."""
        ...


@final
class AttachedLinks:
    """The links of one entity, and whether it is in use."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When somebody last came, went or asked for something; 0 while nobody ever did.
        self.accessed_at = 0
        self._links: dict[AttachedLink, None] = {}
        self._idleness = Idleness(self._passed())

    def __len__(self) -> int:
        return len(self._links)

    def add(self, link: AttachedLink) -> None:
        """A link is attached."""
        self._links[link] = None
        self.used()

    def remove(self, link: AttachedLink) -> None:
        """A link is gone by itself."""
        self._links.pop(link, None)
        self.used()

    def used(self) -> None:
        """The entity was asked for something."""
        self.accessed_at = self._clock.now()
        self._idleness.used(self._passed())

    def is_idle(self, auto_delete_ms: int) -> bool:
        """Whether nobody has used the entity for so long."""
        return self._idleness.is_idle(self._passed(), len(self._links), auto_delete_ms)

    def _passed(self) -> int:
        """The clock without what it skipped: being idle is a duration, and a clock that is set
        forward deletes nothing."""
        return self._clock.now() - self._clock.skipped_ms

    def dismiss(self, refusal: Refusal) -> None:
        """Tell all links that they must go; others have their turn between many of them."""
        links = list(self._links)
        self._links.clear()
        _dismiss(links, refusal)


@final
class Queue:
    """A queue: its description, and its partitions."""

    kind: Final = QUEUE
    lane: Final = MAIN

    def __init__(
        self,
        namespace: str,
        definition: QueueDefinition,
        keys: Sequence[AuthorizationRule],
        place: Placement,
        partitions: Partitions,
        clock: Clock,
    ) -> None:
        self.namespace = namespace
        self.definition = definition
        self.keys = tuple(keys)
        self.place = place
        self.updated_at = place.created_at
        self.partitions = partitions
        self.links = AttachedLinks(clock)

    def redefine(self, definition: QueueDefinition) -> None:
        """Take a new description; the partitions are told by the broker."""
        self.definition = definition

    @property
    def path(self) -> str:
        """The queue's name as its owner wrote it."""
        return self.definition.path

    @property
    def owner_path(self) -> str:
        """The path of the entity that owns the partitions."""
        return self.definition.path

    @property
    def status(self) -> str:
        """Whether it can be sent to and received from."""
        return self.definition.status

    @property
    def message_size_max(self) -> int:
        """The largest message it takes."""
        return self.definition.message_size_max

    @property
    def requires_session(self) -> bool:
        """Whether it can only be received from session by session."""
        return self.definition.requires_session

    @property
    def forward_to(self) -> str:
        """Where its messages go by themselves."""
        return self.definition.forward_to

    @property
    def wants_keys(self) -> bool:
        """Whether messages must come with their id, session and partition key read out."""
        definition = self.definition
        return (
            definition.requires_session
            or definition.duplicate_window_ms > 0
            or definition.partitions > 1
        )

    def is_idle(self) -> bool:
        """Whether nobody has used it for long."""
        return self.links.is_idle(self.definition.auto_delete_ms)

    def submit(self, command: Command | RuleCommand) -> None:
        """Ask the owners of the partitions; the reply goes to the command's origin."""
        if self.definition.auto_delete_ms != FOREVER_MS:
            self.links.used()
        self.partitions.submit(command)

    def why_not_together(self, work: list[TransactionWork]) -> Refusal | None:
        """Why these operations cannot be one transaction here, as far as their keys tell."""
        return self.partitions.why_not_together(work)

    def link_attached(self, link: AttachedLink) -> None:
        """A link is attached."""
        self.links.add(link)

    def link_detached(self, link: AttachedLink) -> None:
        """A link is gone by itself."""
        self.links.remove(link)


@final
class Topic:
    """A topic: its description, its partitions, and the subscriptions that have lanes in them."""

    kind: Final = TOPIC
    lane: Final = MAIN
    requires_session: Final = False
    forward_to: Final = ""
    # Rules and subscriptions with sessions read them.
    wants_keys: Final = True

    def __init__(
        self,
        namespace: str,
        definition: TopicDefinition,
        keys: Sequence[AuthorizationRule],
        place: Placement,
        wording: Wording,
        clock: Clock,
    ) -> None:
        self.namespace = namespace
        self.definition = definition
        self.keys = tuple(keys)
        self.place = place
        self.updated_at = place.created_at
        self.links = AttachedLinks(clock)
        self.rules = TopicRules()
        self.subscriptions: dict[str, Subscription] = {}
        self._wording = wording
        self._last_lane = FIRST_SUBSCRIPTION_LANE - 2

    def set_partitions(self, partitions: Partitions) -> None:
        """Tell where the partitions are; they are built from the blueprint of this topic."""
        self.partitions = partitions

    def redefine(self, definition: TopicDefinition) -> None:
        """Take a new description; the partitions are told by the broker."""
        self.definition = definition

    def is_idle(self) -> bool:
        """Whether neither it nor any subscription was used for long."""
        auto_delete_ms = self.definition.auto_delete_ms
        attached_links = [self.links, *(each.links for each in self.subscriptions.values())]
        return all(each.is_idle(auto_delete_ms) for each in attached_links)

    @property
    def path(self) -> str:
        """The topic's name as its owner wrote it."""
        return self.definition.path

    @property
    def owner_path(self) -> str:
        """The path of the entity that owns the partitions."""
        return self.definition.path

    @property
    def status(self) -> str:
        """Whether it can be sent to."""
        return self.definition.status

    @property
    def message_size_max(self) -> int:
        """The largest message it takes."""
        return self.definition.message_size_max

    def submit(self, command: Command | RuleCommand) -> None:
        """Ask the owners of the partitions; the reply goes to the command's origin."""
        if self.definition.auto_delete_ms != FOREVER_MS:
            self.links.used()
        self.partitions.submit(command)

    def why_not_together(self, work: list[TransactionWork]) -> Refusal | None:
        """Why these operations cannot be one transaction here, as far as their keys tell."""
        return self.partitions.why_not_together(work)

    def link_attached(self, link: AttachedLink) -> None:
        """A link is attached."""
        self.links.add(link)

    def link_detached(self, link: AttachedLink) -> None:
        """A link is gone by itself."""
        self.links.remove(link)

    def blueprint(self) -> Blueprint:
        """The topic as its partitions see it now."""
        lanes = {
            subscription.lane: subscription_policy(subscription.definition)
            for subscription in self.subscriptions.values()
        }
        router = Publishing(self.rules, lanes, self._wording)
        blueprint = topic_blueprint(self.definition, router.route)
        blueprint.rules = self.rules
        blueprint.lanes.update(lanes)
        return blueprint

    def free_lane(self) -> int:
        """A lane that nobody has; one that was given back is used again as late as possible."""
        taken = {subscription.lane for subscription in self.subscriptions.values()}
        lane = self._last_lane
        while True:
            lane += 2
            if lane > _LANE_MAX:
                lane = FIRST_SUBSCRIPTION_LANE
            if lane not in taken:
                self._last_lane = lane
                return lane

    def knows_lane(self, lane: int) -> None:
        """A subscription was read from the catalog with its lane."""
        self._last_lane = max(self._last_lane, lane)


@final
class Subscription:
    """A subscription: its description, its rules, and its lane in the topic's partitions."""

    kind: Final = SUBSCRIPTION
    # Messages come through the topic, which has read them.
    wants_keys: Final = False

    def __init__(
        self,
        topic: Topic,
        definition: SubscriptionDefinition,
        rules: Sequence[Rule],
        lane: int,
        created_at: int,
        updated_at: int,
        ask_rules: Callable[[Subscription, RuleCommand], None],
        clock: Clock,
    ) -> None:
        self.topic = topic
        self.definition = definition
        self.rules = tuple(rules)
        self.lane = lane
        self.created_at = created_at
        self.updated_at = updated_at
        self.links = AttachedLinks(clock)
        self._ask_rules = ask_rules

    @property
    def path(self) -> str:
        """The name with the topic's, as their owners wrote them."""
        return self.definition.path

    @property
    def namespace(self) -> str:
        """The namespace of its topic."""
        return self.topic.namespace

    @property
    def owner_path(self) -> str:
        """The path of the entity that owns the partitions."""
        return self.topic.path

    @property
    def status(self) -> str:
        """Whether it can be received from."""
        return self.definition.status

    @property
    def message_size_max(self) -> int:
        """The largest message that the topic takes."""
        return self.topic.message_size_max

    @property
    def requires_session(self) -> bool:
        """Whether it can only be received from session by session."""
        return self.definition.requires_session

    @property
    def forward_to(self) -> str:
        """Where its messages go by themselves."""
        return self.definition.forward_to

    def is_idle(self) -> bool:
        """Whether nobody has used it for long."""
        return self.links.is_idle(self.definition.auto_delete_ms)

    def submit(self, command: Command | RuleCommand) -> None:
        """Ask the owner of the partition, or whoever keeps the rules."""
        self.links.used()
        if isinstance(command, (AddRule, RemoveRule, ListRules)):
            self._ask_rules(self, command)
        else:
            self.topic.submit(command)

    def why_not_together(self, work: list[TransactionWork]) -> Refusal | None:
        """Why these operations cannot be one transaction here, as far as their keys tell."""
        return self.topic.why_not_together(work)

    def link_attached(self, link: AttachedLink) -> None:
        """A link is attached."""
        self.links.add(link)

    def link_detached(self, link: AttachedLink) -> None:
        """A link is gone by itself."""
        self.links.remove(link)


def changed(entity: Entity) -> Refusal:
    """Why links must go when their entity's description changes; they may come back at once."""
    return Refusal(DETACHED, f"The description of '{entity.path}' was changed. Attach again.")


def gone(entity: Entity) -> Refusal:
    """Why links must go when their entity is deleted."""
    # JavaScript and Java know by these words that trying again is in vain.
    text = f"The messaging entity '{entity.path}' could not be found: it was deleted."
    return Refusal(ENTITY_NOT_FOUND, text)


Entity: TypeAlias = Queue | Topic | Subscription


def _dismiss(links: list[AttachedLink], refusal: Refusal) -> None:
    rest = links[DISMISSED_AT_ONCE:]
    if rest:
        asyncio.get_running_loop().call_soon(_dismiss, rest, refusal)
    for link in links[:DISMISSED_AT_ONCE]:
        link.dismiss(refusal)
