"""What a connection is about to write: the parts of one pass, joined once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from peeklock.amqp.frames.headers import HEAD_SIZE, frame_head

if TYPE_CHECKING:
    from peeklock.amqp.sessions.link import Link

# Transfers are written as they come, where the owner does not say how many bytes it takes.
NO_BOUND: Final = 1 << 61


@final
class Output:
    """Parts in order; `early` ones are a client's SASL frames, behind which the others wait.

    `room` is how many bytes of transfers may still join; `room_max` is what it is when the owner
    has taken all. Other frames are small and always join.
    """

    __slots__ = (
        "early",
        "last",
        "parts",
        "queued_size",
        "released",
        "relieved",
        "room",
        "room_max",
    )

    def __init__(self, *, released: bool) -> None:
        self.room = NO_BOUND
        self.room_max = NO_BOUND
        # What waits on all links, and those of them that wanted room and have some now.
        self.queued_size = 0
        self.relieved: list[Link] = []
        self.early: list[bytes] = []
        self.parts: list[bytes] = []
        self.released = released
        # After close nothing can follow: this is all there will be.
        self.last: bytes | None = None

    def write(self, channel: int, performative: bytes) -> None:
        """Add one frame."""
        self.parts.append(frame_head(HEAD_SIZE + len(performative), channel) + performative)

    def takes(self, size: int) -> bool:
        """Return whether a transfer of this size may join: where there is room, or as the only
        one."""
        return size <= self.room or self.room == self.room_max

    def use(self, size: int) -> None:
        """Count a transfer that has joined."""
        self.room = max(0, self.room - size)

    def pending(self) -> bool:
        """Return whether there is anything to take."""
        if self.last is not None:
            return len(self.last) > 0
        return len(self.early) > 0 or (self.released and len(self.parts) > 0)

    def take(self) -> bytes:
        """Hand the parts over as one."""
        output = self.last
        if output is not None:
            self.last = b""
            return output
        return self._join()

    def seal(self) -> None:
        """Let nothing more in: what is added from now on goes nowhere."""
        if self.last is None:
            self.last = self._join()
        self.parts = []

    def _join(self) -> bytes:
        parts = self.early
        self.early = []
        if self.released:
            parts = parts + self.parts if parts else self.parts
            self.parts = []
        return b"".join(parts)
