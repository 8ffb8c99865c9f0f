"""The claims of a lane: which owner has which messages, and since when it was not heard of.

An owner is not a receiver. It has no link and no credit, it stays over restarts of either side,
and its claims end when it settles them or when it was silent for too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from peeklock.entity.message import NEVER
from peeklock.entity.numbers import Numbers

if TYPE_CHECKING:
    from peeklock.entity.entries import Entry

CLAIM_TIMEOUT_MS: Final = 86_400_000
"""How long claims last after the last word of their owner, unless it asks for something else."""

CLAIM_GRACE_MS: Final = 3_600_000
"""So long after an opening claims last in any case, or as long as they do anyway: their owner could
not be heard of while there was nobody to hear it."""

# An owner that has nothing claimed any more is remembered so much longer: its epoch still fences.
OWNER_KEPT_MS: Final = 7 * 86_400_000

# How many owners one lane remembers. Each is a name that somebody chose; the ones that were silent
# longest and have nothing claimed make room for new ones.
OWNERS_MAX: Final = 1_000

EVERYTHING: Final = 1 << 62


@final
class ClaimOwner:
    """Who claims messages of a lane, and what it has."""

    __slots__ = (
        "attempts",
        "epoch",
        "heard_at",
        "held",
        "is_replayed",
        "name",
        "numbers",
        "sessions",
        "timeout_ms",
        "told_at",
    )

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.epoch: int = 0
        self.timeout_ms: int = CLAIM_TIMEOUT_MS
        self.heard_at: int = NEVER
        self.told_at: int = NEVER  # when it was heard of, as far as the journal knows
        self.is_replayed: bool = False  # known from the journal since the partition opened
        self.held: dict[int, Entry] = {}
        self.numbers: Numbers = Numbers()  # of what it has, in order
        self.attempts: dict[int, int] = {}  # how often each was fetched; in memory only
        self.sessions: dict[str, int] = {}  # where the lane has them: how many it has of each

    def hold(self, entry: Entry) -> None:
        """Give it a message."""
        self.held[entry.sequence] = entry
        self.numbers.add(entry.sequence)

    def let_go(self, sequence: int) -> Entry | None:
        """Take a message from it, if it has that."""
        entry = self.held.pop(sequence, None)
        if entry is not None:
            self.numbers.remove(sequence)
        return entry

    @property
    def deadline(self) -> int:
        """When its claims end if it stays silent, or when it is forgotten if it has none."""
        silence_ms = self.timeout_ms if self.held else self.timeout_ms + OWNER_KEPT_MS
        return self.heard_at + silence_ms


@final
class LaneClaims:
    """The owners of one lane."""

    __slots__ = ("_deadline", "owners")

    def __init__(self) -> None:
        self.owners: dict[str, ClaimOwner] = {}
        # A lower bound, exact only after `silent`; NEVER where there is no owner.
        self._deadline: int = NEVER

    def owner(self, name: str) -> ClaimOwner:
        """Return the owner with this name; it exists from the first time it is heard of."""
        owner = self.owners.get(name)
        if owner is None:
            owner = ClaimOwner(name)
            self.owners[name] = owner
        return owner

    def make_room(self) -> bool:
        """Forget one that is not needed where there are too many; return whether there is room."""
        if len(self.owners) < OWNERS_MAX:
            return True
        oldest: ClaimOwner | None = None
        for owner in self.owners.values():
            if not owner.held and (oldest is None or owner.heard_at < oldest.heard_at):
                oldest = owner
        if oldest is None:
            return False
        del self.owners[oldest.name]
        return True

    def count(self) -> int:
        """Return how many messages are claimed, by all owners."""
        count = 0
        for owner in self.owners.values():
            count += len(owner.held)
        return count

    def entries(self, from_sequence: int = 0, count_max: int = EVERYTHING) -> list[Entry]:
        """What is claimed, in no order: of each owner the first so many from one number on."""
        found: list[Entry] = []
        for owner in self.owners.values():
            if from_sequence == 0 and count_max == EVERYTHING:
                found += owner.held.values()
            else:
                numbers = owner.numbers.first(from_sequence, count_max)
                found += [owner.held[number] for number in numbers]
        return found

    def entries_of(self, session_id: str, from_sequence: int) -> list[Entry]:
        """What is claimed of one session, from one number on, in no order."""
        found: list[Entry] = []
        for owner in self.owners.values():
            if session_id in owner.sessions:
                for sequence, entry in owner.held.items():
                    if sequence >= from_sequence and entry.session_id == session_id:
                        found.append(entry)
        return found

    def owner_of(self, sequence: int) -> str:
        """Return who has claimed a message that is claimed."""
        for owner in self.owners.values():
            if sequence in owner.held:
                return owner.name
        raise AssertionError(f"nobody has claimed message {sequence}")

    def expect(self, owner: ClaimOwner) -> None:
        """An owner was heard of or got something: its deadline may be the next one."""
        deadline = owner.deadline
        if self._deadline == NEVER or deadline < self._deadline:
            self._deadline = deadline

    def next_deadline(self) -> int:
        """Return when somebody may have been silent for too long; 0 when there is nobody."""
        return self._deadline if self.owners else NEVER

    def silent(self, now: int) -> list[ClaimOwner]:
        """Owners that were not heard of in time."""
        if self._deadline > now:
            return []
        return [owner for owner in self.owners.values() if owner.deadline <= now]

    def lengthen(self, duration_ms: int) -> None:
        """Let the silence of all owners begin so much later."""
        for owner in self.owners.values():
            owner.heard_at += duration_ms
        self.look_again()

    def look_again(self) -> None:
        """Find the next deadline anew, after some have passed."""
        self._deadline = NEVER
        for owner in self.owners.values():
            self.expect(owner)
