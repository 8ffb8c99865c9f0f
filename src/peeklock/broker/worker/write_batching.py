"""Whether a store write should wait for company (batched store access, R-F3).

Writes that are ready when the last one ends go together anyway. Waiting pays in one case: many
senders, each of whom waits for its answer before it sends again, and a store that takes long. Half
of them then always miss the write that the other half is in, because their next sends arrive just
after it has begun; a wait of one round trip brings the halves together and doubles what a write
carries. A fast store, a lone sender or senders with many messages on their way gain nothing from a
wait, and are never made to (measured by `python -m bench company`).
"""

from __future__ import annotations

from typing import Final, final

# Up to here, said the article, a write may be held.
HOLD_S_MAX: Final = 0.020

# A store that answers faster than this has written everything before company can come.
STORE_S_MIN: Final = 0.002

# The wait must be small beside the write it saves.
_SHARE_OF_WRITE: Final = 0.25

# Fewer senders than this are not worth a wait.
SENDERS_MIN: Final = 4

_WEIGHT: Final = 0.1


@final
class WriteBatching:
    """Remembers how long writes take and who was just answered."""

    __slots__ = ("_answered", "store_s")

    def __init__(self) -> None:
        self.store_s: float = 0.0
        self._answered: int = 0

    def stored(self, took_s: float) -> None:
        """A write has ended. What a busy loop adds to it is not the store's: a short one counts at
        once, a long one only when others are long too."""
        if took_s < self.store_s:
            self.store_s = took_s
        else:
            self.store_s += (took_s - self.store_s) * _WEIGHT

    def answered(self, senders: int) -> None:
        """So many senders, each with one message, were answered and may send again at once."""
        self._answered = senders

    def expected(self) -> int:
        """How many more sends would make a wait complete."""
        return self._answered

    def hold_s(self, waiting: int) -> float:
        """How long to wait for those who were just answered, while others wait already."""
        if self.store_s < STORE_S_MIN:
            return 0.0
        if self._answered < SENDERS_MIN or 2 * self._answered < waiting:
            return 0.0
        return min(HOLD_S_MAX, self.store_s * _SHARE_OF_WRITE)
