"""Reads an entry of Topics, with its subscriptions."""

from typing import Final

from peeklock.configuration import properties as common
from peeklock.configuration.authorization import read_authorization_rules
from peeklock.configuration.content import ConfiguredSubscription, ConfiguredTopic
from peeklock.configuration.rule import read_rules
from peeklock.configuration.section import Section
from peeklock.entity.definition import (
    DEFAULT_RULE_NAME,
    SUBSCRIPTIONS_MAX,
    SubscriptionDefinition,
    TopicDefinition,
)
from peeklock.entity.rules.correlation import CorrelationFilter
from peeklock.entity.rules.filter import SqlFilter, TrueFilter
from peeklock.entity.rules.rule import Rule
from peeklock.entity.rules.topic import CORRELATION_FILTERS_MAX, SQL_FILTERS_MAX

_TAKES_EVERYTHING: Final = (Rule(DEFAULT_RULE_NAME, TrueFilter()),)


def read_topic(section: Section) -> ConfiguredTopic:
    """Read a topic with the rules that hold on it and its subscriptions."""
    name = section.text("Name")
    properties = section.section("Properties")
    definition = _read_definition(name, properties)
    rules = read_authorization_rules(section)
    subscriptions = _read_subscriptions(name, section)
    section.finish()
    common.note_problems(definition.problems(), section, properties)
    return ConfiguredTopic(definition, rules or (), subscriptions)


def _read_definition(name: str, properties: Section) -> TopicDefinition:
    # What the file leaves out takes the service's default, which the definition knows.
    default = TopicDefinition(name)
    definition = TopicDefinition(
        name,
        time_to_live_ms=common.time_to_live_ms(properties),
        message_size_max=common.message_size_max(properties),
        size_max=common.size_max(properties),
        batched_store_access=properties.flag(
            "EnableBatchedOperations", default=default.batched_store_access
        ),
        duplicate_window_ms=common.duplicate_window_ms(properties),
        auto_delete_ms=common.auto_delete_ms(properties),
        partitions=common.partitions(properties),
        filter_before_publishing=properties.flag(
            "FilteringMessagesBeforePublishing", default=default.filter_before_publishing
        ),
        status=properties.text("Status", default.status),
        user_metadata=properties.text("UserMetadata", default.user_metadata),
    )
    properties.finish()
    return definition


def _read_subscriptions(topic: str, section: Section) -> tuple[ConfiguredSubscription, ...]:
    entries = section.sections("Subscriptions") or []
    if len(entries) > SUBSCRIPTIONS_MAX:
        section.note(
            "Subscriptions", f"has {len(entries):,} entries, at most {SUBSCRIPTIONS_MAX:,} go"
        )
    subscriptions: dict[str, ConfiguredSubscription] = {}
    for entry in entries:
        subscription = _read_subscription(topic, entry)
        name = subscription.definition.name
        if name.lower() in subscriptions:
            entry.note("Name", f"'{name}' is given twice")
        subscriptions[name.lower()] = subscription
    found = tuple(subscriptions.values())
    _note_too_many_filters(found, section)
    return found


def _read_subscription(topic: str, section: Section) -> ConfiguredSubscription:
    name = section.text("Name")
    properties = section.section("Properties")
    definition = _read_subscription_definition(topic, name, properties)
    rules = read_rules(section)
    section.finish()
    common.note_problems(definition.problems(), section, properties)
    # Tools write an empty list for a subscription that nobody gave rules, and expect the default.
    if not rules:
        return ConfiguredSubscription(definition, _TAKES_EVERYTHING, gives_rules=False)
    return ConfiguredSubscription(definition, rules)


def _read_subscription_definition(
    topic: str, name: str, properties: Section
) -> SubscriptionDefinition:
    default = SubscriptionDefinition(topic, name)
    definition = SubscriptionDefinition(
        topic,
        name,
        lock_duration_ms=properties.duration_ms("LockDuration", default.lock_duration_ms),
        delivery_count_max=properties.whole("MaxDeliveryCount", default.delivery_count_max),
        time_to_live_ms=common.time_to_live_ms(properties),
        dead_letter_on_expiration=properties.flag(
            "DeadLetteringOnMessageExpiration", default=default.dead_letter_on_expiration
        ),
        dead_letter_on_filter_error=properties.flag(
            "DeadLetteringOnFilterEvaluationExceptions",
            default=default.dead_letter_on_filter_error,
        ),
        batched_store_access=properties.flag(
            "EnableBatchedOperations", default=default.batched_store_access
        ),
        requires_session=properties.flag("RequiresSession", default=default.requires_session),
        forward_to=common.destination(properties, "ForwardTo"),
        forward_dead_letters_to=common.destination(properties, "ForwardDeadLetteredMessagesTo"),
        auto_delete_ms=common.auto_delete_ms(properties),
        unlock_on_disconnect=properties.flag(
            "UnlockOnDisconnect", default=default.unlock_on_disconnect
        ),
        status=properties.text("Status", default.status),
        user_metadata=properties.text("UserMetadata", default.user_metadata),
        remarks=common.given_destinations(properties),
    )
    properties.finish()
    return definition


def _note_too_many_filters(
    subscriptions: tuple[ConfiguredSubscription, ...], section: Section
) -> None:
    filters = [rule.filter for subscription in subscriptions for rule in subscription.rules]
    sqls = sum(isinstance(filter, SqlFilter) for filter in filters)
    correlations = sum(isinstance(filter, CorrelationFilter) for filter in filters)
    if sqls > SQL_FILTERS_MAX:
        section.note("Subscriptions", f"have {sqls:,} SQL filters, at most {SQL_FILTERS_MAX:,} go")
    if correlations > CORRELATION_FILTERS_MAX:
        section.note(
            "Subscriptions",
            f"have {correlations:,} correlation filters, at most {CORRELATION_FILTERS_MAX:,} go",
        )
