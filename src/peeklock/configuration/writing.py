"""Writes a namespace in the form that the readers read: reading it again gives the same."""

from collections.abc import Sequence
from typing import Any, Final

from peeklock.auth.rights import AuthorizationRule, rights_names
from peeklock.configuration.content import (
    ConfiguredNamespace,
    ConfiguredQueue,
    ConfiguredSubscription,
    ConfiguredTopic,
)
from peeklock.durations import LONGEST_DURATION_MS, format_duration
from peeklock.entity.definition import (
    FOREVER_MS,
    MEGABYTE,
    PARTITIONS_DEFAULT,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import FalseFilter, SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Rule
from peeklock.entity.rules.values import Value

_WINDOW_MS_DEFAULT: Final = 600_000
# What the emulator's files have. They say it always, because its defaults are not the service's;
# what only Peeklock knows is said where it differs from the default.
_ALWAYS: Final = frozenset(
    (
        "DeadLetteringOnMessageExpiration",
        "DefaultMessageTimeToLive",
        "DuplicateDetectionHistoryTimeWindow",
        "ForwardDeadLetteredMessagesTo",
        "ForwardTo",
        "LockDuration",
        "MaxDeliveryCount",
        "RequiresDuplicateDetection",
        "RequiresSession",
    )
)


class NotExpressible(Exception):
    """A value that the form of the file has no words for; the text says where it is."""


def queue_properties(definition: QueueDefinition) -> dict[str, Any]:
    """Return all properties of a queue under their names in the file."""
    return {
        "LockDuration": _duration(definition.lock_duration_ms),
        "MaxSizeInMegabytes": definition.size_max // MEGABYTE,
        **_duplicates(definition.duplicate_window_ms),
        "RequiresSession": definition.requires_session,
        "DefaultMessageTimeToLive": _duration(definition.time_to_live_ms),
        "DeadLetteringOnMessageExpiration": definition.dead_letter_on_expiration,
        "MaxDeliveryCount": definition.delivery_count_max,
        "EnableBatchedOperations": definition.batched_store_access,
        "Status": definition.status,
        "ForwardTo": definition.forward_to,
        "AutoDeleteOnIdle": _duration(definition.auto_delete_ms),
        **_partitioning(definition.partitions),
        "UserMetadata": definition.user_metadata,
        "ForwardDeadLetteredMessagesTo": definition.forward_dead_letters_to,
        "MaxMessageSizeInKilobytes": definition.message_size_max // 1024,
        "UnlockOnDisconnect": definition.unlock_on_disconnect,
    }


def topic_properties(definition: TopicDefinition) -> dict[str, Any]:
    """Return all properties of a topic under their names in the file."""
    return {
        "DefaultMessageTimeToLive": _duration(definition.time_to_live_ms),
        "MaxSizeInMegabytes": definition.size_max // MEGABYTE,
        **_duplicates(definition.duplicate_window_ms),
        "EnableBatchedOperations": definition.batched_store_access,
        "FilteringMessagesBeforePublishing": definition.filter_before_publishing,
        "Status": definition.status,
        "AutoDeleteOnIdle": _duration(definition.auto_delete_ms),
        **_partitioning(definition.partitions),
        "UserMetadata": definition.user_metadata,
        "MaxMessageSizeInKilobytes": definition.message_size_max // 1024,
    }


def subscription_properties(definition: SubscriptionDefinition) -> dict[str, Any]:
    """Return all properties of a subscription under their names in the file."""
    return {
        "LockDuration": _duration(definition.lock_duration_ms),
        "RequiresSession": definition.requires_session,
        "DefaultMessageTimeToLive": _duration(definition.time_to_live_ms),
        "DeadLetteringOnMessageExpiration": definition.dead_letter_on_expiration,
        "DeadLetteringOnFilterEvaluationExceptions": definition.dead_letter_on_filter_error,
        "MaxDeliveryCount": definition.delivery_count_max,
        "EnableBatchedOperations": definition.batched_store_access,
        "Status": definition.status,
        "ForwardTo": definition.forward_to,
        "UserMetadata": definition.user_metadata,
        "ForwardDeadLetteredMessagesTo": definition.forward_dead_letters_to,
        "AutoDeleteOnIdle": _duration(definition.auto_delete_ms),
        "UnlockOnDisconnect": definition.unlock_on_disconnect,
    }


def rule_properties(rule: Rule) -> dict[str, Any]:
    """Return a rule's filter and action as the file has them."""
    filter = rule.filter
    if isinstance(filter, SqlFilter):
        _refuse_parameters(rule, filter.parameters)
        written: dict[str, Any] = {
            "FilterType": "Sql",
            "SqlFilter": {"SqlExpression": filter.text},
        }
    elif isinstance(filter, CorrelationFilter):
        fields = _asked(rule, filter)
        written = {"FilterType": "Correlation", "CorrelationFilter": fields}
    else:
        assert isinstance(filter, (TrueFilter, FalseFilter)), f"{filter!r} is a new kind of filter"
        written = {"FilterType": "True" if isinstance(filter, TrueFilter) else "False"}
    if rule.action is not None:
        _refuse_parameters(rule, rule.action.parameters)
        written["Action"] = {"SqlExpression": rule.action.text}
    return written


def authorization_entries(rules: Sequence[AuthorizationRule]) -> list[dict[str, Any]]:
    """Return the rules of an entity with their keys."""
    return [
        {
            "Name": rule.name,
            "PrimaryKey": rule.primary_key,
            **({"SecondaryKey": rule.secondary_key} if rule.secondary_key else {}),
            "Rights": rights_names(rule.rights),
        }
        for rule in rules
    ]


def document_of(namespace: ConfiguredNamespace) -> dict[str, Any]:
    """Return a whole file, without the keys of the namespace: those are not an entity's."""
    entry = {
        "Name": namespace.name,
        "Queues": [_queue_entry(queue) for queue in namespace.queues],
        "Topics": [_topic_entry(topic) for topic in namespace.topics],
    }
    return {"UserConfig": {"Namespaces": [entry], "Logging": {"Type": "Console"}}}


def chosen(properties: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    """Return those properties that a file has to say."""
    return {
        key: value
        for key, value in properties.items()
        if key in _ALWAYS or value != default.get(key)
    }


def _queue_entry(queue: ConfiguredQueue) -> dict[str, Any]:
    definition = queue.definition
    default = queue_properties(QueueDefinition(definition.path))
    return {
        "Name": definition.path,
        **_authorization(queue.rules),
        "Properties": chosen(queue_properties(definition), default),
    }


def _topic_entry(topic: ConfiguredTopic) -> dict[str, Any]:
    definition = topic.definition
    default = topic_properties(TopicDefinition(definition.path))
    return {
        "Name": definition.path,
        **_authorization(topic.rules),
        "Properties": chosen(topic_properties(definition), default),
        "Subscriptions": [_subscription_entry(found) for found in topic.subscriptions],
    }


def _subscription_entry(subscription: ConfiguredSubscription) -> dict[str, Any]:
    definition = subscription.definition
    default = subscription_properties(SubscriptionDefinition(definition.topic, definition.name))
    return {
        "Name": definition.name,
        "Properties": chosen(subscription_properties(definition), default),
        "Rules": [
            {"Name": rule.name, "Properties": rule_properties(rule)} for rule in subscription.rules
        ],
    }


def _authorization(rules: Sequence[AuthorizationRule]) -> dict[str, Any]:
    return {"AuthorizationRules": authorization_entries(rules)} if rules else {}


def _duration(duration_ms: int) -> str:
    return format_duration(LONGEST_DURATION_MS if duration_ms == FOREVER_MS else duration_ms)


def _duplicates(window_ms: int) -> dict[str, Any]:
    return {
        "RequiresDuplicateDetection": window_ms != 0,
        "DuplicateDetectionHistoryTimeWindow": _duration(window_ms or _WINDOW_MS_DEFAULT),
    }


def _partitioning(partitions: int) -> dict[str, Any]:
    if partitions == 1:
        return {"EnablePartitioning": False}
    count = {} if partitions == PARTITIONS_DEFAULT else {"PartitionCount": partitions}
    return {"EnablePartitioning": True, **count}


def correlation_fields(filter: CorrelationFilter) -> dict[str, str]:
    """Return the properties of the system that a filter asks for, by their names in the file."""
    texts = {
        "CorrelationId": filter.correlation_id,
        "MessageId": filter.message_id,
        "To": filter.to,
        "ReplyTo": filter.reply_to,
        "Label": filter.label,
        "SessionId": filter.session_id,
        "ReplyToSessionId": filter.reply_to_session_id,
        "ContentType": filter.content_type,
    }
    return {name: text for name, text in texts.items() if text is not None}


def _asked(rule: Rule, filter: CorrelationFilter) -> dict[str, Any]:
    for name, value in filter.properties.items():
        _refuse_value(rule, name, value)
    fields: dict[str, Any] = dict(correlation_fields(filter))
    return fields | ({"Properties": dict(filter.properties)} if filter.properties else {})


def _refuse_value(rule: Rule, name: str, value: Value) -> None:
    if not isinstance(value, (str, int, float)):
        raise NotExpressible(
            f"the rule '{rule.name}' asks for a value of '{name}' that is no text, number or "
            "boolean, which the file cannot say"
        )


def _refuse_parameters(rule: Rule, parameters: dict[str, Value]) -> None:
    if parameters:
        names = ", ".join(parameters)
        raise NotExpressible(
            f"the rule '{rule.name}' has parameters ({names}), which the file cannot say"
        )
