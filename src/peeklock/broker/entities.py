"""The entities of a namespace as links see them: queues, topics, subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from peeklock.auth.rights import AuthorizationRule
from peeklock.broker.descriptions import Placement
from peeklock.broker.partitions import Partitions
from peeklock.entity.blueprint import (
    FIRST_SUBSCRIPTION_LANE,
    Blueprint,
    subscription_policy,
    topic_blueprint,
)
from peeklock.entity.commands import MAIN, Command
from peeklock.entity.definition import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.publishing import Publishing
from peeklock.entity.refusals import Refusal
from peeklock.entity.rule_commands import AddRule, ListRules, RemoveRule, RuleCommand
from peeklock.entity.rules.rule import Rule
from peeklock.entity.rules.topic import TopicRules
from peeklock.entity.wording import Wording

# A lock token has 16 bits for the lane, and each subscription takes two lanes.
_LANE_MAX: Final = 0xFFFE


class Guest(Protocol):
    """A link, as an entity knows it: only to tell it that it must go."""

    def dismiss(self, refusal: Refusal) -> None:
        """The entity was deleted, disabled or changed so that the link cannot stay."""
        ...


@final
class Guests:
    """The links of one entity, and when it was last used."""

    __slots__ = ("_guests", "used_at")

    def __init__(self, now: int) -> None:
        self._guests: dict[Guest, None] = {}
        self.used_at = now

    def __len__(self) -> int:
        return len(self._guests)

    def add(self, guest: Guest) -> None:
        """A link is attached."""
        self._guests[guest] = None

    def remove(self, guest: Guest) -> None:
        """A link is gone by itself."""
        self._guests.pop(guest, None)

    def dismiss(self, refusal: Refusal) -> None:
        """Tell all links that they must go."""
        guests = list(self._guests)
        self._guests.clear()
        for guest in guests:
            guest.dismiss(refusal)


@final
class Queue:
    """A queue: its description, and its partitions."""

    __slots__ = ("definition", "guests", "keys", "namespace", "partitions", "place", "submit")

    kind: Final = QUEUE
    lane: Final = MAIN

    def __init__(
        self,
        namespace: str,
        definition: QueueDefinition,
        keys: Sequence[AuthorizationRule],
        place: Placement,
        partitions: Partitions,
        now: int,
    ) -> None:
        self.namespace = namespace
        self.definition = definition
        self.keys = tuple(keys)
        self.place = place
        self.partitions = partitions
        self.guests = Guests(now)
        # Asked for every run of messages: straight to the owner of the partition.
        self.submit: Callable[[Command | RuleCommand], None] = partitions.submit

    @property
    def path(self) -> str:
        """The queue's name as its owner wrote it."""
        return self.definition.path

    @property
    def home(self) -> str:
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

    def welcome(self, guest: Guest) -> None:
        """A link is attached."""
        self.guests.add(guest)

    def farewell(self, guest: Guest) -> None:
        """A link is gone by itself."""
        self.guests.remove(guest)


@final
class Topic:
    """A topic: its description, its partitions, and the subscriptions that have lanes in them."""

    __slots__ = (
        "_last_lane",
        "_wording",
        "definition",
        "guests",
        "keys",
        "namespace",
        "partitions",
        "place",
        "rules",
        "submit",
        "subscriptions",
    )

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
        now: int,
    ) -> None:
        self.namespace = namespace
        self.definition = definition
        self.keys = tuple(keys)
        self.place = place
        self.guests = Guests(now)
        self.rules = TopicRules()
        self.subscriptions: dict[str, Subscription] = {}
        self._wording = wording
        self._last_lane = FIRST_SUBSCRIPTION_LANE - 2

    def housed(self, partitions: Partitions) -> None:
        """Tell where the partitions are; they are built from the blueprint of this topic."""
        self.partitions = partitions
        self.submit: Callable[[Command | RuleCommand], None] = partitions.submit

    @property
    def path(self) -> str:
        """The topic's name as its owner wrote it."""
        return self.definition.path

    @property
    def home(self) -> str:
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

    def welcome(self, guest: Guest) -> None:
        """A link is attached."""
        self.guests.add(guest)

    def farewell(self, guest: Guest) -> None:
        """A link is gone by itself."""
        self.guests.remove(guest)

    def blueprint(self) -> Blueprint:
        """The topic as its partitions see it now."""
        lanes = {
            subscription.lane: subscription_policy(subscription.definition)
            for subscription in self.subscriptions.values()
        }
        router = Publishing(self.rules, lanes, self._wording)
        blueprint = topic_blueprint(self.definition, router.route)
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

    __slots__ = ("_ask_rules", "created_at", "definition", "guests", "lane", "rules", "topic")

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
        ask_rules: Callable[[Subscription, RuleCommand], None],
        now: int,
    ) -> None:
        self.topic = topic
        self.definition = definition
        self.rules = tuple(rules)
        self.lane = lane
        self.created_at = created_at
        self.guests = Guests(now)
        self._ask_rules = ask_rules

    @property
    def path(self) -> str:
        """The name with the topic's, as their owners wrote them."""
        return self.definition.path

    @property
    def home(self) -> str:
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

    def submit(self, command: Command | RuleCommand) -> None:
        """Ask the owner of the partition, or whoever keeps the rules."""
        if isinstance(command, (AddRule, RemoveRule, ListRules)):
            self._ask_rules(self, command)
        else:
            self.topic.submit(command)

    def welcome(self, guest: Guest) -> None:
        """A link is attached."""
        self.guests.add(guest)

    def farewell(self, guest: Guest) -> None:
        """A link is gone by itself."""
        self.guests.remove(guest)
