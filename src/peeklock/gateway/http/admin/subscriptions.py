"""Subscriptions as administration clients describe them (protocol 9.7)."""

from peeklock.broker.counting import Tally
from peeklock.broker.entities import Subscription
from peeklock.entity.definition import (
    DEFAULT_RULE_NAME,
    SubscriptionDefinition,
    is_rule_name,
    not_a_name,
)
from peeklock.entity.rules.rule import Rule
from peeklock.gateway.http.admin import properties as common
from peeklock.gateway.http.admin.atom import Asked, AtomEntry
from peeklock.gateway.http.admin.properties import given
from peeklock.gateway.http.admin.reading import Content, MalformedEntry
from peeklock.gateway.http.admin.rules import read_rule
from peeklock.gateway.http.admin.writing import XmlWriter


def read_subscription(
    content: Content, topic: str, name: str, known: SubscriptionDefinition | None
) -> SubscriptionDefinition:
    """Read a subscription: what is not said is the default of a new one, and stays in a known
    one."""
    before = SubscriptionDefinition(topic, name) if known is None else known
    return SubscriptionDefinition(
        before.topic,
        before.name,
        lock_duration_ms=common.read_lock_duration_ms(content, before.lock_duration_ms),
        delivery_count_max=given(content.whole("MaxDeliveryCount"), before.delivery_count_max),
        time_to_live_ms=given(
            content.duration_ms("DefaultMessageTimeToLive"), before.time_to_live_ms
        ),
        dead_letter_on_expiration=given(
            content.flag("DeadLetteringOnMessageExpiration"), before.dead_letter_on_expiration
        ),
        dead_letter_on_filter_error=given(
            content.flag("DeadLetteringOnFilterEvaluationExceptions"),
            before.dead_letter_on_filter_error,
        ),
        batched_store_access=given(
            content.flag("EnableBatchedOperations"), before.batched_store_access
        ),
        requires_session=given(content.flag("RequiresSession"), before.requires_session),
        forward_to=common.read_destination(content, common.FORWARD_TO),
        forward_dead_letters_to=common.read_destination(content, common.FORWARD_DEAD_LETTERS_TO),
        auto_delete_ms=given(content.duration_ms("AutoDeleteOnIdle"), before.auto_delete_ms),
        unlock_on_disconnect=common.read_unlock_on_disconnect(content, before.unlock_on_disconnect),
        status=content.text("Status") or before.status,
        user_metadata=content.text("UserMetadata") or "",
        remarks=common.read_given_destinations(content),
    )


def read_first_rules(content: Content) -> tuple[Rule, ...] | None:
    """Read the rule that a new subscription is given instead of the one that takes everything."""
    description = content.child("DefaultRuleDescription")
    if description is None:
        return None
    name = description.text("Name") or DEFAULT_RULE_NAME
    if not is_rule_name(name):
        raise MalformedEntry(f"{not_a_name(name)}.")
    return (read_rule(description, name),)


def subscription_entry(
    subscription: Subscription, tally: Tally, _asked: Asked, *, shows_counts: bool = True
) -> AtomEntry:
    """Describe a subscription; who has just put it is not told the counts."""
    definition = subscription.definition
    created, updated = subscription.created_at, subscription.updated_at
    writer = XmlWriter()
    writer.duration("LockDuration", definition.lock_duration_ms)
    writer.flag("RequiresSession", definition.requires_session)
    writer.duration("DefaultMessageTimeToLive", definition.time_to_live_ms)
    writer.flag("DeadLetteringOnMessageExpiration", definition.dead_letter_on_expiration)
    writer.flag("DeadLetteringOnFilterEvaluationExceptions", definition.dead_letter_on_filter_error)
    writer.whole("MessageCount", tally.total)
    writer.whole("MaxDeliveryCount", definition.delivery_count_max)
    writer.flag("EnableBatchedOperations", definition.batched_store_access)
    writer.text("Status", definition.status)
    common.write_destination(writer, definition, common.FORWARD_TO)
    writer.instant("CreatedAt", created)
    writer.instant("UpdatedAt", updated)
    # One that nobody has used yet was accessed when it was made; queues and topics never were.
    writer.instant("AccessedAt", subscription.links.accessed_at or created)
    if shows_counts:
        common.write_counts(writer, tally)
    writer.optional("UserMetadata", definition.user_metadata)
    common.write_destination(writer, definition, common.FORWARD_DEAD_LETTERS_TO)
    writer.duration("AutoDeleteOnIdle", definition.auto_delete_ms)
    writer.text("EntityAvailabilityStatus", common.availability(subscription, tally))
    common.write_extensions(writer, unlock_on_disconnect=definition.unlock_on_disconnect)
    description = writer.described("SubscriptionDescription")
    return AtomEntry(subscription.path, definition.name, created, updated, description)
