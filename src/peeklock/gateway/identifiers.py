"""Identifiers that are made here: 128 bits from chance, written in hex."""

from collections.abc import Callable
from typing import Final, TypeAlias, final

Chance: TypeAlias = Callable[[], int]
"""Gives 64 random bits; seeded in tests."""


def hex_digits(chance: Chance) -> str:
    """Make 32 hex digits."""
    return f"{(chance() << 64) | chance():032x}"


def guid(chance: Chance) -> str:
    """Make an identifier in the five groups of a GUID."""
    digits = hex_digits(chance)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


@final
class MessageIds:
    """Makes ids for messages that come without one: 32 hex digits, unique but no secret.

    Half of them is chance, drawn once, and the other half counts: drawing chance for each message
    cost a tenth of what a message costs.
    """

    __slots__ = ("_count", "_prefix")

    def __init__(self, chance: Chance) -> None:
        self._prefix: Final = b"%016x" % chance()
        self._count = 0

    def next(self) -> bytes:
        """Make the next one."""
        self._count += 1
        return self._prefix + b"%016x" % self._count
