"""Queues as administration clients describe them (protocol 9.5)."""

from peeklock.broker.counting import Tally
from peeklock.broker.entities import Queue
from peeklock.entity.definition import QueueDefinition
from peeklock.gateway.http.admin import properties as common
from peeklock.gateway.http.admin.atom import Asked, AtomEntry
from peeklock.gateway.http.admin.authorization import write_keys
from peeklock.gateway.http.admin.properties import given
from peeklock.gateway.http.admin.reading import Content
from peeklock.gateway.http.admin.writing import XmlWriter


def read_queue(
    content: Content, path: str, known: QueueDefinition | None, asked: Asked
) -> QueueDefinition:
    """Read a queue: what is not said is the default of a new one, and stays in a known one."""
    before = QueueDefinition(path) if known is None else known
    partitions = common.read_partitions(content, known)
    return QueueDefinition(
        before.path,
        lock_duration_ms=common.read_lock_duration_ms(content, before.lock_duration_ms),
        delivery_count_max=given(content.whole("MaxDeliveryCount"), before.delivery_count_max),
        time_to_live_ms=given(
            content.duration_ms("DefaultMessageTimeToLive"), before.time_to_live_ms
        ),
        dead_letter_on_expiration=given(
            content.flag("DeadLetteringOnMessageExpiration"), before.dead_letter_on_expiration
        ),
        message_size_max=common.read_message_size_max(content, asked, known),
        size_max=common.read_size_max(content, known),
        batched_store_access=given(
            content.flag("EnableBatchedOperations"), before.batched_store_access
        ),
        requires_session=given(content.flag("RequiresSession"), before.requires_session),
        duplicate_window_ms=common.read_duplicate_window_ms(content, known),
        forward_to=common.read_destination(content, common.FORWARD_TO),
        forward_dead_letters_to=common.read_destination(content, common.FORWARD_DEAD_LETTERS_TO),
        auto_delete_ms=given(content.duration_ms("AutoDeleteOnIdle"), before.auto_delete_ms),
        partitions=partitions,
        unlock_on_disconnect=common.read_unlock_on_disconnect(content, before.unlock_on_disconnect),
        status=content.text("Status") or before.status,
        user_metadata=content.text("UserMetadata") or "",
        remarks=common.read_remarks(content, known),
    )


def queue_entry(
    queue: Queue, tally: Tally, asked: Asked, *, shows_counts: bool = True
) -> AtomEntry:
    """Describe a queue; who has just put it is not told the counts."""
    definition = queue.definition
    created, updated = queue.place.created_at, queue.updated_at
    writer = XmlWriter()
    writer.duration("LockDuration", definition.lock_duration_ms)
    writer.whole("MaxSizeInMegabytes", common.shown_megabytes(definition))
    writer.flag("RequiresDuplicateDetection", definition.duplicate_window_ms > 0)
    writer.flag("RequiresSession", definition.requires_session)
    writer.duration("DefaultMessageTimeToLive", definition.time_to_live_ms)
    writer.flag("DeadLetteringOnMessageExpiration", definition.dead_letter_on_expiration)
    writer.duration("DuplicateDetectionHistoryTimeWindow", common.window_ms_of(definition))
    writer.whole("MaxDeliveryCount", definition.delivery_count_max)
    writer.flag("EnableBatchedOperations", definition.batched_store_access)
    writer.whole("SizeInBytes", tally.bytes)
    writer.whole("MessageCount", tally.total)
    writer.flag("IsAnonymousAccessible", False)
    write_keys(writer, queue.keys)
    writer.text("Status", definition.status)
    common.write_destination(writer, definition, common.FORWARD_TO)
    writer.instant("CreatedAt", created)
    writer.instant("UpdatedAt", updated)
    writer.instant("AccessedAt", queue.links.accessed_at)
    writer.flag("SupportOrdering", common.has_ordering(definition))
    if shows_counts:
        common.write_counts(writer, tally)
    writer.duration("AutoDeleteOnIdle", definition.auto_delete_ms)
    writer.flag("EnablePartitioning", definition.partitions > 1)
    writer.text("EntityAvailabilityStatus", common.availability(queue, tally))
    writer.flag("EnableExpress", common.is_express(definition))
    writer.optional("UserMetadata", definition.user_metadata)
    common.write_destination(writer, definition, common.FORWARD_DEAD_LETTERS_TO)
    if asked.knows(common.SIZED_MESSAGES):
        writer.whole("MaxMessageSizeInKilobytes", definition.message_size_max // 1024)
    common.write_extensions(
        writer,
        partitions=definition.partitions,
        unlock_on_disconnect=definition.unlock_on_disconnect,
    )
    return AtomEntry(queue.path, queue.path, created, updated, writer.described("QueueDescription"))
