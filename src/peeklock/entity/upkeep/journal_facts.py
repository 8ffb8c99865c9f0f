"""Facts that only the journal asks for: who got which message, which locks were renewed or lost.

Nothing that lives is rebuilt from them. They are written lazily, with the next record that must
rest anyway or when the timer fires, and nobody's reply waits for them; a crash may lose the last
second of them. Each one tells the instant at which it happened, not the one of the writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.settlement import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from peeklock.entity.tables.record_rows import BY_HAND, SEEN, JournalRows, RecordRow

# Why locks ended without a settlement that counts.
RELEASED: Final = 0  # given back by the receiver
SESSION_CLOSED: Final = 1  # the receiver let its session go
RECEIVER_GONE: Final = 2  # its connection broke, and the queue wants its messages back at once
RECONFIGURED: Final = 3  # the lock duration of the entity was changed
NOT_COUNTED: Final = 4  # abandoned where no deliveries are counted: among dead letters
RAN_OUT: Final = 5  # the lock's time was over where no deliveries are counted

# What happened to the lock of a message session.
SESSION_RENEWED: Final = 0
SESSION_LOST: Final = 1
SESSION_TAKEN_BACK: Final = 2  # by a change of the entity

# What failed because a lock was lost: an outcome of `commands`, or this.
RENEWAL: Final = 255

# Stands for the count of a delivery that was written when neither counts nor consumers were noted.
UNKNOWN_COUNT: Final = 0xFFFF_FFFF


@final
@dataclass(slots=True, init=False)
class HandedTo:
    """One delivery of messages to a consumer; `counts[i]` is how often `sequences[i]` was
    delivered in vain before, and there are no counts where all of them are zero."""

    at: Final[int]
    lane: Final[int]
    consumer: Final[str]
    sequences: Final[list[int]]
    counts: Final[list[int]]

    def __init__(
        self, at: int, lane: int, consumer: str, sequences: list[int], counts: list[int]
    ) -> None:
        self.at = at
        self.lane = lane
        self.consumer = consumer
        self.sequences = sequences
        self.counts = counts


@final
@dataclass(slots=True, init=False)
class LocksRenewed:
    """A consumer got another whole duration for the locks of these messages."""

    at: Final[int]
    lane: Final[int]
    consumer: Final[str]
    sequences: Final[list[int]]

    def __init__(self, at: int, lane: int, consumer: str, sequences: list[int]) -> None:
        self.at = at
        self.lane = lane
        self.consumer = consumer
        self.sequences = sequences


@final
@dataclass(slots=True, init=False)
class LocksReleased:
    """Locks ended and no delivery was counted; the messages are where they were before."""

    at: Final[int]
    lane: Final[int]
    why: Final[int]
    consumer: Final[str]
    sequences: Final[list[int]]

    def __init__(self, at: int, lane: int, why: int, consumer: str, sequences: list[int]) -> None:
        self.at = at
        self.lane = lane
        self.why = why
        self.consumer = consumer
        self.sequences = sequences


@final
@dataclass(slots=True, init=False)
class SettlementsFailed:
    """A consumer wanted to settle these messages (or to renew their locks) and had no lock."""

    at: Final[int]
    lane: Final[int]
    outcome: Final[int]
    consumer: Final[str]
    sequences: Final[list[int]]

    def __init__(
        self, at: int, lane: int, outcome: int, consumer: str, sequences: list[int]
    ) -> None:
        self.at = at
        self.lane = lane
        self.outcome = outcome
        self.consumer = consumer
        self.sequences = sequences


@final
@dataclass(slots=True, init=False)
class SessionLockNoted:
    """The lock of a message session was renewed or lost."""

    at: Final[int]
    lane: Final[int]
    why: Final[int]
    consumer: Final[str]
    session_id: Final[str]

    def __init__(self, at: int, lane: int, why: int, consumer: str, session_id: str) -> None:
        self.at = at
        self.lane = lane
        self.why = why
        self.consumer = consumer
        self.session_id = session_id


Note: TypeAlias = HandedTo | LocksRenewed | LocksReleased | SettlementsFailed | SessionLockNoted

NOTE_RECORDS: Final = (
    RecordRow(HandedTo, 43, BY_HAND, SEEN),
    RecordRow(
        LocksRenewed,
        44,
        "at=q lane=I 0=B consumer=consumer sequences=sequences",
        JournalRows("renew", consumer="consumer"),
    ),
    RecordRow(
        LocksReleased,
        45,
        "at=q lane=I why=B consumer=consumer sequences=sequences",
        JournalRows(
            {
                RELEASED: ("abandon", "Released"),
                SESSION_CLOSED: ("abandon", "SessionClosed"),
                RECEIVER_GONE: ("abandon", "ReceiverGone"),
                RECONFIGURED: ("lock_lost", "EntityChanged"),
                NOT_COUNTED: ("abandon", None),
                RAN_OUT: ("lock_lost", None),
            },
            consumer="consumer",
        ),
    ),
    RecordRow(
        SettlementsFailed,
        46,
        "at=q lane=I outcome=B consumer=consumer sequences=sequences",
        JournalRows(
            {
                COMPLETE: ("settle_fail", "complete"),
                ABANDON: ("settle_fail", "abandon"),
                DEFER: ("settle_fail", "defer"),
                DEAD_LETTER: ("settle_fail", "deadletter"),
                RENEWAL: ("settle_fail", "renew"),
            },
            by="outcome",
            consumer="consumer",
        ),
    ),
    RecordRow(
        SessionLockNoted,
        47,
        "at=q lane=I why=B consumer=consumer session_id=name",
        JournalRows(
            {
                SESSION_RENEWED: ("renew", None),
                SESSION_LOST: ("lock_lost", "SessionLockLost"),
                SESSION_TAKEN_BACK: ("lock_lost", "EntityChanged"),
            },
            sequences="",
            consumer="consumer",
            session="session_id",
        ),
    ),
)
