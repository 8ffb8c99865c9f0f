"""The description of an entity: what its owner chose, and the limits of the choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

FOREVER_MS: Final = -1
"""The duration that never ends (the service writes it as P10675199DT2H48M5.4775807S)."""

LOCK_DURATION_MS_MIN: Final = 5_000
LOCK_DURATION_MS_MAX: Final = 300_000  # five minutes, R-L1
MESSAGE_SIZE_MAX_DEFAULT: Final = 262_144
MESSAGE_SIZE_MAX_MAX: Final = 100 * 1024 * 1024
DELIVERY_COUNT_MAX_MAX: Final = 2_000
PATH_LENGTH_MAX: Final = 260

ACTIVE: Final = "Active"
DISABLED: Final = "Disabled"
SEND_DISABLED: Final = "SendDisabled"
RECEIVE_DISABLED: Final = "ReceiveDisabled"
STATUSES: Final = (ACTIVE, DISABLED, SEND_DISABLED, RECEIVE_DISABLED)


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
    batched_store_access: Final[bool]
    # The articles let a broken connection drop its locks; the SDKs settle by token after a
    # reconnect. False keeps the lock until it expires, True restores the articles (R-S8).
    unlock_on_disconnect: Final[bool]
    status: Final[str]
    user_metadata: Final[str]

    def __init__(
        self,
        path: str,
        *,
        lock_duration_ms: int = 60_000,
        delivery_count_max: int = 10,
        time_to_live_ms: int = FOREVER_MS,
        dead_letter_on_expiration: bool = False,
        message_size_max: int = MESSAGE_SIZE_MAX_DEFAULT,
        batched_store_access: bool = True,
        unlock_on_disconnect: bool = False,
        status: str = ACTIVE,
        user_metadata: str = "",
    ) -> None:
        self.path = path
        self.lock_duration_ms = lock_duration_ms
        self.delivery_count_max = delivery_count_max
        self.time_to_live_ms = time_to_live_ms
        self.dead_letter_on_expiration = dead_letter_on_expiration
        self.message_size_max = message_size_max
        self.batched_store_access = batched_store_access
        self.unlock_on_disconnect = unlock_on_disconnect
        self.status = status
        self.user_metadata = user_metadata

    def problems(self) -> list[tuple[str, str]]:
        """Each wrong property with what is wrong about it; empty when all is well."""
        found: list[tuple[str, str]] = []
        if not is_entity_path(self.path):
            found.append(("Name", f"'{self.path}' is not a name of letters, digits and . - _ /"))
        if not LOCK_DURATION_MS_MIN <= self.lock_duration_ms <= LOCK_DURATION_MS_MAX:
            found.append(("LockDuration", "must be between 5 seconds and 5 minutes"))
        if not 1 <= self.delivery_count_max <= DELIVERY_COUNT_MAX_MAX:
            found.append(("MaxDeliveryCount", f"must be between 1 and {DELIVERY_COUNT_MAX_MAX}"))
        if self.time_to_live_ms != FOREVER_MS and self.time_to_live_ms < 1_000:
            found.append(("DefaultMessageTimeToLive", "must be at least one second"))
        if not 1_024 <= self.message_size_max <= MESSAGE_SIZE_MAX_MAX:
            found.append(("MaxMessageSizeInKilobytes", "must be between 1 and 102400"))
        if self.status not in STATUSES:
            found.append(("Status", f"'{self.status}' is none of {', '.join(STATUSES)}"))
        if len(self.user_metadata) > 1_024:
            found.append(("UserMetadata", "must have at most 1,024 characters"))
        return found


def is_entity_path(path: str) -> bool:
    """Whether the service would take this as the name of a queue or topic (protocol 11.1)."""
    if not 0 < len(path) <= PATH_LENGTH_MAX:
        return False
    if not (path[0].isalnum() and path[-1].isalnum()):
        return False
    return all(char.isascii() and (char.isalnum() or char in "._-/") for char in path)
