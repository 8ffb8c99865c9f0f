"""Numbers kept in order, so that a look from any of them on costs what it finds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, final

BLOCK_MAX: Final = 1024

# Numbers that differ only in so many bits are sorted together.
SORTED_BITS: Final = 10

# Before that, so many times as many are dealt out in one step as are given out in one.
DEALT: Final = 8


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


@final
class Sorting:
    """Different numbers that are put into order a part at a time: first they are dealt out by their
    upper bits, then each heap is sorted when its turn comes."""

    __slots__ = ("_heaps", "_is_dealt", "_left", "_order")

    def __init__(self, numbers: Iterable[int]) -> None:
        self._left: Iterator[int] = iter(numbers)  # those that are not dealt out yet
        self._is_dealt: bool = False
        self._heaps: dict[int, list[int]] = {}
        self._order: list[int] = []  # of the heaps, the next one last

    @property
    def is_done(self) -> bool:
        """Whether all were given out."""
        return self._is_dealt and not self._order

    def next(self, count: int) -> list[int]:
        """About so many of the lowest that were not given out yet, in order; none while they are
        dealt out, and until then all of them stay where they are."""
        given: list[int] = []
        if not self._is_dealt:
            heaps = self._heaps
            part = list(islice(self._left, DEALT * count))
            for number in part:
                heaps.setdefault(number >> SORTED_BITS, []).append(number)
            if len(part) < DEALT * count:
                self._is_dealt = True
                self._order = sorted(heaps, reverse=True)
            return given
        while self._order and len(given) < count:
            given += sorted(self._heaps.pop(self._order.pop()))
        return given
