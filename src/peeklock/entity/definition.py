"""The descriptions of entities: what their owners chose, and the limits of the choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final
from urllib.parse import unquote

FOREVER_MS: Final = -1
"""The duration that never ends (the service writes it as P10675199DT2H48M5.4775807S)."""

LOCK_DURATION_MS_MIN: Final = 5_000
LOCK_DURATION_MS_MAX: Final = 300_000  # five minutes, R-L1
MESSAGE_SIZE_MAX_DEFAULT: Final = 262_144
MESSAGE_SIZE_MAX_MAX: Final = 100 * 1024 * 1024
DELIVERY_COUNT_MAX_MAX: Final = 2_000
PATH_LENGTH_MAX: Final = 260
NAME_LENGTH_MAX: Final = 50
DUPLICATE_WINDOW_MS_MIN: Final = 5_000  # the emulator's lower bound; the service says 20 seconds
DUPLICATE_WINDOW_MS_MAX: Final = 7 * 24 * 3_600_000
AUTO_DELETE_MS_MIN: Final = 300_000
PARTITIONS_MIN: Final = 2
PARTITIONS_MAX: Final = 32
PARTITIONS_DEFAULT: Final = 16  # of an entity that is partitioned without saying how often
NO_SIZE_LIMIT: Final = 0
MEGABYTE: Final = 1024 * 1024
SIZE_MAX_MAX: Final = ((1 << 63) // MEGABYTE - 1) * MEGABYTE  # bytes are counted in 64 bits
USER_METADATA_LENGTH_MAX: Final = 1_024
SUBSCRIPTIONS_MAX: Final = 2_000  # of one topic, R-F7

DEFAULT_RULE_NAME: Final = "$Default"
"""The rule that a subscription has from the start; it takes everything."""

# What an entity is.
QUEUE: Final = "queue"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"

ACTIVE: Final = "Active"
DISABLED: Final = "Disabled"
SEND_DISABLED: Final = "SendDisabled"
RECEIVE_DISABLED: Final = "ReceiveDisabled"
STATUSES: Final = (ACTIVE, DISABLED, SEND_DISABLED, RECEIVE_DISABLED)

Problems: TypeAlias = list[tuple[str, str]]
"""Each wrong property with what is wrong about it."""


@final
@dataclass(slots=True, init=False)
class QueueDefinition:
    """A queue as its owner describes it; `problems` says what in it cannot be."""

    path: Final[str]
    lock_duration_ms: Final[int]
    delivery_count_max: Final[int]
    time_to_live_ms: Final[int]
    dead_letter_on_expiration: Final[bool]
    message_size_max: Final[int]
    size_max: Final[int]
    batched_store_access: Final[bool]
    requires_session: Final[bool]
    duplicate_window_ms: Final[int]  # 0: no duplicate detection
    forward_to: Final[str]  # a path, or nothing
    forward_dead_letters_to: Final[str]
    auto_delete_ms: Final[int]
    partitions: Final[int]  # 1: not partitioned
    # The articles let a broken connection drop its locks; the SDKs settle by token after a
    # reconnect. False keeps the lock until it expires, True restores the articles (R-S8).
    unlock_on_disconnect: Final[bool]
    status: Final[str]
    user_metadata: Final[str]
    # Names and texts of what its owner chose and what has no effect here: shown as it was given.
    remarks: Final[tuple[tuple[str, str], ...]]

    def __init__(
        self,
        path: str,
        *,
        lock_duration_ms: int = 60_000,
        delivery_count_max: int = 10,
        time_to_live_ms: int = FOREVER_MS,
        dead_letter_on_expiration: bool = False,
        message_size_max: int = MESSAGE_SIZE_MAX_DEFAULT,
        size_max: int = NO_SIZE_LIMIT,
        batched_store_access: bool = True,
        requires_session: bool = False,
        duplicate_window_ms: int = 0,
        forward_to: str = "",
        forward_dead_letters_to: str = "",
        auto_delete_ms: int = FOREVER_MS,
        partitions: int = 1,
        unlock_on_disconnect: bool = False,
        status: str = ACTIVE,
        user_metadata: str = "",
        remarks: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.path = path
        self.lock_duration_ms = lock_duration_ms
        self.delivery_count_max = delivery_count_max
        self.time_to_live_ms = time_to_live_ms
        self.dead_letter_on_expiration = dead_letter_on_expiration
        self.message_size_max = message_size_max
        self.size_max = size_max
        self.batched_store_access = batched_store_access
        self.requires_session = requires_session
        self.duplicate_window_ms = duplicate_window_ms
        self.forward_to = forward_to
        self.forward_dead_letters_to = forward_dead_letters_to
        self.auto_delete_ms = auto_delete_ms
        self.partitions = partitions
        self.unlock_on_disconnect = unlock_on_disconnect
        self.status = status
        self.user_metadata = user_metadata
        self.remarks = remarks

    def problems(self) -> Problems:
        """What cannot be; empty when all is well."""
        found = _path_problems(self.path)
        found += _keeping_problems(
            self.message_size_max, self.size_max, self.duplicate_window_ms, self.partitions
        )
        found += _life_problems(
            self.time_to_live_ms, self.auto_delete_ms, self.status, self.user_metadata
        )
        found += _handing_out_problems(self.lock_duration_ms, self.delivery_count_max)
        return found + _forward_problems(self.forward_to, self.forward_dead_letters_to)


@final
@dataclass(slots=True, init=False)
class TopicDefinition:
    """A topic as its owner describes it."""

    path: Final[str]
    time_to_live_ms: Final[int]
    message_size_max: Final[int]
    size_max: Final[int]
    batched_store_access: Final[bool]
    duplicate_window_ms: Final[int]
    auto_delete_ms: Final[int]
    partitions: Final[int]
    # A development switch: what no subscription would take is refused (R-F6).
    filter_before_publishing: Final[bool]
    status: Final[str]
    user_metadata: Final[str]
    # Names and texts of what its owner chose and what has no effect here: shown as it was given.
    remarks: Final[tuple[tuple[str, str], ...]]

    def __init__(
        self,
        path: str,
        *,
        time_to_live_ms: int = FOREVER_MS,
        message_size_max: int = MESSAGE_SIZE_MAX_DEFAULT,
        size_max: int = NO_SIZE_LIMIT,
        batched_store_access: bool = True,
        duplicate_window_ms: int = 0,
        auto_delete_ms: int = FOREVER_MS,
        partitions: int = 1,
        filter_before_publishing: bool = False,
        status: str = ACTIVE,
        user_metadata: str = "",
        remarks: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.path = path
        self.time_to_live_ms = time_to_live_ms
        self.message_size_max = message_size_max
        self.size_max = size_max
        self.batched_store_access = batched_store_access
        self.duplicate_window_ms = duplicate_window_ms
        self.auto_delete_ms = auto_delete_ms
        self.partitions = partitions
        self.filter_before_publishing = filter_before_publishing
        self.status = status
        self.user_metadata = user_metadata
        self.remarks = remarks

    def problems(self) -> Problems:
        """What cannot be; empty when all is well."""
        found = _path_problems(self.path)
        found += _keeping_problems(
            self.message_size_max, self.size_max, self.duplicate_window_ms, self.partitions
        )
        return found + _life_problems(
            self.time_to_live_ms, self.auto_delete_ms, self.status, self.user_metadata
        )


@final
@dataclass(slots=True, init=False)
class SubscriptionDefinition:
    """A subscription as its owner describes it; its rules are kept beside it."""

    topic: Final[str]
    name: Final[str]
    lock_duration_ms: Final[int]
    delivery_count_max: Final[int]
    time_to_live_ms: Final[int]
    dead_letter_on_expiration: Final[bool]
    dead_letter_on_filter_error: Final[bool]
    batched_store_access: Final[bool]
    requires_session: Final[bool]
    forward_to: Final[str]
    forward_dead_letters_to: Final[str]
    auto_delete_ms: Final[int]
    unlock_on_disconnect: Final[bool]
    status: Final[str]
    user_metadata: Final[str]
    # Names and texts of what is shown as it was given: destinations that were addresses.
    remarks: Final[tuple[tuple[str, str], ...]]

    def __init__(
        self,
        topic: str,
        name: str,
        *,
        lock_duration_ms: int = 60_000,
        delivery_count_max: int = 10,
        time_to_live_ms: int = FOREVER_MS,
        dead_letter_on_expiration: bool = False,
        dead_letter_on_filter_error: bool = True,
        batched_store_access: bool = True,
        requires_session: bool = False,
        forward_to: str = "",
        forward_dead_letters_to: str = "",
        auto_delete_ms: int = FOREVER_MS,
        unlock_on_disconnect: bool = False,
        status: str = ACTIVE,
        user_metadata: str = "",
        remarks: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.topic = topic
        self.name = name
        self.lock_duration_ms = lock_duration_ms
        self.delivery_count_max = delivery_count_max
        self.time_to_live_ms = time_to_live_ms
        self.dead_letter_on_expiration = dead_letter_on_expiration
        self.dead_letter_on_filter_error = dead_letter_on_filter_error
        self.batched_store_access = batched_store_access
        self.requires_session = requires_session
        self.forward_to = forward_to
        self.forward_dead_letters_to = forward_dead_letters_to
        self.auto_delete_ms = auto_delete_ms
        self.unlock_on_disconnect = unlock_on_disconnect
        self.status = status
        self.user_metadata = user_metadata
        self.remarks = remarks

    @property
    def path(self) -> str:
        """The address of the subscription."""
        return f"{self.topic}/Subscriptions/{self.name}"

    def problems(self) -> Problems:
        """What cannot be; empty when all is well."""
        found: Problems = []
        if not is_entity_name(self.name):
            found.append(("Name", not_a_name(self.name)))
        found += _life_problems(
            self.time_to_live_ms, self.auto_delete_ms, self.status, self.user_metadata
        )
        found += _handing_out_problems(self.lock_duration_ms, self.delivery_count_max)
        return found + _forward_problems(self.forward_to, self.forward_dead_letters_to)


def is_entity_path(path: str) -> bool:
    """Return whether the service would take this as the name of a queue or topic (protocol
    11.1)."""
    return _is_name(path, PATH_LENGTH_MAX, "._-/") and not _is_below_a_topic(path)


def is_entity_name(name: str) -> bool:
    """Return whether the service would take this as the name of a subscription or rule."""
    return _is_name(name, NAME_LENGTH_MAX, "._-")


def is_rule_name(name: str) -> bool:
    """Return whether a rule may have this name: the first one's has a sign that no other may
    have."""
    return name.lower() == DEFAULT_RULE_NAME.lower() or is_entity_name(name)


def not_a_name(name: str) -> str:
    """Say what the name of a subscription or rule must be."""
    return f"'{name}' is not a name of 1 to {NAME_LENGTH_MAX} letters, digits and . - _"


def destination_path(text: str) -> str:
    """Return the path of a destination that is named plainly or by an address (sb://host/path)."""
    _, mark, rest = text.partition("://")
    if not mark:
        return text
    _, _, path = rest.partition("/")
    # An address that names nothing stays as it is, so that it is a problem and not "no forward".
    return unquote(path).strip("/") or text


def given_destinations(texts: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Remark how destinations were named, by property; those that are plain paths say it all."""
    return tuple((name, text) for name, text in texts.items() if destination_path(text) != text)


def shown_destination(remarks: tuple[tuple[str, str], ...], name: str, path: str) -> str:
    """Return a destination as it was given, as long as that still means it."""
    text = dict(remarks).get(name, "")
    return text if text and destination_path(text) == path else path


def _is_name(text: str, length_max: int, signs: str) -> bool:
    if not 0 < len(text) <= length_max:
        return False
    if not (text[0].isalnum() and text[-1].isalnum()):
        return False
    return all(char.isascii() and (char.isalnum() or char in signs) for char in text)


def _is_below_a_topic(path: str) -> bool:
    """Return whether the path would be the address of a subscription, or of a list of them."""
    return "/subscriptions/" in f"{path.lower()}/"


def _path_problems(path: str) -> Problems:
    return [] if is_entity_path(path) else [("Name", _not_a_path(path))]


def _not_a_path(path: str) -> str:
    if _is_below_a_topic(path):
        return f"'{path}' is the address of a subscription, not of a queue or topic"
    return f"'{path}' is not a name of 1 to {PATH_LENGTH_MAX} letters, digits and . - _ /"


def _keeping_problems(
    message_size_max: int, size_max: int, duplicate_window_ms: int, partitions: int
) -> Problems:
    """What is wrong with the way in which messages are taken in and kept."""
    found: Problems = []
    if not 1_024 <= message_size_max <= MESSAGE_SIZE_MAX_MAX:
        found.append(("MaxMessageSizeInKilobytes", "must be between 1 and 102400"))
    if not 0 <= size_max <= SIZE_MAX_MAX:
        found.append(
            ("MaxSizeInMegabytes", f"must be between 0 (no limit) and {SIZE_MAX_MAX // MEGABYTE}")
        )
    if duplicate_window_ms and not (
        DUPLICATE_WINDOW_MS_MIN <= duplicate_window_ms <= DUPLICATE_WINDOW_MS_MAX
    ):
        found.append(
            ("DuplicateDetectionHistoryTimeWindow", "must be between 5 seconds and 7 days")
        )
    if partitions != 1 and not PARTITIONS_MIN <= partitions <= PARTITIONS_MAX:
        found.append(("PartitionCount", f"must be between {PARTITIONS_MIN} and {PARTITIONS_MAX}"))
    return found


def _life_problems(
    time_to_live_ms: int, auto_delete_ms: int, status: str, user_metadata: str
) -> Problems:
    """What is wrong with how long things live, and with what every entity has."""
    found: Problems = []
    if time_to_live_ms != FOREVER_MS and time_to_live_ms < 1_000:
        found.append(("DefaultMessageTimeToLive", "must be at least one second"))
    if auto_delete_ms != FOREVER_MS and auto_delete_ms < AUTO_DELETE_MS_MIN:
        found.append(("AutoDeleteOnIdle", "must be at least five minutes"))
    if status not in STATUSES:
        found.append(("Status", f"'{status}' is none of {', '.join(STATUSES)}"))
    if len(user_metadata) > USER_METADATA_LENGTH_MAX:
        found.append(("UserMetadata", f"must have at most {USER_METADATA_LENGTH_MAX:,} characters"))
    return found


def _forward_problems(forward_to: str, forward_dead_letters_to: str) -> Problems:
    """What is wrong with the destinations; whether they exist is known to the broker alone."""
    found: Problems = []
    if forward_to and not is_entity_path(forward_to):
        found.append(("ForwardTo", _not_a_path(forward_to)))
    if forward_dead_letters_to and not is_entity_path(forward_dead_letters_to):
        found.append(("ForwardDeadLetteredMessagesTo", _not_a_path(forward_dead_letters_to)))
    return found


def _handing_out_problems(lock_duration_ms: int, delivery_count_max: int) -> Problems:
    found: Problems = []
    if not LOCK_DURATION_MS_MIN <= lock_duration_ms <= LOCK_DURATION_MS_MAX:
        found.append(("LockDuration", "must be between 5 seconds and 5 minutes"))
    if not 1 <= delivery_count_max <= DELIVERY_COUNT_MAX_MAX:
        found.append(("MaxDeliveryCount", f"must be between 1 and {DELIVERY_COUNT_MAX_MAX}"))
    return found
