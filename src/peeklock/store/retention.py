"""Which chunks may go: the rules of trim, for every store that keeps chunks.

A partition's chunks lie in three zones. From `upto` on they are needed to open the partition. From
the journal's first position up to there they are kept for readers of the journal, until they are
too old or too many. Below that lie the chunks that only live bodies hold: they go when the last
body in all of their blocks is gone.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Protocol, final

from peeklock.store.store import BLOCK

HOUR_MS: Final = 3_600_000
GIB: Final = 1 << 30


@final
@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much of the journal is kept; the bytes are those of a whole store."""

    age_ms: int = HOUR_MS
    bytes_max: int = GIB


@final
@dataclass(slots=True)
class Extent:
    """How far a partition's journal reaches, and how far trim got in what lies below it."""

    first: int = 0
    size: int = 0
    swept: int = 0


@final
@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as trim sees it: its positions, `end` excluded, its instant and its bytes."""

    first: int
    end: int
    at: int
    size: int


class Shelf(Protocol):
    """The chunks of one partition, in order."""

    def seek(self, position: int) -> Chunk | None:
        """Find the first chunk that begins at or after the position."""
        ...

    def drop(self, first: int) -> None:
        """Drop the chunk that begins there."""
        ...


@final
class Trim:
    """One call of trim, done in rounds of bounded work so that commits get in between."""

    def __init__(
        self, upto: int, keep: AbstractSet[int], now: int, retention: Retention, partitions: int
    ) -> None:
        self.upto: int = upto
        self.keep: AbstractSet[int] = keep
        self.expired_at: int = now - retention.age_ms
        # Over the limit only those give way that hold more than their share: one busy partition
        # does not cost the others their journals.
        self.share: int = retention.bytes_max // max(partitions, 1)

    def round(self, shelf: Shelf, extent: Extent, excess: int, steps: int) -> bool:
        """Do at most so many steps; return whether there may be more to do.

        `excess` is how many bytes the journals of the store hold beyond the limit.
        """
        while steps > 0:
            chunk = shelf.seek(extent.first)
            if chunk is None or chunk.end > self.upto:
                break
            crowded = excess > 0 and extent.size > self.share
            if chunk.at > self.expired_at and not crowded:
                break
            extent.first = chunk.end
            extent.size -= chunk.size
            excess -= chunk.size
            if self.live_block(chunk) < 0:
                shelf.drop(chunk.first)
            steps -= 1
        return self.sweep(shelf, extent, steps)

    def sweep(self, shelf: Shelf, extent: Extent, steps: int) -> bool:
        """Drop chunks below the journal whose last body is gone; go on where the last one ended."""
        while steps > 0:
            chunk = shelf.seek(extent.swept)
            if chunk is None or chunk.first >= extent.first:
                extent.swept = 0
                return False
            block = self.live_block(chunk)
            if block < 0:
                shelf.drop(chunk.first)
                extent.swept = chunk.end
            else:
                # Whatever begins in a live block stays: seek behind the last of them.
                while block in self.keep:
                    block += 1
                extent.swept = max(chunk.end, block * BLOCK)
            steps -= 1
        return True

    def live_block(self, chunk: Chunk) -> int:
        """Find the first block that the chunk touches and that holds live bodies, or -1."""
        for block in range(chunk.first // BLOCK, (chunk.end - 1) // BLOCK + 1):
            if block in self.keep:
                return block
        return -1
