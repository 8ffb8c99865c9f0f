"""How often something took how much: counted as it happens, read whenever somebody looks."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

# Seconds: fine around the bounds that are promised, coarse beyond.
# (Their type is told: compiled, a long tuple of numbers would become a structure of its own.)
STEP_SECONDS: Final[tuple[float, ...]] = (
    0.001,
    0.002,
    0.004,
    0.006,
    0.008,
    0.010,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
)
WAIT_SECONDS: Final[tuple[float, ...]] = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.05,
    0.25,
    1.0,
    5.0,
)
COMMIT_BYTES: Final[tuple[float, ...]] = tuple(1 << power for power in range(8, 28, 2))


@final
class Histogram:
    """Counts by upper bounds, with the sum and the largest."""

    __slots__ = ("bounds", "counts", "largest", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds: Final = bounds
        # One for each bound, and one for what is beyond all of them.
        self.counts: Final[list[int]] = [0] * (len(bounds) + 1)
        self.sum: float = 0.0
        self.largest: float = 0.0

    def note(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
        if value > self.largest:
            self.largest = value

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)
