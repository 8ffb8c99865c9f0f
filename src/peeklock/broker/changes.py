"""What may be changed of an entity that exists, and what may not (R-P2)."""

from __future__ import annotations

from peeklock.entity.definition import (
    Problems,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.refusals import INVALID_ARGUMENT, NOT_ALLOWED, Refusal


class EntityError(Exception):
    """A wish about an entity that was declined; the refusal says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def check_problems(problems: Problems) -> None:
    """Decline a description that cannot be."""
    if problems:
        text = "; ".join(f"{name}: {problem}" for name, problem in problems)
        raise EntityError(Refusal(INVALID_ARGUMENT, text))


def check_queue_change(before: QueueDefinition, after: QueueDefinition) -> None:
    """Decline a change of what is chosen for good when a queue is made."""
    if before.requires_session != after.requires_session:
        raise _fixed("RequiresSession", before.path)
    _check_common(before, after)


def check_topic_change(before: TopicDefinition, after: TopicDefinition) -> None:
    """Decline a change of what is chosen for good when a topic is made."""
    _check_common(before, after)


def check_subscription_change(
    before: SubscriptionDefinition, after: SubscriptionDefinition
) -> None:
    """Decline a change of what is chosen for good when a subscription is made."""
    if before.requires_session != after.requires_session:
        raise _fixed("RequiresSession", before.path)


def _check_common(
    before: QueueDefinition | TopicDefinition, after: QueueDefinition | TopicDefinition
) -> None:
    if before.partitions != after.partitions:
        raise _fixed("EnablePartitioning", before.path)
    # The window may be another, but there is one or there is none.
    if (before.duplicate_window_ms > 0) != (after.duplicate_window_ms > 0):
        raise _fixed("RequiresDuplicateDetection", before.path)


def _fixed(name: str, path: str) -> EntityError:
    text = f"{name} of '{path}' was chosen when it was made and cannot be changed."
    return EntityError(Refusal(NOT_ALLOWED, text))
