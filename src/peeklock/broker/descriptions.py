"""How the catalog writes entities down: what their owners chose, who may use them, and where they
rest, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, final

from peeklock.auth.rights import NO_TIMES, AuthorizationRule, Rights
from peeklock.broker.rule_descriptions import read_rules, write_rules
from peeklock.entity.definition import QueueDefinition, SubscriptionDefinition, TopicDefinition
from peeklock.entity.rules.rule import Rule

Definition: TypeAlias = QueueDefinition | TopicDefinition


@final
@dataclass(frozen=True, slots=True)
class Placement:
    """Where the partitions of an entity rest; chosen when it is made and never changed.

    The incarnation tells an entity from others that had its name before.
    """

    stores: tuple[str, ...]
    incarnation: int = 0
    created_at: int = 0

    def storage_path(self, path: str) -> str:
        """The name under which the stores know the entity."""
        return f"{path}#{self.incarnation}" if self.incarnation else path


# Entities that were made when there was one store and nothing was ever deleted.
FIRST_PLACEMENT = Placement(("store",))


def write_entity(
    definition: Definition,
    keys: Sequence[AuthorizationRule],
    place: Placement,
    updated_at: int = 0,
) -> str:
    """Return the text that the catalog keeps of a queue, or of a topic: its subscriptions have
    texts of their own."""
    return _write(
        {
            **_properties(definition),
            **_place(place),
            "updated_at": updated_at or place.created_at,
            "rules": _write_keys(keys),
        }
    )


def read_queue(text: str) -> tuple[QueueDefinition, list[AuthorizationRule], Placement, int]:
    """What was written, and when it was last changed; properties that were not known then take
    their defaults."""
    document = json.loads(text)
    keys, place, updated_at = _take_entity(document)
    return QueueDefinition(document.pop("path"), **document), keys, place, updated_at


def read_topic(text: str) -> tuple[TopicDefinition, list[AuthorizationRule], Placement, int]:
    """What was written, and when it was last changed; properties that were not known then take
    their defaults."""
    document = json.loads(text)
    keys, place, updated_at = _take_entity(document)
    return TopicDefinition(document.pop("path"), **document), keys, place, updated_at


def write_subscription(
    definition: SubscriptionDefinition,
    rules: Sequence[Rule],
    lane: int,
    created_at: int,
    updated_at: int = 0,
) -> str:
    """The text that the catalog keeps of a subscription, its rules among it."""
    return _write(
        {
            **_properties(definition),
            "lane": lane,
            "created_at": created_at,
            "updated_at": updated_at or created_at,
            "rules": write_rules(rules),
        }
    )


def read_subscription(text: str) -> tuple[SubscriptionDefinition, list[Rule], int, int, int]:
    """What was written: the description, the rules, the lane, and when it was made and changed."""
    document = json.loads(text)
    rules = read_rules(document.pop("rules"))
    lane = document.pop("lane")
    created_at = document.pop("created_at")
    updated_at = document.pop("updated_at", created_at)
    document["remarks"] = _remarks(document)
    definition = SubscriptionDefinition(document.pop("topic"), document.pop("name"), **document)
    return definition, rules, lane, created_at, updated_at


def _take_entity(document: dict[str, Any]) -> tuple[list[AuthorizationRule], Placement, int]:
    """Take out what is no property; those that JSON knows in another form get their own back."""
    keys = _read_keys(document.pop("rules", []))
    place = _take_place(document)
    updated_at = document.pop("updated_at", place.created_at)
    document["remarks"] = _remarks(document)
    return keys, place, updated_at


def _remarks(document: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in document.pop("remarks", []))


def _write(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _properties(definition: Definition | SubscriptionDefinition) -> dict[str, Any]:
    return {field.name: getattr(definition, field.name) for field in fields(definition)}


def _place(place: Placement) -> dict[str, Any]:
    return {
        "stores": list(place.stores),
        "incarnation": place.incarnation,
        "created_at": place.created_at,
    }


def _take_place(document: dict[str, Any]) -> Placement:
    stores = document.pop("stores", list(FIRST_PLACEMENT.stores))
    incarnation = document.pop("incarnation", 0)
    return Placement(tuple(stores), incarnation, document.pop("created_at", 0))


def _write_keys(keys: Sequence[AuthorizationRule]) -> list[dict[str, Any]]:
    return [
        {
            "name": key.name,
            "primary_key": key.primary_key,
            "secondary_key": key.secondary_key,
            "rights": int(key.rights),
            **({"times": list(key.times)} if any(key.times) else {}),
        }
        for key in keys
    ]


def _read_keys(written: Sequence[dict[str, Any]]) -> list[AuthorizationRule]:
    return [
        AuthorizationRule(
            key["name"],
            key["primary_key"],
            key["secondary_key"],
            Rights(key["rights"]),
            tuple(key.get("times", NO_TIMES)),
        )
        for key in written
    ]
