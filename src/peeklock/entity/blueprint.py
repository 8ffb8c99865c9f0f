"""What a partition is told about its entity: how it takes messages in and how its lanes hand them
out. Built from the descriptions; a change of these brings a new blueprint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.commands import MAIN
from peeklock.entity.definition import (
    ACTIVE,
    FOREVER_MS,
    RECEIVE_DISABLED,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.message import Message
from peeklock.entity.rules.topic import TopicRules

FIRST_SUBSCRIPTION_LANE: Final = 4
"""Lanes below are the entity's own: main, dead letters, transfers, dead transfers."""


@final
@dataclass(slots=True, init=False)
class LanePolicy:
    """How one lane hands out its messages."""

    path: Final[str]
    lock_duration_ms: Final[int]
    delivery_count_max: Final[int]
    time_to_live_ms: Final[int]
    dead_letter_on_expiration: Final[bool]
    dead_letter_on_filter_error: Final[bool]
    requires_session: Final[bool]
    unlock_on_disconnect: Final[bool]
    status: Final[str]
    forward_to: Final[str]
    forward_dead_letters_to: Final[str]

    def __init__(
        self,
        path: str,
        *,
        lock_duration_ms: int,
        delivery_count_max: int,
        time_to_live_ms: int,
        dead_letter_on_expiration: bool,
        dead_letter_on_filter_error: bool,
        requires_session: bool,
        unlock_on_disconnect: bool,
        status: str,
        forward_to: str,
        forward_dead_letters_to: str,
    ) -> None:
        self.path = path
        self.lock_duration_ms = lock_duration_ms
        self.delivery_count_max = delivery_count_max
        self.time_to_live_ms = time_to_live_ms
        self.dead_letter_on_expiration = dead_letter_on_expiration
        self.dead_letter_on_filter_error = dead_letter_on_filter_error
        self.requires_session = requires_session
        self.unlock_on_disconnect = unlock_on_disconnect
        self.status = status
        self.forward_to = forward_to
        self.forward_dead_letters_to = forward_dead_letters_to


@final
class Copy:
    """One copy of a published message: for which lane, and what an action made of it.

    `message` is None where the copy shares the published body. `failure` is set where a rule could
    not be evaluated and the subscription wants such messages dead-lettered.
    """

    __slots__ = ("failure", "lane", "message")

    def __init__(self, lane: int, message: Message | None = None, failure: str = "") -> None:
        self.lane: int = lane
        self.message: Message | None = message
        self.failure: str = failure


Router: TypeAlias = Callable[[Message, int], list[Copy]]
"""Says which lanes take a published message, in the order of the lanes; given the instant too."""


@final
class Blueprint:
    """An entity as one of its partitions sees it."""

    __slots__ = (
        "definition",
        "duplicate_window_ms",
        "filter_before_publishing",
        "is_partitioned",
        "is_plain",
        "lanes",
        "message_size_max",
        "path",
        "requires_session",
        "router",
        "rules",
        "size_max",
        "status",
        "time_to_live_ms",
    )

    def __init__(self, definition: QueueDefinition | TopicDefinition) -> None:
        self.definition: QueueDefinition | TopicDefinition = definition
        self.path: str = definition.path
        self.is_partitioned: bool = definition.partitions > 1
        self.status: str = ""
        self.message_size_max: int = 0
        self.size_max: int = 0
        self.time_to_live_ms: int = FOREVER_MS
        self.requires_session: bool = False
        self.duplicate_window_ms: int = 0
        self.filter_before_publishing: bool = False
        # Whether a message of an allowed size can be taken without a further look at the entity.
        self.is_plain: bool = False
        self.router: Router | None = None  # a topic has one, a queue has not
        self.rules: TopicRules | None = None  # what the router asks, where it asks rules
        self.lanes: dict[int, LanePolicy] = {}

    @property
    def has_sessions(self) -> bool:
        """Whether the queue, or one of the topic's subscriptions, requires sessions."""
        return any(policy.requires_session for policy in self.lanes.values())

    def policy(self, lane: int) -> LanePolicy:
        """Return the policy of a lane; a dead-letter lane has that of the lane it belongs to."""
        return self.lanes[lane & ~1]


def queue_blueprint(definition: QueueDefinition) -> Blueprint:
    """Return the one partition of a queue, or one of several."""
    blueprint = Blueprint(definition)
    blueprint.status = definition.status
    blueprint.message_size_max = definition.message_size_max
    # Each partition may be as large: a partitioned entity holds so many times as much, as in the
    # service.
    blueprint.size_max = definition.size_max
    blueprint.time_to_live_ms = definition.time_to_live_ms
    blueprint.requires_session = definition.requires_session
    blueprint.duplicate_window_ms = definition.duplicate_window_ms
    blueprint.lanes[MAIN] = LanePolicy(
        definition.path,
        lock_duration_ms=definition.lock_duration_ms,
        delivery_count_max=definition.delivery_count_max,
        time_to_live_ms=FOREVER_MS,  # the entity's own has been applied already
        dead_letter_on_expiration=definition.dead_letter_on_expiration,
        dead_letter_on_filter_error=False,
        requires_session=definition.requires_session,
        unlock_on_disconnect=definition.unlock_on_disconnect,
        status=definition.status,
        forward_to=definition.forward_to,
        forward_dead_letters_to=definition.forward_dead_letters_to,
    )
    blueprint.is_plain = (
        definition.status in (ACTIVE, RECEIVE_DISABLED)
        and not definition.requires_session
        and definition.duplicate_window_ms == 0
        and definition.size_max == 0
        and definition.time_to_live_ms == FOREVER_MS
    )
    return blueprint


def topic_blueprint(definition: TopicDefinition, router: Router) -> Blueprint:
    """Return a topic's partition; its subscriptions are added lane by lane."""
    blueprint = Blueprint(definition)
    blueprint.status = definition.status
    blueprint.message_size_max = definition.message_size_max
    blueprint.size_max = definition.size_max
    blueprint.time_to_live_ms = definition.time_to_live_ms
    blueprint.duplicate_window_ms = definition.duplicate_window_ms
    blueprint.filter_before_publishing = definition.filter_before_publishing
    blueprint.router = router
    # A topic's own lane keeps what is scheduled and what is on its way elsewhere.
    blueprint.lanes[MAIN] = LanePolicy(
        definition.path,
        lock_duration_ms=60_000,
        delivery_count_max=10,
        time_to_live_ms=FOREVER_MS,
        dead_letter_on_expiration=False,
        dead_letter_on_filter_error=False,
        requires_session=False,
        unlock_on_disconnect=False,
        status=definition.status,
        forward_to="",
        forward_dead_letters_to="",
    )
    return blueprint


def subscription_policy(definition: SubscriptionDefinition) -> LanePolicy:
    """Return how a subscription's lane hands out its messages."""
    return LanePolicy(
        definition.path,
        lock_duration_ms=definition.lock_duration_ms,
        delivery_count_max=definition.delivery_count_max,
        time_to_live_ms=definition.time_to_live_ms,
        dead_letter_on_expiration=definition.dead_letter_on_expiration,
        dead_letter_on_filter_error=definition.dead_letter_on_filter_error,
        requires_session=definition.requires_session,
        unlock_on_disconnect=definition.unlock_on_disconnect,
        status=definition.status,
        forward_to=definition.forward_to,
        forward_dead_letters_to=definition.forward_dead_letters_to,
    )
