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
    partition when the message is enqueued; nothing else changes after construction.
    """

    __slots__ = (
        "content",
        "envelope",
        "expires_at",
        "hops",
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
    ) -> None:
        self.envelope: bytes = envelope
        self.content: bytes = content
        self.message_id: str = message_id
        self.time_to_live_ms: int = time_to_live_ms
        self.scheduled_at: int = scheduled_at
        self.expires_at: int = NEVER
        # None where there is none: the empty text is a session of its own.
        self.session_id: str | None = session_id
        self.partition_key: str | None = partition_key
        self.hops: int = hops  # how often it was forwarded already
        self.size: int = len(envelope) + len(content)


@final
class BodyBudget:
    """How many bytes of bodies may still rest in memory; shared by all partitions of a broker."""

    __slots__ = ("left",)

    def __init__(self, total: int) -> None:
        self.left: int = total
