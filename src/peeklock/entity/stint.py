"""How much one decision does of what nobody waits for.

A million messages may fall due, expire or lose their locks at one instant. A decision does a part
of that and says that more is left; whoever else has asked meanwhile gets a turn before the next
part. The measure is counted, not timed, so that a decision follows from its commands alone.
"""

from __future__ import annotations

from typing import Final, final

STINT_STEPS: Final = 512
"""Messages moved, or copies made, in one stint: about a millisecond, compiled."""

STINT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of bodies that one stint reads and writes again, or those of one message."""


@final
class Stint:
    """What is left of the measure of the decision under way."""

    __slots__ = ("bytes_left", "bytes_max", "steps_left", "steps_max")

    def __init__(self, steps_max: int = STINT_STEPS, bytes_max: int = STINT_BYTES) -> None:
        self.steps_max: Final[int] = steps_max
        self.bytes_max: Final[int] = bytes_max
        self.steps_left: int = steps_max
        self.bytes_left: int = bytes_max

    def begin(self) -> None:
        """A new decision begins."""
        self.steps_left = self.steps_max
        self.bytes_left = self.bytes_max

    def spend(self, steps: int, size: int = 0) -> None:
        """So much was done; the last part may go beyond the measure, and then it was the last."""
        self.steps_left -= steps
        self.bytes_left -= size

    @property
    def is_over(self) -> bool:
        """Whether the rest is for the next decision."""
        return self.steps_left <= 0 or self.bytes_left <= 0
