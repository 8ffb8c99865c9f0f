"""Reads the properties that queues, topics and subscriptions have in common."""

from typing import Final

from peeklock.configuration.section import Section
from peeklock.durations import LONGEST_DURATION_MS
from peeklock.entity import definition
from peeklock.entity.definition import (
    FOREVER_MS,
    MEGABYTE,
    MESSAGE_SIZE_MAX_DEFAULT,
    NO_SIZE_LIMIT,
    PARTITIONS_DEFAULT,
    Problems,
    destination_path,
)

_DUPLICATE_WINDOW_MS_DEFAULT: Final = 600_000


def time_to_live_ms(properties: Section) -> int:
    """Read how long messages live that do not say it themselves."""
    return _lasting_ms(properties, "DefaultMessageTimeToLive")


def auto_delete_ms(properties: Section) -> int:
    """Read after which idleness the entity goes."""
    return _lasting_ms(properties, "AutoDeleteOnIdle")


def message_size_max(properties: Section) -> int:
    """Read the size of the largest message, in bytes."""
    return properties.whole("MaxMessageSizeInKilobytes", MESSAGE_SIZE_MAX_DEFAULT // 1024) * 1024


def size_max(properties: Section) -> int:
    """Read how much the entity may hold, in bytes."""
    return properties.whole("MaxSizeInMegabytes", NO_SIZE_LIMIT) * MEGABYTE


def duplicate_window_ms(properties: Section) -> int:
    """Read how long message ids are remembered; 0 is not at all."""
    # Read in any case: without duplicate detection it has no effect, but must have the form.
    window_ms = properties.duration_ms(
        "DuplicateDetectionHistoryTimeWindow", _DUPLICATE_WINDOW_MS_DEFAULT
    )
    if not properties.flag("RequiresDuplicateDetection", default=False):
        return 0
    # No time at all would switch off what was asked for: the definition finds this one wrong.
    return window_ms or -1


def partitions(properties: Section) -> int:
    """Read how many partitions the entity consists of; 1 is not partitioned."""
    count = properties.whole("PartitionCount", PARTITIONS_DEFAULT)
    if not properties.flag("EnablePartitioning", default=False):
        if properties.has("PartitionCount"):
            properties.note("PartitionCount", "has no effect without EnablePartitioning")
        return 1
    # One partition would be none of those asked for: the definition finds this one wrong.
    return 0 if count == 1 else count


def destination(properties: Section, key: str) -> str:
    """Read where messages are forwarded to: a name, or an absolute address; empty is nowhere."""
    return destination_path(properties.text(key, ""))


def given_destinations(properties: Section) -> tuple[tuple[str, str], ...]:
    """Read how destinations are named, so that they can be shown as they were given."""
    names = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
    return definition.given_destinations({name: properties.text(name, "") for name in names})


def note_problems(problems: Problems, entity: Section, properties: Section) -> None:
    """Note what a definition finds wrong where it stands in the file."""
    for key, problem in problems:
        if key != "Name":
            properties.note(key, problem)
        # That it is missing was noted when it was read.
        elif entity.has(key):
            entity.note(key, problem)


def _lasting_ms(properties: Section, key: str) -> int:
    # The service writes "never" as the longest duration there is.
    duration_ms = properties.duration_ms(key, LONGEST_DURATION_MS)
    return FOREVER_MS if duration_ms >= LONGEST_DURATION_MS else duration_ms
