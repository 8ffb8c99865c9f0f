"""Numbers kept in order, so that a look from any of them on costs what it finds."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, final

BLOCK_MAX: Final = 1024

# So many times as many are sorted in one step as are given out in one.
SORTED: Final = 4


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
    """Different numbers that are put into order a part at a time: heaps of them, each of which lies
    all over, are sorted one after the other; then the lowest of all heaps are taken together.

    What is sorted lies in arrays, at which the collector does not look: in lists it would look at
    all numbers in one step.
    """

    __slots__ = ("_heads", "_is_sorted", "_left", "_runs")

    def __init__(self, heaps: Iterable[Iterable[int]]) -> None:
        self._left: Iterator[Iterable[int]] = iter(heaps)  # those that are not sorted yet
        self._is_sorted: bool = False
        self._runs: list[array[int]] = []
        self._heads: list[int] = []  # of each run, where those begin that were not given out

    @property
    def is_done(self) -> bool:
        """Whether all were given out."""
        return self._is_sorted and not self._runs

    def next(self, count: int) -> list[int]:
        """About so many of the lowest that were not given out yet, in order; none while heaps are
        sorted, and until then all of them stay where they are."""
        given: list[int] = []
        if not self._is_sorted:
            self._is_sorted = self._sort(SORTED * count)
            return given
        while self._runs and len(given) < count:
            given += self._lowest(count)
        return given

    def _sort(self, count: int) -> bool:
        """Sort heaps until so many numbers are in order; tells whether those were the last."""
        for heap in self._left:
            run = array("q", sorted(heap))
            if run:
                self._runs.append(run)
                self._heads.append(0)
            count -= len(run)
            if count <= 0:
                return False
        return True

    def _lowest(self, count: int) -> list[int]:
        """So many at most. Each run has some that are not above the last one given, but no more
        than its share, because that one is where the first run's share ends."""
        runs, heads = self._runs, self._heads
        share = max(1, count // len(runs))
        ends = [min(head + share, len(run)) for run, head in zip(runs, heads, strict=True)]
        last = min([run[end - 1] for run, end in zip(runs, ends, strict=True)])
        found: list[int] = []
        is_any_empty = False
        for at, run in enumerate(runs):
            head = heads[at]
            end = bisect_right(run, last, head, ends[at])
            if end > head:
                found += run[head:end]
                heads[at] = end
                is_any_empty = is_any_empty or end == len(run)
        if is_any_empty:
            left = [at for at, run in enumerate(runs) if heads[at] < len(run)]
            self._runs = [runs[at] for at in left]
            self._heads = [heads[at] for at in left]
        found.sort()
        return found
