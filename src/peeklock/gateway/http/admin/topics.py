"""Topics as administration clients describe them (protocol 9.6)."""

from peeklock.broker.counting import Tally
from peeklock.broker.entities import Topic
from peeklock.entity.definition import TopicDefinition
from peeklock.gateway.http.admin import properties as common
from peeklock.gateway.http.admin.atom import Asked, AtomEntry
from peeklock.gateway.http.admin.authorization import write_keys
from peeklock.gateway.http.admin.properties import given
from peeklock.gateway.http.admin.reading import Content
from peeklock.gateway.http.admin.writing import XmlWriter


def read_topic(
    content: Content, path: str, known: TopicDefinition | None, asked: Asked
) -> TopicDefinition:
    """Read a topic: what is not said is the default of a new one, and stays in a known one."""
    before = TopicDefinition(path) if known is None else known
    partitions = common.read_partitions(content, known)
    return TopicDefinition(
        before.path,
        time_to_live_ms=given(
            content.duration_ms("DefaultMessageTimeToLive"), before.time_to_live_ms
        ),
        message_size_max=common.read_message_size_max(content, asked, known),
        size_max=common.read_size_max(content, known),
        batched_store_access=given(
            content.flag("EnableBatchedOperations"), before.batched_store_access
        ),
        duplicate_window_ms=common.read_duplicate_window_ms(content, known),
        auto_delete_ms=given(content.duration_ms("AutoDeleteOnIdle"), before.auto_delete_ms),
        partitions=partitions,
        filter_before_publishing=given(
            content.flag("FilteringMessagesBeforePublishing"), before.filter_before_publishing
        ),
        status=content.text("Status") or before.status,
        user_metadata=content.text("UserMetadata") or "",
        remarks=common.read_remarks(content, known),
    )


def topic_entry(
    topic: Topic, tally: Tally, asked: Asked, *, shows_counts: bool = True
) -> AtomEntry:
    """Describe a topic; who has just put it is not told the counts."""
    definition = topic.definition
    created, updated = topic.place.created_at, topic.updated_at
    writer = XmlWriter()
    writer.duration("DefaultMessageTimeToLive", definition.time_to_live_ms)
    writer.whole("MaxSizeInMegabytes", common.shown_megabytes(definition))
    writer.flag("RequiresDuplicateDetection", definition.duplicate_window_ms > 0)
    writer.duration("DuplicateDetectionHistoryTimeWindow", common.window_ms_of(definition))
    writer.flag("EnableBatchedOperations", definition.batched_store_access)
    writer.whole("SizeInBytes", tally.bytes)
    writer.flag("FilteringMessagesBeforePublishing", definition.filter_before_publishing)
    writer.flag("IsAnonymousAccessible", False)
    write_keys(writer, topic.keys)
    writer.text("Status", definition.status)
    writer.instant("CreatedAt", created)
    writer.instant("UpdatedAt", updated)
    writer.instant("AccessedAt", topic.links.accessed_at)
    writer.flag("SupportOrdering", common.has_ordering(definition))
    if shows_counts:
        common.write_counts(writer, tally, is_topic=True)
    writer.whole("SubscriptionCount", len(topic.subscriptions))
    if asked.knows(common.COUNTED_FILTERS):
        # One that takes all or nothing is an SQL filter to the service.
        rules = sum(len(each.rules) for each in topic.subscriptions.values())
        writer.whole("SqlFilterCount", rules - topic.rules.correlation_filters)
        writer.whole("CorrelationFilterCount", topic.rules.correlation_filters)
    writer.duration("AutoDeleteOnIdle", definition.auto_delete_ms)
    writer.flag("EnablePartitioning", definition.partitions > 1)
    writer.text("EntityAvailabilityStatus", common.availability(topic, tally))
    writer.flag("EnableSubscriptionPartitioning", False)
    writer.flag("EnableExpress", common.is_express(definition))
    writer.optional("UserMetadata", definition.user_metadata)
    if asked.knows(common.SIZED_MESSAGES):
        writer.whole("MaxMessageSizeInKilobytes", definition.message_size_max // 1024)
    common.write_extensions(writer, partitions=definition.partitions)
    return AtomEntry(topic.path, topic.path, created, updated, writer.described("TopicDescription"))
