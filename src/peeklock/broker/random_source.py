"""Where lock numbers and identifiers get their randomness from: unguessable in life, repeatable in
tests."""

from __future__ import annotations

import os
import random
import struct
from typing import Final, final

CHANCE_BITS: Final = 64
# One system call fetches this many numbers.
_FETCHED: Final = 512
_NUMBERS: Final = struct.Struct(f"<{_FETCHED}Q")


@final
class SystemRandom:
    """64 unguessable bits at a time."""

    __slots__ = ("_pool",)

    def __init__(self) -> None:
        self._pool: list[int] = []

    def number(self) -> int:
        """A number between 0 and 2**64 - 1."""
        pool = self._pool
        if not pool:
            pool.extend(_NUMBERS.unpack(os.urandom(_NUMBERS.size)))
        return pool.pop()


@final
class SeededRandom:
    """The same numbers for the same seed; for tests."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random: random.Random = random.Random(seed)

    def number(self) -> int:
        """A number between 0 and 2**64 - 1."""
        return self._random.getrandbits(CHANCE_BITS)
