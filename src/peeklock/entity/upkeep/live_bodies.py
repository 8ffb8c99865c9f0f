"""Where the bodies of live messages lie: counted per block of positions, so that the store can
drop what nobody needs, and rewritten at the tail where a block has become sparse."""

from __future__ import annotations

from typing import Final, final

BLOCK_BITS: Final = 12
BLOCK: Final = 1 << BLOCK_BITS
"""Positions per block; the store's trim uses the same number (a test compares them)."""

# A block is sparse when at most an eighth of it lives: relocating that to the tail writes one byte
# for every seven that are freed.
SPARSE_MAX: Final = BLOCK // 8


@final
class LiveBodies:
    """How many live bodies each block of positions holds, and what there is beside them."""

    __slots__ = ("_blocks", "count", "detail_bytes", "session_count", "size", "state_bytes")

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self.count: int = 0
        self.size: int = 0
        self.detail_bytes: int = 0  # of what receivers have said about messages
        self.session_count: int = 0
        self.state_bytes: int = 0  # of the states of all sessions, which lie in memory as a whole

    def add(self, position: int, size: int) -> None:
        """A body rests at this position."""
        block = position >> BLOCK_BITS
        self._blocks[block] = self._blocks.get(block, 0) + 1
        self.count += 1
        self.size += size

    def add_run(self, first: int, count: int, size: int) -> None:
        """So many bodies rest at positions in a row."""
        blocks = self._blocks
        self.count += count
        self.size += size
        while count:
            block = first >> BLOCK_BITS
            here = min(count, ((block + 1) << BLOCK_BITS) - first)
            blocks[block] = blocks.get(block, 0) + here
            first += here
            count -= here

    def add_copies(self, position: int, size: int, count: int) -> None:
        """So many copies share the body at this position; each counts as one."""
        block = position >> BLOCK_BITS
        self._blocks[block] = self._blocks.get(block, 0) + count
        self.count += count
        self.size += size * count

    def remove(self, position: int, size: int) -> None:
        """Nobody needs the body at this position any more."""
        block = position >> BLOCK_BITS
        left = self._blocks[block] - 1
        if left:
            self._blocks[block] = left
        else:
            del self._blocks[block]
        self.count -= 1
        self.size -= size

    def blocks(self) -> list[int]:
        """Return the blocks that hold at least one live body."""
        return sorted(self._blocks)

    def sparse_blocks(self, below: int) -> list[int]:
        """Blocks wholly below a position in which hardly anything lives, if relocating their bodies
        to the tail frees enough to be worth a walk over all live messages."""
        sparse = [
            block
            for block, live in self._blocks.items()
            if live <= SPARSE_MAX and (block + 1) << BLOCK_BITS <= below
        ]
        freed = sum(BLOCK - self._blocks[block] for block in sparse)
        return sorted(sparse) if freed * 4 >= self.count else []
