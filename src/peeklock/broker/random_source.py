"""Where lock numbers and identifiers get their randomness from: unguessable."""

from __future__ import annotations

import os
import struct
from typing import Final, final

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
