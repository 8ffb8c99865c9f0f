"""Where lock numbers get their chance from: unguessable in life, repeatable in tests."""

from __future__ import annotations

import os
import random
from typing import Final, final

CHANCE_BITS: Final = 48
_NUMBER_BYTES: Final = CHANCE_BITS // 8
# One system call fetches this many numbers.
_NUMBERS_PER_FETCH: Final = 512


@final
class SystemChance:
    """48 unguessable bits at a time, never zero."""

    __slots__ = ("_at", "_pool")

    def __init__(self) -> None:
        self._pool: bytes = b""
        self._at: int = 0

    def number(self) -> int:
        """A number between 1 and 2**48 - 1."""
        at = self._at
        if at == len(self._pool):
            self._pool = os.urandom(_NUMBER_BYTES * _NUMBERS_PER_FETCH)
            at = 0
        self._at = at + _NUMBER_BYTES
        return int.from_bytes(self._pool[at : at + _NUMBER_BYTES], "little") or 1


@final
class SeededChance:
    """The same numbers for the same seed; for tests."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random: random.Random = random.Random(seed)

    def number(self) -> int:
        """A number between 1 and 2**48 - 1."""
        return self._random.getrandbits(CHANCE_BITS) or 1
