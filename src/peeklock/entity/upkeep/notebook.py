"""The notebook of a partition: facts for the journal that wait for a good moment to be written.

Noting costs one object for a run of messages and delays nobody. The notes leave with the next
record that must rest anyway; when none comes, they leave when there are many of them or when the
first has waited for a second, so that the journal of a quiet queue is not minutes late.
"""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.deliveries import Delivery
from peeklock.entity.message import NEVER
from peeklock.entity.records import Record
from peeklock.entity.upkeep.journal_facts import (
    HandedTo,
    LocksReleased,
    LocksRenewed,
    SessionLockNoted,
    SettlementsFailed,
)

# So many messages may be noted before the notes are worth a write of their own.
NOTES_MAX: Final = 4096

# How long the first of the notes may wait.
NOTES_DELAY_MS: Final = 1_000


@final
class Notebook:
    """Takes notes, and gives them away in order."""

    __slots__ = ("_notes", "_size", "_turn", "due_at")

    def __init__(self) -> None:
        self._notes: list[Record] = []
        self._size: int = 0  # how many messages the notes tell of
        self._turn: int = 0  # how many of them are older than the deliveries of this decision
        self.due_at: int = NEVER  # when the notes are written at the latest

    # Noting.

    def delivered(self, lane: int, consumer: str, deliveries: list[Delivery], now: int) -> None:
        """A consumer got a run of messages."""
        if len(deliveries) == 1:
            # A slow queue hands out one at a time, and the lists would cost more than the note.
            count = deliveries[0].delivery_count
            one = [deliveries[0].sequence]
            self._add(HandedTo(now, lane, consumer, one, [count] if count else []), 1, now)
            return
        sequences = [delivery.sequence for delivery in deliveries]
        counts = [delivery.delivery_count for delivery in deliveries]
        if not any(counts):
            counts = []
        self._add(HandedTo(now, lane, consumer, sequences, counts), len(sequences), now)

    def renewed(self, lane: int, consumer: str, sequences: list[int], now: int) -> None:
        """A consumer may keep its locks for longer."""
        self._add(LocksRenewed(now, lane, consumer, sequences), len(sequences), now)

    def released(self, lane: int, why: int, consumer: str, sequences: list[int], now: int) -> None:
        """Messages went back to where they were, and no delivery was counted."""
        self._add(LocksReleased(now, lane, why, consumer, sequences), len(sequences), now)

    def failed(self, lane: int, outcome: int, consumer: str, lost: list[int], now: int) -> None:
        """A consumer wanted to settle messages whose locks it does not have."""
        self._add(SettlementsFailed(now, lane, outcome, consumer, lost), len(lost), now)

    def session(self, lane: int, why: int, consumer: str, session_id: str, now: int) -> None:
        """Something happened to the lock of a message session."""
        self._add(SessionLockNoted(now, lane, why, consumer, session_id), 1, now)

    def _add(self, note: Record, size: int, now: int) -> None:
        if not self._notes:
            self.due_at = now + NOTES_DELAY_MS
        self._notes.append(note)
        self._size += size

    # Giving away.

    def handing_out(self) -> None:
        """The commands of a decision are carried out; what is noted from here on came after."""
        self._turn = len(self._notes)

    def is_due(self, now: int) -> bool:
        """Return whether the notes are worth a write of their own."""
        return self._size >= NOTES_MAX or (self.due_at != NEVER and self.due_at <= now)

    def hurry(self, now: int) -> None:
        """There will be no better moment: the notes are due now."""
        if self._notes:
            self.due_at = now

    def take(self) -> tuple[list[Record], list[Record]]:
        """Return all notes: those that happened before the records of this decision, and those
        after."""
        before = self._notes[: self._turn]
        after = self._notes[self._turn :]
        self._notes = []
        self._size = 0
        self._turn = 0
        self.due_at = NEVER
        return before, after
