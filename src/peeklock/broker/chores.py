"""What a partition's worker does for nobody in particular: checkpoints, trimming, carrying."""

from __future__ import annotations

import logging
from typing import Final, final

from peeklock.entity.lane import Entry
from peeklock.entity.partition import Decision, Partition
from peeklock.store.store import Corrupt, Damaged, PartitionId, Store

# Bodies rewritten in one step of carrying: about a frame's worth of small messages.
CARRY_MAX: Final = 64

_log: Final = logging.getLogger("peeklock.broker")


@final
class Chores:
    """Which chores are due in one partition, and one step of them at a time."""

    __slots__ = ("_id", "_lost_content", "has_written", "journal_first", "trim_due")

    def __init__(self, partition_id: PartitionId, lost_content: bytes = b"") -> None:
        self._id: Final[PartitionId] = partition_id
        self._lost_content: Final[bytes] = lost_content  # of a message whose body is damaged
        self.journal_first: int = 0
        # Whether anything was stored since the journal was last looked after.
        self.has_written: bool = False
        self.trim_due: bool = False

    def is_due(self, partition: Partition) -> bool:
        """Whether there is anything to do."""
        return self.trim_due or partition.housekeeping_due

    async def step(self, store: Store, partition: Partition, now: int) -> Decision | None:
        """One small step; answers what is to be stored of it."""
        if partition.housekeeping_due:
            return partition.keep_house(now)
        if not self.trim_due:
            return None
        self.trim_due = False
        self.has_written = False
        try:
            self.journal_first = await store.trim(
                self._id, partition.replay_from(), partition.live_blocks(), now
            )
        except Corrupt as error:
            # The journal grows; nobody needs the damaged part of it for anything else.
            _log.error("trim-failed partition=%s error=%r", self._id.key, str(error))
        entries = partition.next_to_carry(self.journal_first, CARRY_MAX)
        decision: Decision | None = None
        if entries:
            decision = await self._carry(store, partition, entries, now)
        self.trim_due = partition.is_carrying
        return decision

    async def _carry(
        self, store: Store, partition: Partition, entries: list[Entry], now: int
    ) -> Decision:
        try:
            messages = await store.payloads(self._id, [entry.position for entry in entries])
        except Damaged as error:
            _log.error("body-damaged partition=%s error=%r", self._id.key, str(error))
            lost = [entry for entry in entries if entry.position in error.positions]
            return partition.quarantine(lost, self._lost_content, now)
        return partition.carry(entries, messages, now)
