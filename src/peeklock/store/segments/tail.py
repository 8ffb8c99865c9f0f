"""What the writing side knows of a partition, and what can be asked of it.

A request checks itself against the partition's tail and adds its part to the commit. What a commit
that failed has changed is taken back.
"""

from __future__ import annotations

from typing import Protocol, final

from peeklock.store.appending import NewChunk, epoch_for
from peeklock.store.codec.records import HEADER
from peeklock.store.committers import BULKY
from peeklock.store.segments.frames import APPENDED, DROPPED, MOVED, OPENED, FramePart
from peeklock.store.store import Fenced


@final
class ChunkPlace:
    """Where a chunk lies: its positions, `end` excluded, its instant, its segment and bytes."""

    __slots__ = ("at", "end", "first", "offset", "size", "use")

    def __init__(self, first: int, end: int, at: int, use: int, offset: int, size: int) -> None:
        self.first: int = first
        self.end: int = end
        self.at: int = at
        self.use: int = use
        self.offset: int = offset
        self.size: int = size


@final
class Tail:
    """A partition as the last commit left it. Only whoever commits changes it, and the index takes
    away from the front of `recent` what it knows by itself."""

    __slots__ = ("dropped", "end", "epoch", "name", "number", "recent", "replay_from")

    def __init__(self, number: int, name: str) -> None:
        self.number: int = number
        self.name: str = name
        self.epoch: int = 0
        self.end: int = 0
        self.replay_from: int = 0
        # Whether it is gone; who still has it in hand is fenced.
        self.dropped: bool = False
        # Chunks that the index does not know yet, in their order.
        self.recent: list[ChunkPlace] = []

    def kept(self) -> tuple[int, int, int, bool]:
        """Return what a commit that fails must bring back."""
        return self.epoch, self.end, self.replay_from, self.dropped

    def bring_back(self, kept: tuple[int, int, int, bool]) -> None:
        """Be again as it was."""
        self.epoch, self.end, self.replay_from, self.dropped = kept


class LogRequest(Protocol):
    """Something that a commit is to do."""

    tail: Tail
    size: int

    def apply(self, spent: int, parts: list[FramePart]) -> int:
        """Add what is to be written; a StoreError refuses this request alone."""
        ...


@final
class LogOpen:
    """Put an epoch in force."""

    __slots__ = ("epoch", "size", "tail")

    def __init__(self, tail: Tail, epoch: int | None) -> None:
        self.tail: Tail = tail
        self.epoch: int | None = epoch
        self.size: int = BULKY

    def apply(self, spent: int, parts: list[FramePart]) -> int:
        """Return the epoch in force; `spent` is the highest that a dropped partition had."""
        tail = self.tail
        if tail.dropped:
            raise Fenced(f"{tail.name} was dropped")
        epoch = epoch_for(tail.name, self.epoch, tail.epoch, spent)
        if epoch != tail.epoch:
            tail.epoch = epoch
            parts.append(FramePart(OPENED, tail.number, 0, 0, epoch, 0, tail.name.encode()))
        return epoch


@final
class LogAppend:
    """Add one chunk."""

    __slots__ = ("chunk", "size", "tail")

    def __init__(self, tail: Tail, chunk: NewChunk) -> None:
        self.tail: Tail = tail
        self.chunk: NewChunk = chunk
        self.size: int = chunk.size

    def apply(self, _spent: int, parts: list[FramePart]) -> int:
        """Return how many bytes the chunk has."""
        tail, chunk = self.tail, self.chunk
        chunk.check(tail.name, tail.epoch, tail.end)
        data = chunk.encode(tail.name)
        self.size = len(data)
        at: int = HEADER.unpack_from(data)[3]
        replay_from = chunk.replay_from
        value = 0 if replay_from is None else replay_from + 1
        parts.append(FramePart(APPENDED, tail.number, chunk.first, chunk.end, value, at, data))
        if tail.end == 0:
            tail.replay_from = chunk.first
        tail.end = chunk.end
        if replay_from is not None:
            tail.replay_from = replay_from
        return self.size


@final
class LogDrop:
    """Take a partition away from everybody."""

    __slots__ = ("size", "tail")

    def __init__(self, tail: Tail) -> None:
        self.tail: Tail = tail
        self.size: int = BULKY

    def apply(self, _spent: int, parts: list[FramePart]) -> int:
        """Answers 1 when there was something to take away."""
        tail = self.tail
        if tail.dropped or tail.epoch == 0:
            return 0
        parts.append(FramePart(DROPPED, tail.number, 0, 0, tail.epoch, 0, b""))
        tail.dropped = True
        # Whoever still replays it is told.
        tail.epoch = 0
        return 1


@final
class LogMove:
    """Write chunks again, so that the segment they lie in has nothing alive any more."""

    __slots__ = ("parts", "size", "tail")

    def __init__(self, parts: list[FramePart]) -> None:
        self.tail: Tail = Tail(0, "")
        self.parts: list[FramePart] = parts
        self.size: int = BULKY

    def apply(self, _spent: int, parts: list[FramePart]) -> int:
        """Return how many bytes are moved."""
        parts += self.parts
        return sum([part.size for part in self.parts])


def moved(number: int, place: ChunkPlace, chunk: bytes) -> FramePart:
    """Return a part that says that a chunk lies here now."""
    return FramePart(MOVED, number, place.first, place.end, 0, place.at, chunk)
