"""Claims while a partition is opened: what the records tell of owners and of what they have."""

from __future__ import annotations

from typing import final

from peeklock.entity.claims.lane_claims import CLAIM_TIMEOUT_MS, LaneClaims
from peeklock.entity.claims.records import OwnerHeard
from peeklock.entity.entries import Entry
from peeklock.entity.lane import Lane


@final
class ClaimsReplayed:
    """Owners and claims by number; both exist as such only while opening."""

    __slots__ = ("_owner_of", "_owners")

    def __init__(self) -> None:
        # By lane and name: epoch, timeout, when it was heard of.
        self._owners: dict[int, dict[str, tuple[int, int, int]]] = {}
        # Of all that were claimed; whether one still is, its entry knows.
        self._owner_of: dict[int, str] = {}

    def heard(self, record: OwnerHeard) -> None:
        """An owner said something."""
        owners = self._owners.setdefault(record.lane, {})
        owners[record.owner] = (record.epoch, record.timeout_ms, record.at)

    def claimed(self, owner: str, sequence: int) -> None:
        """A message is this owner's."""
        self._owner_of[sequence] = owner

    def let_go(self, sequence: int) -> None:
        """A message is nobody's any more, if it was somebody's."""
        if self._owner_of:
            self._owner_of.pop(sequence, None)

    def heard_by_claim(self, lane: int, name: str, at: int) -> None:
        """Whoever claims says something, too."""
        owners = self._owners.setdefault(lane, {})
        epoch, timeout_ms, before = owners.get(name, (0, CLAIM_TIMEOUT_MS, at))
        owners[name] = (epoch, timeout_ms, max(before, at))

    def lane_dropped(self, lane: int) -> None:
        """A subscription is gone, and its owners with it."""
        self._owners.pop(lane, None)
        self._owners.pop(lane | 1, None)

    def lanes(self) -> list[int]:
        """Return the lanes that have owners."""
        return list(self._owners)

    def bring_owners(self, lane: Lane) -> None:
        """Give a lane its owners, before its messages are placed."""
        if lane.claims is None:
            lane.claims = LaneClaims()
        for name, (epoch, timeout_ms, at) in self._owners[lane.number].items():
            owner = lane.claims.owner(name)
            owner.epoch = epoch
            owner.timeout_ms = timeout_ms
            owner.heard_at = owner.told_at = at
            owner.is_replayed = True

    def place(self, lane: Lane, entry: Entry) -> None:
        """Give a claimed message to its owner, and its session with it."""
        if lane.claims is None:
            lane.claims = LaneClaims()
        owner = lane.claims.owner(self._owner_of.pop(entry.sequence))
        owner.hold(entry)
        lane_sessions = lane.sessions
        name = entry.session_id
        if lane_sessions is not None and name is not None:
            lane_sessions.session(name).claimant = owner.name
            owner.sessions[name] = owner.sessions.get(name, 0) + 1
