"""What the writing side knows of a partition, and what can be asked of it.

A request checks itself against the partition's tail and adds its part to the commit. What a commit
that failed has changed is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, final

from peeklock.entity.records import Record
from peeklock.store.large import encode_large
from peeklock.store.records import HEADER
from peeklock.store.segments.frames import APPENDED, DROPPED, MOVED, OPENED, Part
from peeklock.store.store import Fenced, Unavailable

# The size of what is no small write, whatever it writes.
BULKY: Final = 1 << 30


@final
class Place:
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
        self.recent: list[Place] = []

    def kept(self) -> tuple[int, int, int, bool]:
        """What a commit that fails must bring back."""
        return self.epoch, self.end, self.replay_from, self.dropped

    def bring_back(self, kept: tuple[int, int, int, bool]) -> None:
        """Be again as it was."""
        self.epoch, self.end, self.replay_from, self.dropped = kept


class Request(Protocol):
    """Something that a commit is to do."""

    tail: Tail
    # The bytes that it writes, about; as large as can be where it has other work to do.
    size: int

    def apply(self, spent: int, parts: list[Part]) -> int:
        """Add what is to be written; a StoreError refuses this request alone."""
        ...


@final
class Open:
    """Put an epoch in force."""

    __slots__ = ("epoch", "size", "tail")

    def __init__(self, tail: Tail, epoch: int | None) -> None:
        self.tail: Tail = tail
        self.epoch: int | None = epoch
        self.size: int = BULKY

    def apply(self, spent: int, parts: list[Part]) -> int:
        """Answers the epoch in force; `spent` is the highest that a dropped partition had."""
        tail = self.tail
        if tail.dropped:
            raise Fenced(f"{tail.name} was dropped")
        # One that was never opened has no epoch yet; somebody before it may have had one.
        least = tail.epoch or spent + 1
        epoch = max(tail.epoch + 1, least) if self.epoch is None else self.epoch
        if epoch < least:
            raise Fenced(f"{tail.name} is owned with epoch {tail.epoch}, not {epoch}")
        if epoch != tail.epoch:
            tail.epoch = epoch
            parts.append(Part(OPENED, tail.number, 0, 0, epoch, 0, tail.name.encode()))
        return epoch


@final
class Append:
    """Add one chunk."""

    __slots__ = ("chunk", "end", "epoch", "first", "records", "replay_from", "size", "tail")

    def __init__(
        self,
        tail: Tail,
        epoch: int,
        first: int,
        end: int,
        chunk: bytes,
        replay_from: int | None,
        records: Sequence[Record] = (),
        size: int = 0,
    ) -> None:
        """Where there are records, the chunk is made of them here; their size is about its own."""
        self.tail: Tail = tail
        self.epoch: int = epoch
        self.first: int = first
        self.end: int = end
        self.chunk: bytes | bytearray = chunk
        self.size: int = size or len(chunk)
        self.replay_from: int | None = replay_from
        self.records: Sequence[Record] = records

    def apply(self, _spent: int, parts: list[Part]) -> int:
        """Answers how many bytes the chunk has."""
        tail = self.tail
        if tail.dropped or self.epoch != tail.epoch or self.epoch < 1:
            raise Fenced(f"{tail.name} is owned with epoch {tail.epoch}, not {self.epoch}")
        begins = tail.end == 0
        if not begins and self.first != tail.end:
            # An append before this one failed, or this one rests already.
            raise Unavailable(
                f"{tail.name} ends at position {tail.end}: {self.first} does not follow"
            )
        if self.records:
            try:
                self.chunk = encode_large(self.first, self.records)
            except ValueError as error:
                raise Unavailable(f"{tail.name} cannot be written: {error}") from error
            self.records = ()
        chunk = self.chunk
        at: int = HEADER.unpack_from(chunk)[3]
        replay_from = self.replay_from
        value = 0 if replay_from is None else replay_from + 1
        parts.append(Part(APPENDED, tail.number, self.first, self.end, value, at, chunk))
        tail.end = self.end
        if begins:
            tail.replay_from = self.first
        if replay_from is not None:
            tail.replay_from = replay_from
        return len(chunk)


@final
class Drop:
    """Take a partition away from everybody."""

    __slots__ = ("size", "tail")

    def __init__(self, tail: Tail) -> None:
        self.tail: Tail = tail
        self.size: int = BULKY

    def apply(self, _spent: int, parts: list[Part]) -> int:
        """Answers 1 when there was something to take away."""
        tail = self.tail
        if tail.dropped or tail.epoch == 0:
            return 0
        parts.append(Part(DROPPED, tail.number, 0, 0, tail.epoch, 0, b""))
        tail.dropped = True
        # Whoever still replays it is told.
        tail.epoch = 0
        return 1


@final
class Move:
    """Write chunks again, so that the segment they lie in has nothing alive any more."""

    __slots__ = ("parts", "size", "tail")

    def __init__(self, parts: list[Part]) -> None:
        self.tail: Tail = Tail(0, "")
        self.parts: list[Part] = parts
        self.size: int = BULKY

    def apply(self, _spent: int, parts: list[Part]) -> int:
        """Answers how many bytes are moved."""
        parts += self.parts
        return sum([part.size for part in self.parts])


def moved(number: int, place: Place, chunk: bytes) -> Part:
    """A part that says that a chunk lies here now."""
    return Part(MOVED, number, place.first, place.end, 0, place.at, chunk)
