"""What the event loop works on in its present step, for the watchdog to name it.

Whoever begins something that may take long says so in a word; it costs an assignment. The watchdog
reads it when a step was long, and forgets it behind every step.
"""

from __future__ import annotations

from typing import Final, final

# Work on one message above this cannot be cut into steps: its bytes are checked and copied whole.
LARGE_BYTES: Final = 4 << 20


@final
class Step:
    """One step of the loop: whatever runs until the loop has its next turn."""

    __slots__ = ("is_large", "work")

    def __init__(self) -> None:
        self.work: str = ""
        # One message above LARGE_BYTES was worked on: counted apart, with a bound by its size.
        self.is_large: bool = False

    def works_on(self, size: int, largest: int) -> None:
        """Say how many bytes messages have together, and the largest of them alone. What is more
        than LARGE_BYTES without that one could have been cut, and is no excuse."""
        if largest > LARGE_BYTES and size - largest <= LARGE_BYTES:
            self.is_large = True


STEP: Final[Step] = Step()
