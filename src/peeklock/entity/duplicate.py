"""Duplicate detection: which message ids were seen within the window (R-S9)."""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.message import Message

# The old ids are cut off so many times within a window: each cut copies all that stay, so that to
# cut with every message would cost the whole window each time.
CUTS_PER_WINDOW: Final = 32


def seen_as(message: Message, is_partitioned: bool) -> str:
    """What a message is remembered by: its id, and on a partitioned entity also the session or key
    that chose the partition, so that ids need to differ only within one key (protocol 11.6)."""
    if not is_partitioned:
        return message.message_id
    key = message.session_id if message.session_id is not None else message.partition_key
    # The length keeps the two apart, and what has no key from what has one.
    return f":{message.message_id}" if key is None else f"{len(key)}:{key}{message.message_id}"


def id_of(seen: str, is_partitioned: bool) -> str:
    """The id of the message that is remembered so."""
    if not is_partitioned:
        return seen
    length, _, rest = seen.partition(":")
    return rest[int(length) if length else 0 :]


@final
class SeenIds:
    """Ids in the order in which they were seen; the window cuts the old ones off."""

    __slots__ = ("_ids", "_prune_at", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms: int = window_ms  # 0: nothing is remembered
        self._ids: dict[str, int] = {}
        self._prune_at: int = 0

    def __len__(self) -> int:
        return len(self._ids)

    def is_new(self, message_id: str, now: int) -> bool:
        """Whether the id was not seen within the window; it is remembered then."""
        seen_at = self._ids.get(message_id)
        if seen_at is not None:
            if seen_at + self.window_ms > now:
                return False
            del self._ids[message_id]  # it enters again at the end
        self._ids[message_id] = now
        return True

    def remember(self, message_id: str, seen_at: int) -> None:
        """Take in what was written down."""
        self._ids.pop(message_id, None)
        self._ids[message_id] = seen_at

    def prune(self, now: int) -> None:
        """Forget what is older than the window, now and then: nobody finds it by then."""
        ids = self._ids
        if not ids or now < self._prune_at:
            return
        self._prune_at = now + self.window_ms // CUTS_PER_WINDOW
        horizon = now - self.window_ms
        if next(iter(ids.values())) > horizon:
            return
        old: list[str] = []
        for message_id, seen_at in ids.items():
            if seen_at > horizon:
                break
            old.append(message_id)
        for message_id in old:
            del ids[message_id]
        if old:
            # A dictionary that loses from its front keeps the holes; a copy does not.
            self._ids = dict(ids)

    def all(self) -> tuple[list[str], list[int]]:
        """Every id and when it was seen, oldest first."""
        return list(self._ids), list(self._ids.values())
