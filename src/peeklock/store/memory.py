"""The reference: a store and a catalog that keep everything in memory and nothing longer.

Records rest as the same chunks as on disk, so that what is replayed has passed through the codec.
The two hooks are for tests of those who use a store: `before_commit` may raise instead of keeping
anything, `after_commit` may raise although all is kept, which is what "in doubt" means.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import final

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.codec.records import chunk_header, decode_chunk, decode_message, encode_chunk
from peeklock.store.replay import records_from
from peeklock.store.retention import Chunk, Extent, Retention, Trim
from peeklock.store.store import (
    Catalog,
    Corrupt,
    Damaged,
    Fenced,
    JournalPage,
    Opening,
    PartitionId,
    Replay,
    Unavailable,
)

_TRIM_STEPS = 256


@final
class MemoryStore:
    """Keeps the records of many partitions in memory."""

    def __init__(self, retention: Retention | None = None, kept: MemoryStore | None = None) -> None:
        """With `kept`, a store that was closed, what that one kept is here again."""
        self.full = False
        self.before_commit: Callable[[], None] = _nothing
        self.after_commit: Callable[[], None] = _nothing
        self._retention = retention or Retention()
        before = {} if kept is None else kept._partitions
        # One that nobody could open was never there.
        self._partitions: dict[str, _Partition] = {
            name: partition for name, partition in before.items() if partition.epoch
        }
        # No epoch up to this one is given again: partitions that are gone had them.
        self._spent: int = 0 if kept is None else kept._spent
        self._closed = False

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Fence older owners, then give the records from the last complete checkpoint on."""
        self._check_open()
        kept = self._partitions.setdefault(partition.key, _Partition())
        least = kept.epoch or self._spent + 1
        wanted = max(kept.epoch + 1, least) if epoch is None else epoch
        if wanted < least:
            raise Fenced(f"{partition.key} is owned with epoch {kept.epoch}, not {wanted}")
        kept.epoch = wanted
        return Opening(wanted, _replay(kept, wanted))

    async def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> int:
        """Keep the records, all or none."""
        self._check_open()
        kept = self._partitions.get(partition.key)
        if kept is None or kept.epoch != epoch or epoch < 1:
            raise Fenced(f"{partition.key} is not owned with epoch {epoch}")
        if kept.chunks and first_position != kept.end:
            raise Unavailable(
                f"{partition.key} ends at position {kept.end}: {first_position} does not follow"
            )
        chunk = encode_chunk(first_position, records)
        self.before_commit()
        kept.add(chunk)
        if replay_from is not None:
            kept.replay_from = replay_from
        self.after_commit()
        return len(chunk)

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Return the messages at these positions, in the order asked."""
        self._check_open()
        kept = self._partitions.get(partition.key)
        if kept is None:
            raise Corrupt(f"{partition.key} is not known here")
        messages: list[Message] = []
        damaged: list[int] = []
        for position in positions:
            try:
                messages.append(decode_message(kept.holding(position), position))
            except Corrupt:
                damaged.append(position)
        if damaged:
            raise Damaged(f"bodies of {partition.key} are damaged", damaged)
        return messages

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Give raw chunks from position `after` on, at least one if there is any."""
        self._check_open()
        kept = self._partitions.get(partition.key)
        if kept is None:
            return JournalPage(0, 0, [])
        chunks: list[bytes] = []
        start = max(after, kept.extent.first)
        index = max(bisect_right(kept.firsts, start) - 1, 0)
        for chunk in kept.chunks[index:]:
            header = chunk_header(chunk)
            if header.end <= start:
                continue
            if chunks and limit_bytes < len(chunk):
                break
            chunks.append(chunk)
            limit_bytes -= len(chunk)
            start = header.end
        return JournalPage(kept.extent.first, min(start, kept.end), chunks)

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Drop whole chunks that neither retention nor a live body asks for."""
        self._check_open()
        kept = self._partitions.get(partition.key)
        if kept is None:
            return 0
        upto = min(upto, kept.replay_from)
        count = len(self._partitions)
        trim = Trim(upto, frozenset(keep_blocks), now, self._retention, count)
        while trim.round(kept, kept.extent, self._excess(), _TRIM_STEPS):
            pass
        return kept.extent.first

    async def drop(self, partition: PartitionId) -> None:
        """Forget a partition."""
        self._check_open()
        kept = self._partitions.pop(partition.key, None)
        if kept is not None:
            self._spent = max(self._spent, kept.epoch)
            # Whoever still replays it is told.
            kept.epoch = 0

    async def close(self) -> None:
        """Let go."""
        self._closed = True

    def _excess(self) -> int:
        journals = sum(kept.extent.size for kept in self._partitions.values())
        return journals - self._retention.bytes_max

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")


@final
class MemoryStores:
    """Opens stores in memory by their names; one that comes back has what it had."""

    def __init__(self, retention: Retention | None = None) -> None:
        self._retention = retention
        self._stores: dict[str, MemoryStore] = {}

    def __call__(self, name: str, _may_make: bool) -> MemoryStore:
        """Open the store of a name; there is always one."""
        store = self._stores[name] = MemoryStore(self._retention, self._stores.get(name))
        return store


@final
class _Partition:
    """The chunks of one partition by their first positions."""

    def __init__(self) -> None:
        self.epoch = 0
        self.replay_from = 0
        self.end = 0
        self.extent = Extent()
        self.firsts: list[int] = []
        self.chunks: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        header = chunk_header(chunk)
        if not self.chunks:
            self.replay_from = self.extent.first = header.first
        self.firsts.append(header.first)
        self.chunks.append(chunk)
        self.extent.size += len(chunk)
        self.end = header.end

    def holding(self, position: int) -> bytes:
        index = bisect_right(self.firsts, position) - 1
        if index < 0:
            raise Corrupt(f"no chunk holds position {position}")
        return self.chunks[index]

    def seek(self, position: int) -> Chunk | None:
        index = bisect_left(self.firsts, position)
        if index == len(self.firsts):
            return None
        chunk = self.chunks[index]
        header = chunk_header(chunk)
        return Chunk(header.first, header.end, header.at, len(chunk))

    def drop(self, first: int) -> None:
        index = bisect_left(self.firsts, first)
        del self.firsts[index]
        del self.chunks[index]


async def _replay(kept: _Partition, epoch: int) -> AsyncIterator[Replay]:
    index = max(bisect_right(kept.firsts, kept.replay_from) - 1, 0)
    for chunk in kept.chunks[index:]:
        if kept.epoch != epoch:
            raise Fenced(f"epoch {epoch} ended while its records were read")
        first, records = decode_chunk(chunk, bodies=False)
        first, records = records_from(kept.replay_from, first, records)
        if records:
            yield Replay(first, records, len(chunk))


def _nothing() -> None:
    """Do nothing: what a hook does unless a test sets it."""


@final
class MemoryCatalog(Catalog):
    """Keeps descriptions in memory."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str, str], tuple[str, str, str, str]] = {}

    async def load(self) -> list[tuple[str, str, str, str]]:
        """Return all of it, in the order of the names."""
        return [self._texts[key] for key in sorted(self._texts)]

    async def replace(
        self,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        """Forget some texts and keep others."""
        for namespace, kind, path in removed:
            self._texts.pop((namespace.lower(), kind, path.lower()), None)
        for namespace, kind, path, text in entries:
            self._texts[namespace.lower(), kind, path.lower()] = (namespace, kind, path, text)

    async def close(self) -> None:
        """Let go."""
