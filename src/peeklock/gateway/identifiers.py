"""Identifiers that are made here: 128 random bits, written in hex."""

from collections.abc import Callable
from typing import Final, TypeAlias, final

RandomSource: TypeAlias = Callable[[], int]
"""Gives 64 random bits; seeded in tests."""


def hex_digits(random_source: RandomSource) -> str:
    """Make 32 hex digits."""
    return f"{(random_source() << 64) | random_source():032x}"


def guid(random_source: RandomSource) -> str:
    """Make an identifier in the five groups of a GUID."""
    digits = hex_digits(random_source)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_LAST_DIGITS: Final = [b"%02x" % number for number in range(256)]


@final
class MessageIds:
    """Makes ids for messages that come without one: 32 hex digits, unique but no secret.

    Half of them is random, drawn once, and the other half counts: drawing random bits for each
    message cost a tenth of what a message costs.
    """

    __slots__ = ("_count", "_prefix", "_start")

    def __init__(self, random_source: RandomSource) -> None:
        self._prefix: Final = b"%016x" % random_source()
        self._count = 0
        # All but the last two digits.
        self._start = b""

    def next(self) -> bytes:
        """Make the next one."""
        count = self._count + 1
        self._count = count
        if count & 0xFF == 0 or not self._start:
            self._start = self._prefix + b"%014x" % (count >> 8)
        return self._start + _LAST_DIGITS[count & 0xFF]
