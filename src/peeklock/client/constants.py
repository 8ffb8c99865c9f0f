"""The words that users choose from: receive modes, message states, sub queues, sessions."""

from enum import Enum, IntEnum, StrEnum
from typing import Final


class ServiceBusReceiveMode(StrEnum):
    """How a receiver takes messages."""

    PEEK_LOCK = "peeklock"
    RECEIVE_AND_DELETE = "receiveanddelete"


class ServiceBusMessageState(IntEnum):
    """Where a message is in its life; `CLAIMED` is a word of Peeklock's own."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2
    CLAIMED = 3


class AmqpMessageBodyType(StrEnum):
    """What the content of a message is made of."""

    DATA = "data"
    SEQUENCE = "sequence"
    VALUE = "value"


class ServiceBusSubQueue(StrEnum):
    """The queues that an entity has beside its own."""

    DEAD_LETTER = "deadletter"
    TRANSFER_DEAD_LETTER = "transferdeadletter"


class ServiceBusSessionFilter(Enum):
    """Which session is wanted when none is named."""

    NEXT_AVAILABLE = 0


NEXT_AVAILABLE_SESSION: Final = ServiceBusSessionFilter.NEXT_AVAILABLE

# What stands behind an entity's path for each of its sub queues.
SUB_QUEUE_PATHS: Final = {
    ServiceBusSubQueue.DEAD_LETTER: "/$DeadLetterQueue",
    ServiceBusSubQueue.TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue",
}
