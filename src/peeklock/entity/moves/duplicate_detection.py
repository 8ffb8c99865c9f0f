"""Duplicate detection: which message ids were seen within the window (R-S9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from peeklock.entity.message import Message

# A window's ids lie in so many dictionaries, so that none of them is large: to grow, to cut off or
# to write down one of them is a small step however many ids there are.
SHARDS: Final = 256

# The old ids of each are cut off so many times within a window: each cut copies all that stay, so
# that to cut with every message would cost the whole window each time.
CUTS_PER_WINDOW: Final = 32

# What one call cuts at most, counted in ids that go or are copied; the rest waits for the next.
CUT_MAX: Final = 8192

# What an id takes where it is written down, beside its characters.
ID_BYTES: Final = 12


def seen_as(message: Message, is_partitioned: bool) -> str:
    """What a message is remembered by: its id, and on a partitioned entity also the session or key
    that chose the partition, so that ids need to differ only within one key (protocol 11.6)."""
    if not is_partitioned:
        return message.message_id
    key = message.session_id
    if not key and message.partition_key is not None:
        key = message.partition_key
    # The length keeps the two apart, and what has no key from what has one.
    return f":{message.message_id}" if key is None else f"{len(key)}:{key}{message.message_id}"


def id_of(seen: str, is_partitioned: bool) -> str:
    """Return the id of the message that is remembered so."""
    if not is_partitioned:
        return seen
    length, _, rest = seen.partition(":")
    return rest[int(length) if length else 0 :]


@final
class SeenIds:
    """Ids in the order in which they were seen; the window cuts the old ones off."""

    __slots__ = ("_count", "_cut_at", "_next", "_owed", "_shards", "size", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms: int = window_ms  # 0: nothing is remembered
        self.size: int = 0  # what all of them take where they are written down, about
        self._shards: list[dict[str, int]] = []  # made with the first id
        self._count: int = 0
        self._cut_at: int = 0  # when the shards that are owed a cut were last counted
        self._owed: int = 0
        self._next: int = 0  # the shard that is cut next

    def __len__(self) -> int:
        return self._count

    def is_new(self, message_id: str, now: int) -> bool:
        """Return whether the id was not seen within the window; it is remembered then."""
        ids = self._shard_of(message_id)
        seen_at = ids.get(message_id)
        if seen_at is None:
            self._count += 1
            self.size += len(message_id) + ID_BYTES
        elif seen_at + self.window_ms > now:
            return False
        else:
            del ids[message_id]  # it enters again at the end
        ids[message_id] = now
        return True

    def remember(self, message_id: str, seen_at: int) -> None:
        """Take in what was written down."""
        ids = self._shard_of(message_id)
        if ids.pop(message_id, None) is None:
            self._count += 1
            self.size += len(message_id) + ID_BYTES
        ids[message_id] = seen_at

    def remembered(self) -> Iterator[int]:
        """Return all that was written down is in: put it into its order, in which it did not come
        where a checkpoint was taken in slices. Shard by shard; return how many ids each has."""
        for number, ids in enumerate(self._shards):
            last = 0
            for seen_at in ids.values():
                if seen_at < last:
                    self._shards[number] = dict(sorted(ids.items(), key=_seen_at))
                    break
                last = seen_at
            yield len(ids)

    def prune(self, now: int) -> None:
        """Forget what is older than the window, now and then: nobody finds it by then."""
        if not self._count:
            return
        owed = (now - self._cut_at) * (CUTS_PER_WINDOW * SHARDS) // self.window_ms
        if owed > 0:
            self._cut_at = now
            self._owed = min(self._owed + owed, SHARDS)
        left = CUT_MAX
        while self._owed and left > 0:
            self._owed -= 1
            left -= self._cut(self._next, now - self.window_ms)
            self._next = (self._next + 1) % SHARDS

    def _cut(self, number: int, horizon: int) -> int:
        """Forget the old ids of one shard; return how many ids were touched."""
        ids = self._shards[number]
        old: list[str] = []
        for message_id, seen_at in ids.items():
            if seen_at > horizon:
                break
            old.append(message_id)
        if not old:
            return 1
        for message_id in old:
            del ids[message_id]
            self.size -= len(message_id) + ID_BYTES
        self._count -= len(old)
        # A dictionary that loses from its front keeps the holes; a copy does not.
        self._shards[number] = dict(ids)
        return len(old) + len(ids)

    def shard(self, number: int) -> tuple[list[str], list[int]]:
        """Return the ids of one shard and when they were seen, oldest first."""
        if not self._shards:
            return [], []
        ids = self._shards[number]
        return list(ids), list(ids.values())

    def _shard_of(self, message_id: str) -> dict[str, int]:
        if not self._shards:
            self._shards = [{} for _ in range(SHARDS)]
        return self._shards[hash(message_id) % SHARDS]


def _seen_at(pair: tuple[str, int]) -> int:
    return pair[1]
