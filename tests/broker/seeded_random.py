"""Randomness that a test can repeat."""

import random
from typing import final


@final
class SeededRandom:
    """The same numbers for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self) -> int:
        """A number between 0 and 2**64 - 1."""
        return self._random.getrandbits(64)
