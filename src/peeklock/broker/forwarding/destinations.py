"""Where entities forward to: whether it is there, and whether messages can go there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from peeklock.broker.changes import EntityError
from peeklock.broker.entities import Entity, Queue, Subscription
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition
from peeklock.entity.refusals import INVALID_ARGUMENT, NOT_ALLOWED, Refusal

Forwarding: TypeAlias = QueueDefinition | SubscriptionDefinition
Find: TypeAlias = Callable[[str], Entity | None]


class DestinationMissing(EntityError):
    """A wish to forward to something that is not there."""


def missing_destination(definition: Forwarding, find: Find) -> str:
    """A destination of this description that is not there; the empty text where all are."""
    return next(iter(missing_destinations(definition, find)), "")


def missing_destinations(definition: Forwarding, find: Find) -> list[str]:
    """All destinations of this description that are not there."""
    found: list[str] = []
    for path in _destinations(definition):
        target = find(path)
        if target is None or isinstance(target, Subscription):
            found.append(path)
    return found


def check_destinations(definition: Forwarding, find: Find) -> None:
    """Decline destinations that are not there, and those from which messages come back. One that
    requires sessions is fine: what has none becomes a dead letter on the way, as in the service."""
    missing = missing_destination(definition, find)
    if missing:
        text = f"The auto forwarding destination entity '{missing}' does not exist."
        raise DestinationMissing(Refusal(INVALID_ARGUMENT, text))
    if _comes_back(definition, find):
        text = f"Auto forwarding from '{definition.path}' to '{definition.forward_to}' is a cycle."
        raise EntityError(Refusal(NOT_ALLOWED, text))


def _destinations(definition: Forwarding) -> list[str]:
    """All but the entity itself: it may forward to itself, the hop limit ends that."""
    return [
        path
        for path in (definition.forward_to, definition.forward_dead_letters_to)
        if path and path.lower() != definition.path.lower()
    ]


def _comes_back(definition: Forwarding, find: Find) -> bool:
    """Whether queues forward to each other in a circle; through topics the hop limit ends it."""
    start = definition.path.lower()
    path = definition.forward_to.lower()
    if path == start:
        return False
    seen: set[str] = set()
    while path and path not in seen:
        if path == start:
            return True
        seen.add(path)
        target = find(path)
        path = target.forward_to.lower() if isinstance(target, Queue) else ""
    return False
