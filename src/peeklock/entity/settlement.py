"""What is to become of messages that somebody holds: one value from the wire to the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

# Outcomes.
COMPLETE: Final = 0
ABANDON: Final = 1
DEFER: Final = 2
DEAD_LETTER: Final = 3
RELEASE: Final = 4  # back at once; no delivery is counted


@final
@dataclass(slots=True, init=False)
class Settlement:
    """An outcome, and what goes with it.

    `changes` are properties to set on the messages: name to encoded value, opaque here. `reason`
    and `description` are of a dead letter; None where the receiver did not say.
    """

    outcome: Final[int]
    changes: Final[dict[str, bytes] | None]
    reason: Final[str | None]
    description: Final[str | None]

    def __init__(
        self,
        outcome: int,
        changes: dict[str, bytes] | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        self.outcome = outcome
        self.changes = changes
        self.reason = reason
        self.description = description


# Those that have nothing more to say.
PLAIN_COMPLETE: Final = Settlement(COMPLETE)
PLAIN_RELEASE: Final = Settlement(RELEASE)
