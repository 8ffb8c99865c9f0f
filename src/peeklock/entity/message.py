"""A message as the partition holds it: two opaque byte strings and the few traits it decides by."""

from __future__ import annotations

from typing import Final, final

NEVER: Final = 0
"""The instant that does not come: no expiry, no schedule, no lock."""

NO_DURATION: Final = -1


@final
class Traits:
    """What there is to know of a message beside its bytes; most messages have none of it."""

    __slots__ = (
        "dead_letter_source",
        "enqueue_sequence",
        "expires_at",
        "hops",
        "message_id",
        "partition_key",
        "scheduled_at",
        "session_id",
        "time_to_live_ms",
    )

    def __init__(
        self,
        *,
        message_id: str = "",
        time_to_live_ms: int = NO_DURATION,
        scheduled_at: int = NEVER,
        session_id: str | None = None,
        partition_key: str | None = None,
        hops: int = 0,
        enqueue_sequence: int = 0,
        dead_letter_source: str = "",
    ) -> None:
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


def traits_of(time_to_live_ms: int, scheduled_at: int) -> Traits | None:
    """Return what a sender wishes of the time of a message, where it wishes anything."""
    if time_to_live_ms == NO_DURATION and scheduled_at == NEVER:
        return None
    return Traits(time_to_live_ms=time_to_live_ms, scheduled_at=scheduled_at)


NO_TRAITS: Final = Traits()
"""Read in place of traits that are not there; never written to."""


@final
class Message:
    """What a sender handed over.

    `envelope` is what the sender's gateway wants back around the content and `content` is the
    message itself, byte-exact; only a gateway can read either. `expires_at` is stamped by the
    partition when the message is enqueued; nothing else changes after construction, except that a
    copy made by an action takes over what actions do not change.

    A message that is nothing but its content has no traits: whoever handles many looks at that once
    instead of at each fact.
    """

    __slots__ = ("content", "envelope", "size", "traits")

    def __init__(self, envelope: bytes, content: bytes, traits: Traits | None = None) -> None:
        self.envelope: bytes = envelope
        self.content: bytes = content
        self.traits: Traits | None = traits
        self.size: int = len(envelope) + len(content)

    def known(self) -> Traits:
        """Return the traits, to be written to."""
        traits = self.traits
        if traits is None:
            traits = self.traits = Traits()
        return traits

    @property
    def message_id(self) -> str:
        """Its id, where the entity decides by it."""
        return (self.traits or NO_TRAITS).message_id

    @property
    def time_to_live_ms(self) -> int:
        """How long it may live, as its sender wishes."""
        return (self.traits or NO_TRAITS).time_to_live_ms

    @property
    def scheduled_at(self) -> int:
        """When it is to be enqueued."""
        return (self.traits or NO_TRAITS).scheduled_at

    @property
    def expires_at(self) -> int:
        """When its life ends."""
        return (self.traits or NO_TRAITS).expires_at

    @property
    def session_id(self) -> str | None:
        """The session it belongs to."""
        return (self.traits or NO_TRAITS).session_id

    @property
    def partition_key(self) -> str | None:
        """What keeps it together with others."""
        return (self.traits or NO_TRAITS).partition_key

    @property
    def hops(self) -> int:
        """How often it was forwarded."""
        return (self.traits or NO_TRAITS).hops

    @property
    def enqueue_sequence(self) -> int:
        """Its number in the first entity; 0 where this is the first one."""
        return (self.traits or NO_TRAITS).enqueue_sequence

    @property
    def dead_letter_source(self) -> str:
        """The entity that dead-lettered it; nothing where none did."""
        return (self.traits or NO_TRAITS).dead_letter_source

    def expire_at(self, instant: int) -> None:
        """Stamp the end of its life."""
        if instant != NEVER or self.traits is not None:
            self.known().expires_at = instant

    @property
    def has_past(self) -> bool:
        """Whether it was in other entities before, so that its entry has details to keep."""
        traits = self.traits
        return traits is not None and (
            traits.hops > 0 or traits.enqueue_sequence > 0 or traits.dead_letter_source != ""
        )

    def inherit(self, published: Message) -> None:
        """Take over what no action changes from the message that this one was made of."""
        other = published.traits
        if other is None and self.traits is None:
            return
        own = self.known()
        own.scheduled_at = published.scheduled_at
        own.hops = published.hops
        own.enqueue_sequence = published.enqueue_sequence
        own.dead_letter_source = published.dead_letter_source


@final
class BodyBudget:
    """How many bytes of bodies may still rest in memory; shared by all partitions of a broker."""

    __slots__ = ("left",)

    def __init__(self, total: int) -> None:
        self.left: int = total
