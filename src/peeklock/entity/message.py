"""A message as the partition holds it: two opaque byte strings and the few facts it decides by."""

from __future__ import annotations

from typing import Final, final

NEVER: Final = 0
"""The instant that does not come: no expiry, no schedule, no lock."""

NO_DURATION: Final = -1


@final
class Message:
    """What a sender handed over.

    `envelope` is what the sender's door wants back around the content and `content` is the
    message itself, byte-exact; only a gateway can read either. `expires_at` is stamped by the
    partition when the message is enqueued; nothing else changes after construction, except that a
    copy made by an action takes over what actions do not change.
    """

    __slots__ = (
        "content",
        "dead_letter_source",
        "enqueue_sequence",
        "envelope",
        "expires_at",
        "hops",
        "is_bare",
        "message_id",
        "partition_key",
        "scheduled_at",
        "session_id",
        "size",
        "time_to_live_ms",
    )

    def __init__(
        self,
        envelope: bytes,
        content: bytes,
        *,
        message_id: str = "",
        time_to_live_ms: int = NO_DURATION,
        scheduled_at: int = NEVER,
        session_id: str | None = None,
        partition_key: str | None = None,
        hops: int = 0,
        enqueue_sequence: int = 0,
        dead_letter_source: str = "",
        is_bare: bool = False,
    ) -> None:
        self.envelope: bytes = envelope
        self.content: bytes = content
        # Whether there is nothing but the content, for sure: most messages are so, and whoever
        # handles many looks at this once instead of at each fact.
        self.is_bare: bool = is_bare
        self.message_id: str = message_id
        self.time_to_live_ms: int = time_to_live_ms
        self.scheduled_at: int = scheduled_at
        self.expires_at: int = NEVER
        # None where there is none: the empty text is a session of its own.
        self.session_id: str | None = session_id
        self.partition_key: str | None = partition_key
        self.hops: int = hops  # how often it was forwarded already
        # What it brings along from the entities before: its first number (0: it was in none) and
        # the entity that dead-lettered it (nothing: none did).
        self.enqueue_sequence: int = enqueue_sequence
        self.dead_letter_source: str = dead_letter_source
        self.size: int = len(envelope) + len(content)

    @property
    def has_past(self) -> bool:
        """Whether it was in other entities before, so that its entry has details to keep."""
        return self.hops > 0 or self.enqueue_sequence > 0 or self.dead_letter_source != ""

    def inherit(self, published: Message) -> None:
        """Take over what no action changes from the message that this one was made of."""
        self.scheduled_at = published.scheduled_at
        self.hops = published.hops
        self.enqueue_sequence = published.enqueue_sequence
        self.dead_letter_source = published.dead_letter_source


@final
class BodyBudget:
    """How many bytes of bodies may still rest in memory; shared by all partitions of a broker."""

    __slots__ = ("left",)

    def __init__(self, total: int) -> None:
        self.left: int = total
