"""What the descriptions of queues, topics and subscriptions have in common (protocol 9.5-9.7)."""

from typing import Final, TypeAlias, TypeVar

from peeklock.broker.counting import Tally
from peeklock.broker.entities import Entity, Subscription
from peeklock.broker.partitioned.reach import LIMITED, UNKNOWN
from peeklock.durations import format_duration, parse_duration
from peeklock.entity.definition import (
    DUPLICATE_WINDOW_MS_MAX,
    DUPLICATE_WINDOW_MS_MIN,
    FOREVER_MS,
    LOCK_DURATION_MS_MAX,
    MEGABYTE,
    MESSAGE_SIZE_MAX_DEFAULT,
    NO_SIZE_LIMIT,
    PARTITIONS_DEFAULT,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
    destination_path,
    given_destinations,
    shown_destination,
)
from peeklock.gateway.http.admin.atom import Asked
from peeklock.gateway.http.admin.reading import Content, MalformedEntry
from peeklock.gateway.http.admin.writing import COUNTS, XmlWriter

# From which version of the protocol on messages may be of another size, and filters are counted.
SIZED_MESSAGES: Final = "2021-05"
COUNTED_FILTERS: Final = "2024-05"

EntityDefinition: TypeAlias = QueueDefinition | TopicDefinition
Forwarding: TypeAlias = QueueDefinition | SubscriptionDefinition
Remarks: TypeAlias = tuple[tuple[str, str], ...]

FORWARD_TO: Final = "ForwardTo"
FORWARD_DEAD_LETTERS_TO: Final = "ForwardDeadLetteredMessagesTo"
DESTINATIONS: Final = (FORWARD_TO, FORWARD_DEAD_LETTERS_TO)

# What is kept because clients expect it back, although it has no effect here.
_WINDOW: Final = "DuplicateDetectionHistoryTimeWindow"
_EXPRESS: Final = "EnableExpress"
_ORDERING: Final = "SupportOrdering"

# What the service does not have; clients that do not know these send them back or ignore them.
_PARTITIONS: Final = "PartitionCount"
_UNLOCK: Final = "UnlockOnDisconnect"

_WINDOW_MS_DEFAULT: Final = 600_000
# The service has queues of 1 to 5 GB, and of up to 80 GB in its premium tier. An entity that was
# given no size has no limit here, and says what the service would say.
_MEGABYTES_DEFAULT: Final = 1024
_MEGABYTES_MAX: Final = 81_920

# What the service lets be chosen for the largest message.
_KILOBYTES_MIN: Final = 1_024
_KILOBYTES_MAX: Final = 102_400

_T = TypeVar("_T")


def given(value: _T | None, otherwise: _T) -> _T:
    """Choose what was given, or else what is there."""
    return otherwise if value is None else value


def read_lock_duration_ms(content: Content, otherwise: int) -> int:
    """Read how long locks last; the service has words of its own for too long."""
    duration_ms = given(content.duration_ms("LockDuration"), otherwise)
    if duration_ms == FOREVER_MS or duration_ms > LOCK_DURATION_MS_MAX:
        raise MalformedEntry(
            "The supplied lock time exceeds the allowed maximum of '5' minutes. Parameter name: "
            f"LockDuration Actual value was {content.text('LockDuration')}."
        )
    return duration_ms


def read_destination(content: Content, name: str) -> str:
    """Read where messages go; who says nothing, wants them to go nowhere."""
    return destination_path((content.text(name) or "").strip())


def read_message_size_max(content: Content, asked: Asked, known: EntityDefinition | None) -> int:
    """Read the size of the largest message, which older versions do not have.

    The configuration file may choose smaller ones; who reads an entity and changes something else
    sends that back.
    """
    kilobytes = content.whole("MaxMessageSizeInKilobytes")
    before = MESSAGE_SIZE_MAX_DEFAULT if known is None else known.message_size_max
    if kilobytes is None:
        return before
    if not asked.knows(SIZED_MESSAGES):
        raise MalformedEntry(
            "The property 'MaxMessageSizeInKilobytes' is not known to the api-version "
            f"{asked.version}; it is from {SIZED_MESSAGES} on."
        )
    if known is not None and kilobytes == before // 1024:
        return before
    if not _KILOBYTES_MIN <= kilobytes <= _KILOBYTES_MAX:
        raise MalformedEntry(
            f"The specified value {kilobytes} is invalid. The property "
            f"'MaxMessageSizeInKilobytes' must be between {_KILOBYTES_MIN} and {_KILOBYTES_MAX}."
        )
    return kilobytes * 1024


def read_size_max(content: Content, known: EntityDefinition | None) -> int:
    """Read how much each partition of an entity may hold, in bytes.

    Clients send back what they were shown, which must change nothing. What they choose is the size
    of one partition, as in the service; what they are shown is the size of all.
    """
    megabytes = content.whole("MaxSizeInMegabytes")
    if megabytes is None or (known is not None and megabytes == shown_megabytes(known)):
        return NO_SIZE_LIMIT if known is None else known.size_max
    if not 0 < megabytes <= _MEGABYTES_MAX or megabytes % 1024:
        raise MalformedEntry(
            f"The specified value {megabytes} is invalid. The property 'MaxSizeInMegabytes', must "
            f"be one of the following values: 1024;2048;3072;4096;5120 (or another multiple of "
            f"1024 up to {_MEGABYTES_MAX})."
        )
    return megabytes * MEGABYTE


def shown_megabytes(definition: EntityDefinition) -> int:
    """How much an entity may hold, as clients are told."""
    if definition.size_max == NO_SIZE_LIMIT:
        return _MEGABYTES_DEFAULT * definition.partitions
    return max(definition.size_max // MEGABYTE, 1) * definition.partitions


def read_partitions(content: Content, known: EntityDefinition | None) -> int:
    """Read how many partitions an entity has; the clients of the service only say whether it has
    several, others may say how many."""
    before = 1 if known is None else known.partitions
    is_partitioned = given(content.flag("EnablePartitioning"), before > 1)
    count = content.whole(_PARTITIONS)
    if not is_partitioned:
        if count not in (None, 1):
            raise MalformedEntry(f"{_PARTITIONS} has no effect without EnablePartitioning.")
        return 1
    if count is not None:
        # One partition would be none of those asked for: the definition finds this one wrong.
        return 0 if count == 1 else count
    return before if before > 1 else PARTITIONS_DEFAULT


def read_duplicate_window_ms(content: Content, known: EntityDefinition | None) -> int:
    """Read how long message ids are remembered; 0 is not at all."""
    before = 0 if known is None else known.duplicate_window_ms
    window_ms = content.duration_ms(_WINDOW)
    if not given(content.flag("RequiresDuplicateDetection"), before > 0):
        if window_ms is not None:
            _check_window(window_ms)
        return 0
    if window_ms is None:
        return before or _WINDOW_MS_DEFAULT
    _check_window(window_ms)
    return window_ms


def _check_window(window_ms: int) -> None:
    if not DUPLICATE_WINDOW_MS_MIN <= window_ms <= DUPLICATE_WINDOW_MS_MAX:
        raise MalformedEntry(f"{_WINDOW} must be between 5 seconds and 7 days.")


def read_remarks(content: Content, known: EntityDefinition | None) -> Remarks:
    """Read what is kept without having an effect, and how destinations were named."""
    remarks = {} if known is None else dict(known.remarks)
    for name in DESTINATIONS:
        remarks.pop(name, None)
    window_ms = content.duration_ms(_WINDOW)
    if window_ms is not None:
        remarks[_WINDOW] = format_duration(window_ms)
    for name in (_EXPRESS, _ORDERING):
        flag = content.flag(name)
        if flag is not None:
            remarks[name] = "true" if flag else "false"
    return (*remarks.items(), *read_given_destinations(content))


def read_given_destinations(content: Content) -> Remarks:
    """Read how destinations are named: they are shown as they were given."""
    return given_destinations({name: (content.text(name) or "").strip() for name in DESTINATIONS})


def window_ms_of(definition: EntityDefinition) -> int:
    """The window as clients are told: that of a detection that is off is the one they chose."""
    if definition.duplicate_window_ms:
        return definition.duplicate_window_ms
    remark = dict(definition.remarks).get(_WINDOW)
    return _WINDOW_MS_DEFAULT if remark is None else parse_duration(remark)


def is_express(definition: EntityDefinition) -> bool:
    """Whether its owner wanted it express, which has no effect here: nothing is kept in memory."""
    return dict(definition.remarks).get(_EXPRESS) == "true"


def has_ordering(definition: EntityDefinition) -> bool:
    """Whether it is said to keep the order of messages."""
    otherwise = "true" if definition.partitions == 1 else "false"
    return dict(definition.remarks).get(_ORDERING, otherwise) == "true"


def availability(entity: Entity, tally: Tally) -> str:
    """Whether all partitions are within reach (R-P9); where none can tell what it holds, because it
    is damaged or its store is away, the counts say nothing."""
    owner = entity.topic if isinstance(entity, Subscription) else entity
    if tally.is_whole:
        return owner.partitions.availability
    return UNKNOWN if tally.is_unknown else LIMITED


def write_counts(writer: XmlWriter, tally: Tally, *, is_topic: bool = False) -> None:
    """Write how many messages are in which state. Deferred ones are active to the service; of what
    a topic has, only the scheduled ones and those on their way are its own."""
    counts = [
        ("ActiveMessageCount", 0 if is_topic else tally.active + tally.deferred),
        ("DeadLetterMessageCount", 0 if is_topic else tally.dead_letter),
        ("ScheduledMessageCount", tally.scheduled),
        ("TransferMessageCount", tally.transfer),
        ("TransferDeadLetterMessageCount", tally.transfer_dead_letter),
    ]
    if tally.claimed and not is_topic:
        counts.append(("ClaimedMessageCount", tally.claimed))  # which the service does not have
    inner = "".join(f"<d2p1:{name}>{count}</d2p1:{name}>" for name, count in counts)
    writer.raw(f'<CountDetails xmlns:d2p1="{COUNTS}">{inner}</CountDetails>')


def read_unlock_on_disconnect(content: Content, otherwise: bool) -> bool:
    """Read whether a broken connection drops its locks (R-S8)."""
    return given(content.flag(_UNLOCK), otherwise)


def write_extensions(
    writer: XmlWriter, *, partitions: int = 1, unlock_on_disconnect: bool = False
) -> None:
    """Write what the service does not have, where it is not as in the service."""
    if partitions > 1:
        writer.whole(_PARTITIONS, partitions)
    if unlock_on_disconnect:
        writer.flag(_UNLOCK, True)


def write_destination(writer: XmlWriter, definition: Forwarding, name: str) -> None:
    """Write where messages go, as it was given; nowhere is left out."""
    is_dead = name == FORWARD_DEAD_LETTERS_TO
    path = definition.forward_dead_letters_to if is_dead else definition.forward_to
    writer.optional(name, shown_destination(definition.remarks, name, path))
