"""Whether an entity has been idle for so long that it is to be deleted (AutoDeleteOnIdle)."""

from __future__ import annotations

from typing import final

from peeklock.entity.definition import FOREVER_MS
from peeklock.entity.message import NEVER


@final
class Idleness:
    """Remembers when an entity was last used; idle is what is neither used nor attached to."""

    def __init__(self, now: int) -> None:
        self.used_at: int = now  # being made is the first use

    def used(self, now: int) -> None:
        """It was sent to, received from, looked at or changed, or somebody came or went."""
        if now > self.used_at:
            self.used_at = now

    def is_idle(self, now: int, links: int, auto_delete_ms: int) -> bool:
        """Whether its time is over. While links are attached it is in use all the time, so that
        the wait starts anew when the last one has gone."""
        if links > 0:
            self.used(now)
            return False
        deadline = self.deadline(auto_delete_ms)
        return deadline != NEVER and deadline <= now

    def deadline(self, auto_delete_ms: int) -> int:
        """When it will have been idle long enough if nothing happens; NEVER if it may stay."""
        return NEVER if auto_delete_ms == FOREVER_MS else self.used_at + auto_delete_ms
