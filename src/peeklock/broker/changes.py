"""What may be changed of an entity that exists, and what may not (R-P2)."""

from __future__ import annotations

from typing import Final

from peeklock.entity.definition import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    Problems,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.refusals import (
    ENTITY_EXISTS,
    ENTITY_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    Refusal,
)

# What whoever puts an entity expects: that there is none, that there is one, or either.
NEW: Final = "new"
KNOWN: Final = "known"
EITHER: Final = "either"


class EntityError(Exception):
    """A wish about an entity that was declined; the refusal says why.

    Clients know which entity they asked for; who reads about a whole file is told it, too.
    """

    def __init__(self, refusal: Refusal, about: str = "") -> None:
        text = refusal.text
        super().__init__(f"{about}: {text.rstrip(' .')}." if about else text)
        self.refusal = refusal


def check_expected(expect: str, path: str, *, is_known: bool) -> None:
    """Decline to make what is there, and to change what is not."""
    if expect == NEW and is_known:
        text = f"The messaging entity '{path}' already exists."
        raise EntityError(Refusal(ENTITY_EXISTS, text))
    if expect == KNOWN and not is_known:
        text = f"The messaging entity '{path}' could not be found."
        raise EntityError(Refusal(ENTITY_NOT_FOUND, text))


def taken(path: str, kind: str) -> EntityError:
    """Say that something else has a name."""
    text = f"The name '{path}' is taken by a {kind} (peeklock {kind} delete {path})."
    return EntityError(Refusal(ENTITY_EXISTS, text))


def check_problems(problems: Problems) -> None:
    """Decline a description that cannot be."""
    if problems:
        text = "; ".join(f"{name}: {problem}" for name, problem in problems)
        raise EntityError(Refusal(INVALID_ARGUMENT, text))


def check_queue_change(before: QueueDefinition, after: QueueDefinition) -> None:
    """Decline a change of what is chosen for good when a queue is made."""
    if before.requires_session != after.requires_session:
        raise _fixed("RequiresSession", QUEUE, before.path)
    _check_common(before, after, QUEUE)


def check_topic_change(before: TopicDefinition, after: TopicDefinition) -> None:
    """Decline a change of what is chosen for good when a topic is made."""
    _check_common(before, after, TOPIC)


def check_subscription_change(
    before: SubscriptionDefinition, after: SubscriptionDefinition
) -> None:
    """Decline a change of what is chosen for good when a subscription is made."""
    if before.requires_session != after.requires_session:
        raise _fixed("RequiresSession", SUBSCRIPTION, before.path)


def _check_common(
    before: QueueDefinition | TopicDefinition,
    after: QueueDefinition | TopicDefinition,
    kind: str,
) -> None:
    if before.partitions != after.partitions:
        text = f"Partitioning cannot be changed for {kind.capitalize()}. ."
        raise EntityError(Refusal(NOT_ALLOWED, text), f"{kind} '{before.path}'")
    # The window may be another, but there is one or there is none.
    if (before.duplicate_window_ms > 0) != (after.duplicate_window_ms > 0):
        raise _fixed("RequiresDuplicateDetection", kind, before.path)


def _fixed(name: str, kind: str, path: str) -> EntityError:
    # The service's words, to the point behind the point.
    text = (
        f"The value for the {name} property of an existing {kind.capitalize()} cannot be changed. ."
    )
    return EntityError(Refusal(NOT_ALLOWED, text), f"{kind} '{path}'")
