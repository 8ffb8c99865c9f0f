"""Identifiers that are made here: 128 bits from chance, written in hex."""

from collections.abc import Callable
from typing import TypeAlias

Chance: TypeAlias = Callable[[], int]
"""Gives 64 random bits; seeded in tests."""


def hex_digits(chance: Chance) -> str:
    """Make 32 hex digits."""
    return f"{(chance() << 64) | chance():032x}"


def guid(chance: Chance) -> str:
    """Make an identifier in the five groups of a GUID."""
    digits = hex_digits(chance)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
