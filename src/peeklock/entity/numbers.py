"""Numbers kept in order, so that a look from any of them on costs what it finds."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

BLOCK_MAX: Final = 1024


@final
class Numbers:
    """Different numbers in blocks; most come in at the end, and leave anywhere."""

    __slots__ = ("_blocks", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[int]] = []
        self._lasts: list[int] = []  # of each block

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._blocks

    def add(self, number: int) -> None:
        """Take one in that is not here."""
        blocks = self._blocks
        lasts = self._lasts
        if not blocks or number > lasts[-1]:
            if blocks and len(blocks[-1]) < BLOCK_MAX:
                blocks[-1].append(number)
                lasts[-1] = number
            else:
                blocks.append([number])
                lasts.append(number)
            return
        at = bisect_left(lasts, number)
        block = blocks[at]
        block.insert(bisect_left(block, number), number)
        if len(block) > BLOCK_MAX:
            half = BLOCK_MAX // 2
            blocks.insert(at, block[:half])
            lasts.insert(at, block[half - 1])
            del block[:half]

    def remove(self, number: int) -> None:
        """Let one go that is here."""
        at = bisect_left(self._lasts, number)
        block = self._blocks[at]
        place = bisect_left(block, number)
        assert block[place] == number, "a number leaves that is here"
        del block[place]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at]
            del self._lasts[at]

    def first(self, low: int, count_max: int) -> list[int]:
        """So many at most, in order, from this number on."""
        found: list[int] = []
        at = bisect_left(self._lasts, low)
        while at < len(self._blocks) and len(found) < count_max:
            block = self._blocks[at]
            start = bisect_left(block, low)
            found += block[start : start + count_max - len(found)]
            at += 1
        return found
