"""Claims while a partition is opened: what the records tell of owners and of what they have."""

from __future__ import annotations

from typing import final

from peeklock.entity.claim import CLAIM_TIMEOUT_MS, ClaimBook
from peeklock.entity.claim_records import OwnerHeard
from peeklock.entity.lane import Entry, Lane


@final
class ClaimsReplayed:
    """Owners and claims by number; both exist as such only while opening."""

    __slots__ = ("_owner_of", "_owners")

    def __init__(self) -> None:
        # By lane and name: epoch, timeout, when it was heard of.
        self._owners: dict[tuple[int, str], tuple[int, int, int]] = {}
        # Of all that were claimed; whether one still is, its entry knows.
        self._owner_of: dict[int, str] = {}

    def heard(self, record: OwnerHeard) -> None:
        """An owner said something."""
        key = (record.lane, record.owner)
        self._owners[key] = (record.epoch, record.timeout_ms, record.at)

    def claimed(self, owner: str, sequence: int) -> None:
        """A message is this owner's."""
        self._owner_of[sequence] = owner

    def heard_by_claim(self, lane: int, name: str, at: int) -> None:
        """Whoever claims says something, too."""
        epoch, timeout_ms, before = self._owners.get((lane, name), (0, CLAIM_TIMEOUT_MS, at))
        self._owners[(lane, name)] = (epoch, timeout_ms, max(before, at))

    def lane_dropped(self, lane: int) -> None:
        """A subscription is gone, and its owners with it."""
        for key in [key for key in self._owners if key[0] & ~1 == lane]:
            del self._owners[key]

    def lanes(self) -> set[int]:
        """The lanes that have owners."""
        return {number for number, _ in self._owners}

    def bring_owners(self, lane: Lane) -> None:
        """Give a lane its owners, before its messages are placed."""
        for (number, name), (epoch, timeout_ms, at) in self._owners.items():
            if number == lane.number:
                if lane.claims is None:
                    lane.claims = ClaimBook()
                owner = lane.claims.owner(name)
                owner.epoch = epoch
                owner.timeout_ms = timeout_ms
                owner.heard_at = owner.told_at = at
                owner.is_replayed = True

    def place(self, lane: Lane, entry: Entry) -> None:
        """Give a claimed message to its owner, and its session with it."""
        if lane.claims is None:
            lane.claims = ClaimBook()
        owner = lane.claims.owner(self._owner_of[entry.sequence])
        owner.hold(entry)
        book = lane.book
        name = entry.session_id
        if book is not None and name is not None:
            book.session(name).claimant = owner.name
            owner.sessions[name] = owner.sessions.get(name, 0) + 1
