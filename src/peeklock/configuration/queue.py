"""Reads an entry of Queues."""

from peeklock.configuration import properties as common
from peeklock.configuration.authorization import read_authorization_rules
from peeklock.configuration.content import ConfiguredQueue
from peeklock.configuration.section import Section
from peeklock.entity.definition import QueueDefinition


def read_queue(section: Section) -> ConfiguredQueue:
    """Read a queue with the rules that hold on it."""
    name = section.text("Name")
    properties = section.section("Properties")
    definition = _read_definition(name, properties)
    rules = read_authorization_rules(section)
    section.finish()
    common.note_problems(definition.problems(), section, properties)
    return ConfiguredQueue(definition, rules or ())


def _read_definition(name: str, properties: Section) -> QueueDefinition:
    # What the file leaves out takes the service's default, which the definition knows.
    default = QueueDefinition(name)
    definition = QueueDefinition(
        name,
        lock_duration_ms=properties.duration_ms("LockDuration", default.lock_duration_ms),
        delivery_count_max=properties.whole("MaxDeliveryCount", default.delivery_count_max),
        time_to_live_ms=common.time_to_live_ms(properties),
        dead_letter_on_expiration=properties.flag(
            "DeadLetteringOnMessageExpiration", default=default.dead_letter_on_expiration
        ),
        message_size_max=common.message_size_max(properties),
        size_max=common.size_max(properties),
        batched_store_access=properties.flag(
            "EnableBatchedOperations", default=default.batched_store_access
        ),
        requires_session=properties.flag("RequiresSession", default=default.requires_session),
        duplicate_window_ms=common.duplicate_window_ms(properties),
        forward_to=common.destination(properties, "ForwardTo"),
        forward_dead_letters_to=common.destination(properties, "ForwardDeadLetteredMessagesTo"),
        auto_delete_ms=common.auto_delete_ms(properties),
        partitions=common.partitions(properties),
        unlock_on_disconnect=properties.flag(
            "UnlockOnDisconnect", default=default.unlock_on_disconnect
        ),
        status=properties.text("Status", default.status),
        user_metadata=properties.text("UserMetadata", default.user_metadata),
        remarks=common.given_destinations(properties),
    )
    properties.finish()
    return definition
