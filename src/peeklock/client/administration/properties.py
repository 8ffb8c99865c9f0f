"""Queues, topics and subscriptions as administration describes them, named as in azure-servicebus.

`...Properties` are what an owner chose: change an attribute and hand the object to `update_...`.
`...RuntimeProperties` are what only the broker can know. A duration is a `timedelta`; where one is
given, ISO-8601 text such as `"PT1M"` is taken too. None means: not said, so the broker decides.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias, TypedDict, final

Duration: TypeAlias = timedelta | str
# The service's "never": .NET's longest TimeSpan.
FOREVER: Final = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_581)


@final
class EntityStatus(StrEnum):
    """What an entity lets its users do."""

    ACTIVE = "Active"
    CREATING = "Creating"
    DELETING = "Deleting"
    DISABLED = "Disabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    SEND_DISABLED = "SendDisabled"
    UNKNOWN = "Unknown"


@final
class EntityAvailabilityStatus(StrEnum):
    """Whether an entity can be used now."""

    AVAILABLE = "Available"
    LIMITED = "Limited"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    UNKNOWN = "Unknown"


@final
class AccessRights(StrEnum):
    """What a key allows; who manages may send and listen."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


@final
@dataclass(slots=True)
class AuthorizationRule:
    """A named pair of keys and what they allow; a key that is empty is made by the broker."""

    key_name: str
    rights: list[AccessRights | str]
    primary_key: str = field(default="", repr=False)
    secondary_key: str = field(default="", repr=False)
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None
    # The two times as they were read: they are written back to the last digit.
    written_times: tuple[str, ...] = field(default=("", ""), repr=False, compare=False)


@final
@dataclass(slots=True)
class NamespaceProperties:
    """What is known of a namespace."""

    name: str
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None
    messaging_sku: str = ""
    namespace_type: str = ""
    messaging_units: int | None = None
    alias: str | None = None


@final
@dataclass(slots=True)
class QueueProperties:
    """A queue as its owner chose it."""

    name: str
    authorization_rules: list[AuthorizationRule] | None = None
    auto_delete_on_idle: Duration | None = None
    dead_lettering_on_message_expiration: bool | None = None
    default_message_time_to_live: Duration | None = None
    duplicate_detection_history_time_window: Duration | None = None
    enable_batched_operations: bool | None = None
    enable_express: bool | None = None
    enable_partitioning: bool | None = None
    lock_duration: Duration | None = None
    max_delivery_count: int | None = None
    max_size_in_megabytes: int | None = None
    max_message_size_in_kilobytes: int | None = None
    requires_duplicate_detection: bool | None = None
    requires_session: bool | None = None
    status: EntityStatus | str | None = None
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    user_metadata: str | None = None
    availability_status: EntityAvailabilityStatus | str | None = None
    # What only this broker has.
    partition_count: int | None = None
    unlock_on_disconnect: bool | None = None


@final
@dataclass(slots=True)
class TopicProperties:
    """A topic as its owner chose it."""

    name: str
    authorization_rules: list[AuthorizationRule] | None = None
    auto_delete_on_idle: Duration | None = None
    default_message_time_to_live: Duration | None = None
    duplicate_detection_history_time_window: Duration | None = None
    enable_batched_operations: bool | None = None
    enable_express: bool | None = None
    enable_partitioning: bool | None = None
    filtering_messages_before_publishing: bool | None = None
    max_size_in_megabytes: int | None = None
    max_message_size_in_kilobytes: int | None = None
    requires_duplicate_detection: bool | None = None
    status: EntityStatus | str | None = None
    support_ordering: bool | None = None
    user_metadata: str | None = None
    availability_status: EntityAvailabilityStatus | str | None = None
    size_in_bytes: int | None = None
    # What only this broker has.
    partition_count: int | None = None


@final
@dataclass(slots=True)
class SubscriptionProperties:
    """A subscription as its owner chose it."""

    name: str
    auto_delete_on_idle: Duration | None = None
    dead_lettering_on_filter_evaluation_exceptions: bool | None = None
    dead_lettering_on_message_expiration: bool | None = None
    default_message_time_to_live: Duration | None = None
    enable_batched_operations: bool | None = None
    lock_duration: Duration | None = None
    max_delivery_count: int | None = None
    requires_session: bool | None = None
    status: EntityStatus | str | None = None
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    user_metadata: str | None = None
    availability_status: EntityAvailabilityStatus | str | None = None
    # What only this broker has.
    unlock_on_disconnect: bool | None = None


@final
@dataclass(slots=True)
class QueueRuntimeProperties:
    """What the broker knows of a queue now."""

    name: str
    accessed_at_utc: datetime | None = None
    created_at_utc: datetime | None = None
    updated_at_utc: datetime | None = None
    size_in_bytes: int = 0
    total_message_count: int = 0
    active_message_count: int = 0
    dead_letter_message_count: int = 0
    scheduled_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0


@final
@dataclass(slots=True)
class TopicRuntimeProperties:
    """What the broker knows of a topic now."""

    name: str
    accessed_at_utc: datetime | None = None
    created_at_utc: datetime | None = None
    updated_at_utc: datetime | None = None
    size_in_bytes: int = 0
    subscription_count: int = 0
    scheduled_message_count: int = 0


@final
@dataclass(slots=True)
class SubscriptionRuntimeProperties:
    """What the broker knows of a subscription now."""

    name: str
    accessed_at_utc: datetime | None = None
    created_at_utc: datetime | None = None
    updated_at_utc: datetime | None = None
    total_message_count: int = 0
    active_message_count: int = 0
    dead_letter_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0


# What may be said when one is made: keywords of `create_...`.


class QueueOptions(TypedDict, total=False):
    """The keywords of `create_queue`."""

    authorization_rules: list[AuthorizationRule] | None
    auto_delete_on_idle: Duration | None
    dead_lettering_on_message_expiration: bool | None
    default_message_time_to_live: Duration | None
    duplicate_detection_history_time_window: Duration | None
    enable_batched_operations: bool | None
    enable_express: bool | None
    enable_partitioning: bool | None
    lock_duration: Duration | None
    max_delivery_count: int | None
    max_size_in_megabytes: int | None
    max_message_size_in_kilobytes: int | None
    requires_duplicate_detection: bool | None
    requires_session: bool | None
    status: EntityStatus | str | None
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None
    user_metadata: str | None
    partition_count: int | None
    unlock_on_disconnect: bool | None


class TopicOptions(TypedDict, total=False):
    """The keywords of `create_topic`."""

    authorization_rules: list[AuthorizationRule] | None
    auto_delete_on_idle: Duration | None
    default_message_time_to_live: Duration | None
    duplicate_detection_history_time_window: Duration | None
    enable_batched_operations: bool | None
    enable_express: bool | None
    enable_partitioning: bool | None
    filtering_messages_before_publishing: bool | None
    max_size_in_megabytes: int | None
    max_message_size_in_kilobytes: int | None
    requires_duplicate_detection: bool | None
    status: EntityStatus | str | None
    support_ordering: bool | None
    user_metadata: str | None
    partition_count: int | None


class SubscriptionOptions(TypedDict, total=False):
    """The keywords of `create_subscription`."""

    auto_delete_on_idle: Duration | None
    dead_lettering_on_filter_evaluation_exceptions: bool | None
    dead_lettering_on_message_expiration: bool | None
    default_message_time_to_live: Duration | None
    enable_batched_operations: bool | None
    lock_duration: Duration | None
    max_delivery_count: int | None
    requires_session: bool | None
    status: EntityStatus | str | None
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None
    user_metadata: str | None
    unlock_on_disconnect: bool | None
