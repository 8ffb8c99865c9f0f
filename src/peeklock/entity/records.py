"""The facts a partition writes down. The journal is all of them in order.

A record takes one position, except those that contain messages: they take one position for each
message, so that a position always finds one body. Replaying the records from the last complete
checkpoint gives the living state, locks aside.

Every record says all that it changes in absolute terms (a count, not an increment), so that a
record may be applied again to a state that already contains it: checkpoints are taken in slices
while the partition lives on, and the slices lie between the records they overlap with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.claims.records import CLAIM_RECORDS, ClaimRecord
from peeklock.entity.message import Message
from peeklock.entity.sessions.records import SESSION_RECORDS, SessionRecord
from peeklock.entity.stages.records import STAGE_RECORDS, Staged, StageRecord
from peeklock.entity.tables.record_rows import BY_HAND, SEEN, UNSEEN, JournalRows, RecordRow
from peeklock.entity.topics.records import TOPIC_RECORDS, TopicRecord
from peeklock.entity.transfers.records import TRANSFER_RECORDS, TransferRecord
from peeklock.entity.upkeep.journal_facts import NOTE_RECORDS, Note

# Why messages were removed.
COMPLETED: Final = 0
DELETED: Final = 1  # handed out by receive-and-delete
EXPIRED: Final = 2  # dropped at the end of its life
CANCELLED: Final = 3  # scheduled, taken back
PURGED: Final = 4  # by batch delete
DUE: Final = 5  # scheduled on a topic, published when its instant came

# Why messages came back.
ABANDONED: Final = 0
LOCK_EXPIRED: Final = 1

# Where a live message is.
READY: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2
STAGED: Final = 8  # in no line: it rests with its stage
CLAIMED: Final = 5  # by an owner that will settle it; 3 and 4 are places that are not written


@final
@dataclass(slots=True, init=False)
class Enqueued:
    """Messages entered the main lane; message i has sequence `first_sequence + i`."""

    at: Final[int]
    first_sequence: Final[int]
    messages: Final[list[Message]]

    def __init__(self, at: int, first_sequence: int, messages: list[Message]) -> None:
        self.at = at
        self.first_sequence = first_sequence
        self.messages = messages


@final
@dataclass(slots=True, init=False)
class Scheduled:
    """Messages were accepted for later; message i has sequence `first_sequence + i`."""

    at: Final[int]
    first_sequence: Final[int]
    messages: Final[list[Message]]

    def __init__(self, at: int, first_sequence: int, messages: list[Message]) -> None:
        self.at = at
        self.first_sequence = first_sequence
        self.messages = messages


@final
@dataclass(slots=True, init=False)
class Activated:
    """Scheduled messages fell due and got new numbers: `sequences[i]` is now
    `first_sequence + i` and expires at `expirations[i]` (0: never)."""

    at: Final[int]
    first_sequence: Final[int]
    sequences: Final[list[int]]
    expirations: Final[list[int]]

    def __init__(
        self, at: int, first_sequence: int, sequences: list[int], expirations: list[int]
    ) -> None:
        self.at = at
        self.first_sequence = first_sequence
        self.sequences = sequences
        self.expirations = expirations


@final
@dataclass(slots=True, init=False)
class Removed:
    """Messages are gone for good, and why."""

    at: Final[int]
    lane: Final[int]
    why: Final[int]
    sequences: Final[list[int]]

    def __init__(self, at: int, lane: int, why: int, sequences: list[int]) -> None:
        self.at = at
        self.lane = lane
        self.why = why
        self.sequences = sequences


@final
@dataclass(slots=True, init=False)
class Returned:
    """Locks ended without success; `counts[i]` is the new delivery count of `sequences[i]`."""

    at: Final[int]
    lane: Final[int]
    why: Final[int]
    sequences: Final[list[int]]
    counts: Final[list[int]]

    def __init__(
        self, at: int, lane: int, why: int, sequences: list[int], counts: list[int]
    ) -> None:
        self.at = at
        self.lane = lane
        self.why = why
        self.sequences = sequences
        self.counts = counts


@final
@dataclass(slots=True, init=False)
class Deferred:
    """Messages were set aside, to be fetched by number only."""

    at: Final[int]
    lane: Final[int]
    sequences: Final[list[int]]
    counts: Final[list[int]]

    def __init__(self, at: int, lane: int, sequences: list[int], counts: list[int]) -> None:
        self.at = at
        self.lane = lane
        self.sequences = sequences
        self.counts = counts


@final
@dataclass(slots=True, init=False)
class DeadLettered:
    """Messages moved from `lane` to its dead-letter lane."""

    at: Final[int]
    lane: Final[int]
    sequences: Final[list[int]]
    counts: Final[list[int]]
    reason: Final[str | None]
    description: Final[str | None]

    def __init__(
        self,
        at: int,
        lane: int,
        sequences: list[int],
        counts: list[int],
        reason: str | None,
        description: str | None,
    ) -> None:
        self.at = at
        self.lane = lane
        self.sequences = sequences
        self.counts = counts
        self.reason = reason
        self.description = description


@final
@dataclass(slots=True, init=False)
class Changed:
    """A receiver changed a message's properties: all changes so far, name to encoded value."""

    at: Final[int]
    sequence: Final[int]
    changes: Final[dict[str, bytes]]

    def __init__(self, at: int, sequence: int, changes: dict[str, bytes]) -> None:
        self.at = at
        self.sequence = sequence
        self.changes = changes


@final
@dataclass(slots=True, init=False)
class DuplicatesDropped:
    """Messages whose ids were seen within the window; for the journal only."""

    at: Final[int]
    message_ids: Final[list[str]]

    def __init__(self, at: int, message_ids: list[str]) -> None:
        self.at = at
        self.message_ids = message_ids


@final
@dataclass(slots=True, init=False)
class Remembered:
    """Ids of the duplicate detection, oldest first, in a checkpoint or beside a send."""

    at: Final[int]
    message_ids: Final[list[str]]
    instants: Final[list[int]]

    def __init__(self, at: int, message_ids: list[str], instants: list[int]) -> None:
        self.at = at
        self.message_ids = message_ids
        self.instants = instants


@final
@dataclass(slots=True, init=False)
class Reserved:
    """Numbers below this one are given away, used or not."""

    at: Final[int]
    next_sequence: Final[int]

    def __init__(self, at: int, next_sequence: int) -> None:
        self.at = at
        self.next_sequence = next_sequence


@final
@dataclass(slots=True, init=False)
class Lost:
    """What stood here was damaged and was given up by hand (`peeklock store repair`): later records
    may tell of messages that nobody knows. Numbers below this one may be given away."""

    at: Final[int]
    next_sequence: Final[int]

    def __init__(self, at: int, next_sequence: int) -> None:
        self.at = at
        self.next_sequence = next_sequence


@final
@dataclass(slots=True, init=False)
class Relocated:
    """Bodies written again at the tail, so that the old chunk they lay in can be dropped."""

    at: Final[int]
    sequences: Final[list[int]]
    messages: Final[list[Message]]

    def __init__(self, at: int, sequences: list[int], messages: list[Message]) -> None:
        self.at = at
        self.sequences = sequences
        self.messages = messages


@final
@dataclass(slots=True, init=False)
class RelocatedCopies:
    """A body that several copies of a topic's message share, written again at the tail."""

    at: Final[int]
    sequences: Final[list[int]]
    message: Final[Message]

    def __init__(self, at: int, sequences: list[int], message: Message) -> None:
        self.at = at
        self.sequences = sequences
        self.message = message


@final
@dataclass(slots=True, init=False)
class CheckpointBegun:
    """From here on slices of the live state follow, between the other records."""

    at: Final[int]
    next_sequence: Final[int]

    def __init__(self, at: int, next_sequence: int) -> None:
        self.at = at
        self.next_sequence = next_sequence


@final
class Kept:
    """One live message in a checkpoint: all that its entry knows."""

    __slots__ = (
        "changes",
        "delivery_count",
        "description",
        "destination",
        "enqueue_sequence",
        "enqueued_at",
        "expires_at",
        "hops",
        "owner",
        "place",
        "position",
        "reason",
        "scheduled_at",
        "sequence",
        "session_id",
        "size",
        "source",
        "time_to_live_ms",
    )

    def __init__(self) -> None:
        self.sequence: int = 0
        self.position: int = 0
        self.place: int = READY
        self.enqueued_at: int = 0
        self.expires_at: int = 0
        self.delivery_count: int = 0
        self.size: int = 0
        # Zero, -1 and None from here on for all but a few.
        self.enqueue_sequence: int = 0
        self.scheduled_at: int = 0
        self.time_to_live_ms: int = -1
        self.reason: str | None = None
        self.description: str | None = None
        self.changes: dict[str, bytes] | None = None
        self.session_id: str | None = None
        self.hops: int = 0
        self.destination: str = ""
        self.source: str = ""
        self.owner: str = ""  # who has claimed it, where that is its place


@final
@dataclass(slots=True, init=False)
class Requeued:
    """A message that receive-and-delete had removed was never sent and is back in its lane: all
    that its entry knew, and its body again, because the first one may be gone. It lies at the
    position of this record."""

    at: Final[int]
    lane: Final[int]
    entry: Final[Kept]
    message: Final[Message]

    def __init__(self, at: int, lane: int, entry: Kept, message: Message) -> None:
        self.at = at
        self.lane = lane
        self.entry = entry
        self.message = message


@final
@dataclass(slots=True, init=False)
class CheckpointSlice:
    """A part of the live state of one lane, as it is at this position."""

    at: Final[int]
    lane: Final[int]
    entries: Final[list[Kept]]

    def __init__(self, at: int, lane: int, entries: list[Kept]) -> None:
        self.at = at
        self.lane = lane
        self.entries = entries


@final
@dataclass(slots=True, init=False)
class CheckpointEnded:
    """The checkpoint that began at that position is complete: opening may start there."""

    at: Final[int]
    begun_position: Final[int]

    def __init__(self, at: int, begun_position: int) -> None:
        self.at = at
        self.begun_position = begun_position


MessageRecord: TypeAlias = (
    Enqueued
    | Scheduled
    | Activated
    | Removed
    | Returned
    | Requeued
    | Deferred
    | DeadLettered
    | Changed
    | DuplicatesDropped
    | Remembered
    | Reserved
    | Lost
    | Relocated
    | RelocatedCopies
    | CheckpointBegun
    | CheckpointSlice
    | CheckpointEnded
)

Record: TypeAlias = (
    MessageRecord | Note | SessionRecord | ClaimRecord | StageRecord | TopicRecord | TransferRecord
)

MESSAGE_RECORDS: Final = (
    RecordRow(Enqueued, 1, BY_HAND, SEEN),
    RecordRow(Scheduled, 2, BY_HAND, SEEN),
    RecordRow(Relocated, 3, BY_HAND, UNSEEN),
    RecordRow(
        Removed,
        4,
        "at=q lane=I why=B sequences=sequences",
        JournalRows(
            {
                COMPLETED: ("complete", None),
                DELETED: ("receive_delete", None),
                EXPIRED: ("expire", None),
                CANCELLED: ("cancel", None),
                PURGED: ("purge", None),
                # Scheduled on a topic: what was published of it are sends of their own.
                DUE: ("activate", None),
            }
        ),
    ),
    RecordRow(
        Returned,
        6,
        "at=q lane=I why=B sequences=sequences counts=counts",
        JournalRows(
            {ABANDONED: ("abandon", None), LOCK_EXPIRED: ("lock_lost", None)}, counts="counts"
        ),
    ),
    RecordRow(Activated, 7, "at=q first_sequence=Q sequences=sequences expirations=instants", SEEN),
    RecordRow(
        Deferred,
        8,
        "at=q lane=I 0=B sequences=sequences counts=counts",
        JournalRows("defer", counts="counts"),
    ),
    RecordRow(
        DeadLettered,
        9,
        "at=q lane=I 0=B sequences=sequences counts=counts reason=text description=text",
        SEEN,
    ),
    RecordRow(Changed, 10, "at=q sequence=Q changes=changes", SEEN),
    RecordRow(CheckpointBegun, 11, "at=q next_sequence=Q", UNSEEN),
    RecordRow(CheckpointSlice, 12, "at=q lane=I 0=B entries=entries", UNSEEN),
    RecordRow(CheckpointEnded, 13, "at=q begun_position=Q", UNSEEN),
    RecordRow(DuplicatesDropped, 17, "at=q 0=Q message_ids=texts", SEEN),
    RecordRow(Remembered, 18, "at=q 0=Q message_ids=texts instants=instants", UNSEEN),
    RecordRow(Reserved, 20, "at=q next_sequence=Q", UNSEEN),
    RecordRow(RelocatedCopies, 22, BY_HAND, UNSEEN),
    RecordRow(Requeued, 53, BY_HAND, SEEN),
    RecordRow(Lost, 54, "at=q next_sequence=Q", UNSEEN),
)
RECORD_ROWS: Final = (
    *MESSAGE_RECORDS,
    *NOTE_RECORDS,
    *SESSION_RECORDS,
    *CLAIM_RECORDS,
    *STAGE_RECORDS,
    *TOPIC_RECORDS,
    *TRANSFER_RECORDS,
)
RETIRED_KINDS: Final = frozenset({5})
"""Numbers of records that nothing writes any more: deliveries without counts and consumers."""


def width(record: Record) -> int:
    """Return how many positions the record takes."""
    if isinstance(record, Enqueued):
        return len(record.messages)
    if isinstance(record, (Scheduled, Relocated, Staged)):
        return len(record.messages)
    return 1
