"""What a partition's worker does for nobody in particular: checkpoints, trimming, carrying."""

from __future__ import annotations

from typing import Final, final

from peeklock.entity.partition import Decision, Partition
from peeklock.store.store import PartitionId, Store

# Bodies rewritten in one step of carrying: about a frame's worth of small messages.
CARRY_MAX: Final = 64


@final
class Chores:
    """Which chores are due in one partition, and one step of them at a time."""

    __slots__ = ("_id", "has_written", "journal_first", "trim_due")

    def __init__(self, partition_id: PartitionId) -> None:
        self._id: Final[PartitionId] = partition_id
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
        self.journal_first = await store.trim(
            self._id, partition.replay_from(), partition.live_blocks(), now
        )
        entries = partition.next_to_carry(self.journal_first, CARRY_MAX)
        decision: Decision | None = None
        if entries:
            messages = await store.payloads(self._id, [entry.position for entry in entries])
            decision = partition.carry(entries, messages, now)
        self.trim_due = partition.is_carrying
        return decision
