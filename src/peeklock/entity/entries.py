"""One live message as its partition knows it, and the lock on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from peeklock.entity.deliveries import Details
from peeklock.entity.message import Message
from peeklock.entity.records import READY
from peeklock.entity.replies import Origin

if TYPE_CHECKING:
    from peeklock.entity.lane import Lane

# Places beyond those that a record can name (records.READY, DEFERRED, SCHEDULED, CLAIMED).
LOCKED: Final = 3
GONE: Final = 4

# The deadline of a lock that lasts as long as its session, or until its message is forwarded:
# no clock reaches it.
WITH_SESSION: Final = 1 << 62


@final
class Entry:
    """One live message as its lane knows it; the body is here only while the budget allows."""

    __slots__ = (
        "delivery_count",
        "details",
        "enqueued_at",
        "expires_at",
        "message",
        "place",
        "position",
        "sequence",
        "session_id",
        "size",
    )

    def __init__(
        self,
        sequence: int,
        position: int,
        enqueued_at: int,
        expires_at: int,
        size: int,
        message: Message | None,
    ) -> None:
        self.sequence: int = sequence
        self.position: int = position
        self.enqueued_at: int = enqueued_at
        self.expires_at: int = expires_at
        self.size: int = size
        self.delivery_count: int = 0
        self.place: int = READY
        self.message: Message | None = message
        self.details: Details | None = None
        self.session_id: str | None = None

    def __lt__(self, other: Entry) -> bool:
        """Two of one number meet in a heap where one of them is gone: which is first is all one."""
        return self.sequence < other.sequence

    def moved(self) -> Entry:
        """Return the same message under a new object, for another line; this one is gone.

        What still points here (a heap of deadlines, a line that skips lazily) must not mistake
        the message in its new place for the one it knew.
        """
        other = Entry(
            self.sequence,
            self.position,
            self.enqueued_at,
            self.expires_at,
            self.size,
            self.message,
        )
        other.delivery_count = self.delivery_count
        other.details = self.details
        other.session_id = self.session_id
        self.message = None
        self.place = GONE
        return other

    def detailed(self) -> Details:
        """Return a copy of the details that may be changed: earlier ones may be on their way
        out."""
        details = Details() if self.details is None else self.details.copy()
        self.details = details
        return details


# Stands in a line where an entry was taken out, which goes with whoever has it: the places in front
# of the head are cut off by the hundred thousand, and hold nothing that would have to go with them.
TAKEN: Final = Entry(0, 0, 0, 0, 0, None)
TAKEN.place = GONE


@final
class Lock:
    """The timed right of one receiver to settle one message."""

    __slots__ = ("deferred", "entry", "line", "number", "origin", "until")

    def __init__(
        self, entry: Entry, line: Lane, number: int, until: int, origin: Origin, deferred: bool
    ) -> None:
        self.entry: Entry = entry
        self.line: Lane = line  # where the message returns to: its lane, or its session's line
        self.number: int = number
        self.until: int = until
        self.origin: Origin = origin
        self.deferred: bool = deferred  # locked out of deferral, and returns there
