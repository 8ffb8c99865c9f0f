"""What a partition's worker does for nobody in particular: checkpoints, trimming, relocating.

Steps of a checkpoint ride with what has to be stored anyway. A trim runs beside the rounds, in
small commits that others share. Bodies are relocated in rounds without commands; where there is no
such round in time, because somebody always waits, one round now and then belongs to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from peeklock.entity.decision import Decision
from peeklock.entity.entries import Entry
from peeklock.entity.partition import Partition
from peeklock.store.store import Damaged, PartitionId, Store, StoreError

# Bodies rewritten in one step of relocating, at most; their bytes are bounded as well.
RELOCATE_MAX: Final = 512

# The journal is looked after when this was written, even if its turn has not come.
TRIM_BYTES: Final = 8 << 20

# How long relocating waits for a round without commands, before each step.
LATE_S: Final = 0.05

_log: Final = logging.getLogger("peeklock.broker")


@final
class Chores:
    """Which chores are due in one partition, and one step of them at a time."""

    __slots__ = (
        "_awake",
        "_has_relocated",
        "_id",
        "_is_failing",
        "_is_relocation_due",
        "_late_at",
        "_lost_content",
        "_trimming",
        "_written",
        "has_written",
        "journal_first",
        "trim_due",
    )

    def __init__(
        self, partition_id: PartitionId, awake: Callable[[], None], lost_content: bytes = b""
    ) -> None:
        self._id: Final[PartitionId] = partition_id
        self._awake: Final[Callable[[], None]] = awake  # calls the worker
        self._lost_content: Final[bytes] = lost_content  # of a message whose body is damaged
        self.journal_first: int = 0
        # Whether anything was stored since the journal was last looked after, and how much.
        self.has_written: bool = False
        self._written: int = 0
        self.trim_due: bool = False
        self._trimming: asyncio.Task[None] | None = None
        self._is_failing: bool = False  # the last trim failed, and that was said
        self._is_relocation_due: bool = False
        self._late_at: float = 0.0  # by the loop's clock: when a step of relocating is late
        self._has_relocated: bool = False

    def opened(self, store: Store) -> None:
        """The partition was opened. On a full disk its journal is looked after soon, although
        nobody may write anything before there is room."""
        self.has_written = self.has_written or store.full

    def wrote(self, size: int) -> None:
        """So many bytes were stored."""
        self.has_written = True
        self._written += size
        if self._written >= TRIM_BYTES:
            self.trim_due = True

    def is_due(self, partition: Partition) -> bool:
        """Whether there is a step to do."""
        return self._is_relocation_due or partition.checkpoint_due

    def is_late(self, loop_s: float) -> bool:
        """Whether a step must be done although commands wait."""
        return self._is_relocation_due and loop_s >= self._late_at

    # Trimming.

    def begin(self, store: Store, partition: Partition, now: int) -> None:
        """Trim beside the rounds if it is due. All that was decided must rest at this moment: what
        is not alive any more only in memory is still needed."""
        if not self.trim_due or self._trimming is not None:
            return
        self.trim_due = False
        self.has_written = False
        self._written = 0
        trim = self._trim(store, partition.replay_from(), partition.live_blocks(), now)
        self._trimming = asyncio.get_running_loop().create_task(trim)

    async def _trim(self, store: Store, upto: int, keep_blocks: list[int], now: int) -> None:
        try:
            self.journal_first = await store.trim(self._id, upto, keep_blocks, now)
            self._is_failing = False
            self._is_relocation_due = True
            self._late_at = asyncio.get_running_loop().time() + LATE_S
        except StoreError as error:
            # The journal grows; whoever stores something hears of it as well. On a full disk nobody
            # may store anything before this has been done.
            self.has_written = True
            if not self._is_failing:  # said once, however often it is tried
                _log.error("trim-failed partition=%s error=%r", self._id.key, str(error))
            self._is_failing = True
        except Exception:  # noqa: BLE001 - nobody waits for this task
            _log.exception("trim-failed partition=%s", self._id.key)
        finally:
            self._trimming = None
            self._awake()

    async def finish(self) -> None:
        """Wait for the trim that is under way; nothing is begun any more."""
        self.trim_due = False
        if self._trimming is not None:
            await self._trimming

    def forget(self) -> None:
        """The partition was thrown away, and what was to be relocated with it."""
        self._is_relocation_due = False

    # Steps.

    async def step(
        self, store: Store, partition: Partition, now: int, loop_s: float
    ) -> Decision | None:
        """One small step; answers what is to be stored of it."""
        if not self._is_relocation_due:
            return partition.checkpoint_step(now) if partition.checkpoint_due else None
        self._late_at = loop_s + LATE_S
        entries = partition.next_to_relocate(self.journal_first, RELOCATE_MAX)
        decision: Decision | None = None
        if entries:
            decision = await self._relocate(store, partition, entries, now)
            if decision.records:
                self._has_relocated = True
        if not partition.is_relocating:
            self._is_relocation_due = False
            # What the relocated bodies lay in can go now.
            self.trim_due = self.trim_due or self._has_relocated
            self._has_relocated = False
        return decision

    async def _relocate(
        self, store: Store, partition: Partition, entries: list[Entry], now: int
    ) -> Decision:
        try:
            messages = await store.payloads(self._id, [entry.position for entry in entries])
        except Damaged as error:
            _log.error("body-damaged partition=%s error=%r", self._id.key, str(error))
            lost = [entry for entry in entries if entry.position in error.positions]
            decision = partition.quarantine(lost, self._lost_content, now)
            entries = [entry for entry in entries if entry.position not in error.positions]
            if decision.records or not entries:
                return decision  # the next walk finds the others
            # Who holds them has their bodies: they stay where they are until they are settled.
            messages = await store.payloads(self._id, [entry.position for entry in entries])
        return partition.relocate(entries, messages, now)
