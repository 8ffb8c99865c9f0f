"""How the catalog writes a queue down: its description and the rules that hold on it, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from peeklock.auth.rights import AuthorizationRule, Rights
from peeklock.entity.definition import QueueDefinition


def write_queue(definition: QueueDefinition, rules: Sequence[AuthorizationRule]) -> str:
    """The text that the catalog keeps."""
    document: dict[str, Any] = {
        "path": definition.path,
        "lock_duration_ms": definition.lock_duration_ms,
        "delivery_count_max": definition.delivery_count_max,
        "time_to_live_ms": definition.time_to_live_ms,
        "dead_letter_on_expiration": definition.dead_letter_on_expiration,
        "message_size_max": definition.message_size_max,
        "size_max": definition.size_max,
        "batched_store_access": definition.batched_store_access,
        "requires_session": definition.requires_session,
        "duplicate_window_ms": definition.duplicate_window_ms,
        "forward_to": definition.forward_to,
        "forward_dead_letters_to": definition.forward_dead_letters_to,
        "auto_delete_ms": definition.auto_delete_ms,
        "partitions": definition.partitions,
        "unlock_on_disconnect": definition.unlock_on_disconnect,
        "status": definition.status,
        "user_metadata": definition.user_metadata,
    }
    document["rules"] = [
        {
            "name": rule.name,
            "primary_key": rule.primary_key,
            "secondary_key": rule.secondary_key,
            "rights": int(rule.rights),
        }
        for rule in rules
    ]
    return json.dumps(document, separators=(",", ":"))


def read_queue(text: str) -> tuple[QueueDefinition, list[AuthorizationRule]]:
    """What was written; properties that were not known then take their defaults."""
    document = json.loads(text)
    rules = [
        AuthorizationRule(
            rule["name"], rule["primary_key"], rule["secondary_key"], Rights(rule["rights"])
        )
        for rule in document.pop("rules", [])
    ]
    return QueueDefinition(document.pop("path"), **document), rules
