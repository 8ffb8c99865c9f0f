"""One handing of a message to a receiver, and the token by which it is settled."""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.message import Message

# The state a message is seen in.
STATE_ACTIVE: Final = 0
STATE_DEFERRED: Final = 1
STATE_SCHEDULED: Final = 2
STATE_CLAIMED: Final = 3


class LockToken:
    """The right to settle one message, as the holder presents it. What was delivered under a lock
    is a token itself (`Delivery`).

    `number` carries the lane in its upper 16 bits and random bits in the others, so that a token
    finds its lock without a table and cannot be guessed.
    """

    __slots__ = ("number", "sequence")

    def __init__(self, sequence: int, number: int) -> None:
        self.sequence: int = sequence
        self.number: int = number


# What a text takes in memory beside its characters, about.
DETAIL_BYTES: Final = 70


@final
class Details:
    """The facts that few messages have, kept apart so that the others do not pay for them."""

    __slots__ = (
        "changes",
        "description",
        "destination",
        "enqueue_sequence",
        "hops",
        "reason",
        "scheduled_at",
        "seen",
        "size",
        "source",
        "time_to_live_ms",
    )

    def __init__(self) -> None:
        self.size: int = 0  # what receivers have said takes so much memory, about
        self.enqueue_sequence: int = 0  # the number at the first enqueue; 0: the sequence itself
        self.scheduled_at: int = 0
        self.time_to_live_ms: int = -1  # of a scheduled message: its life starts when it is due
        self.reason: str | None = None
        self.description: str | None = None
        self.hops: int = 0  # how often it was forwarded on its way here
        self.destination: str = ""  # where a transfer goes
        self.source: str = ""  # where it was dead-lettered, if that was elsewhere
        self.seen: str = ""  # of a staged one: what the duplicate detection will look for
        # Properties to set, name to encoded value. A change replaces the dictionary and never
        # alters it, because deliveries on their way out share it.
        self.changes: dict[str, bytes] | None = None

    def remember(self, message: Message) -> None:
        """Take in what a message brings along from the entities before."""
        self.hops = message.hops
        self.enqueue_sequence = message.enqueue_sequence
        self.source = message.dead_letter_source

    def weigh(self) -> int:
        """Count anew what receivers have said; return that."""
        size = 0
        if self.reason is not None:
            size += DETAIL_BYTES + len(self.reason)
        if self.description is not None:
            size += DETAIL_BYTES + len(self.description)
        if self.changes:
            for name, value in self.changes.items():
                size += 2 * DETAIL_BYTES + len(name) + len(value)
        self.size = size
        return size

    def copy(self) -> Details:
        """Return the same facts in a new object: what is on its way out must not change any
        more."""
        other = Details()
        other.size = self.size
        other.enqueue_sequence = self.enqueue_sequence
        other.scheduled_at = self.scheduled_at
        other.time_to_live_ms = self.time_to_live_ms
        other.reason = self.reason
        other.description = self.description
        other.changes = self.changes
        other.hops = self.hops
        other.destination = self.destination
        other.source = self.source
        other.seen = self.seen
        return other


@final
class Delivery(LockToken):
    """One handing of a message to a receiver, or one look at it.

    `message` is None when the body is no longer in memory; the worker fetches it by `position`
    before the reply leaves. `number` is 0 where nothing was locked.
    """

    __slots__ = (
        "delivery_count",
        "details",
        "enqueued_at",
        "expires_at",
        "locked_until",
        "message",
        "position",
        "state",
    )

    def __init__(
        self,
        sequence: int,
        number: int,
        locked_until: int,
        delivery_count: int,
        enqueued_at: int,
        expires_at: int,
        position: int,
        message: Message | None,
        details: Details | None,
        state: int,
    ) -> None:
        self.sequence = sequence
        self.number = number
        self.locked_until: int = locked_until
        self.delivery_count: int = delivery_count
        self.enqueued_at: int = enqueued_at
        self.expires_at: int = expires_at
        self.position: int = position
        self.message: Message | None = message
        self.details: Details | None = details
        self.state: int = state
