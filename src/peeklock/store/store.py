"""The two protocols of this room: `Store` keeps records, `Catalog` keeps descriptions.

StoreError
+-- Fenced        another owner opened the partition with a higher epoch
+-- Unavailable   the engine failed; what was being appended is in doubt
|   +-- Away      there is no engine; nothing was begun
|   +-- Broken    it will go on failing until the store is opened anew
+-- Corrupt       a checksum or a format does not fit
    +-- Damaged   only bodies, which nobody but their own readers needs
    +-- WentBack  the end of a partition is gone, and this process was told that it rests
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record

# Live bodies are counted per block of this many positions; trim keeps whole blocks.
BLOCK: Final = 4096


class StoreError(Exception):
    """The store could not do what it was asked."""


class Fenced(StoreError):
    """Another owner has the partition now."""


class Unavailable(StoreError):
    """The engine failed; whether the append rests is in doubt."""


class Away(Unavailable):
    """The store is not there: nothing of what was asked was begun, so that nothing is in doubt."""


class Broken(Unavailable):
    """The engine gave up, or its files are gone: only opening the store anew can help."""


class Corrupt(StoreError):
    """What was read is not what was written."""


class Damaged(Corrupt):
    """The bodies at some positions cannot be read; all else can."""

    def __init__(self, text: str, positions: Sequence[int]) -> None:
        super().__init__(text)
        self.positions: Final = frozenset(positions)


class WentBack(Corrupt):
    """The engine has less than it said: it is an older copy of what it was."""


@final
@dataclass(frozen=True, slots=True)
class PartitionId:
    """Names a partition: its namespace, its entity's path and its index in the entity."""

    namespace: str
    path: str
    index: int = 0

    @property
    def key(self) -> str:
        """One text for all three; paths are compared without case."""
        return f"{self.namespace.lower()}|{self.path.lower()}|{self.index}"


@final
@dataclass(frozen=True, slots=True)
class Replay:
    """Records in order; the first one has position `first_position`. Messages in them have no
    bodies (their sizes and instants are there). `size` is what they take where they rest."""

    first_position: int
    records: Sequence[Record]
    size: int


@final
@dataclass(frozen=True, slots=True)
class Opening:
    """A partition just opened: the epoch in force and its records from the last checkpoint on."""

    epoch: int
    replays: AsyncIterator[Replay]


@final
@dataclass(frozen=True, slots=True)
class JournalPage:
    """Raw chunks in order, to be decoded by `records.decode_chunk`.

    `first` is the oldest position that the journal still has: a reader that asked for less fell
    behind and is told so. `next` is where the next page starts: the end of the journal where a
    reader asked for more than there is.
    """

    first: int
    next: int
    chunks: list[bytes]


class Store(Protocol):
    """One engine instance that keeps the records of many partitions."""

    @property
    def full(self) -> bool:
        """Free space is below the low-water mark: sends are to be refused, settlements are not."""
        ...

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Fence older owners durably, then give the records from the last complete checkpoint on.

        Without an epoch the store takes the next one; an epoch below the one in force is Fenced.
        """
        ...

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Awaitable[int]:
        """Atomic and durable once awaited; a store that can begins at the call, so that the caller
        has its hands free meanwhile. Answers how many bytes that took. `replay_from` moves the
        place where replay starts."""
        ...

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """The messages at these positions, with their bodies, in the order asked.

        Damaged names those that cannot be read; without them the others can.
        """
        ...

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Raw chunks from position `after` on, at least one if there is any."""
        ...

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Drop whole chunks below `upto` that retention no longer asks for and that touch none of
        the blocks in `keep_blocks` (block = position // BLOCK); answers the oldest position that
        the journal still has."""
        ...

    async def drop(self, partition: PartitionId) -> None:
        """Remove all of a partition durably, its journal too; one that is not there is fine.

        Whoever owned it is fenced, and whoever opens it afterwards finds it empty. Its epochs go on
        from where they were, so that an older owner stays fenced.
        """
        ...

    async def close(self) -> None:
        """Flush and let go."""
        ...


class Catalog(Protocol):
    """Descriptions of namespaces and entities, by (namespace, kind, path); values are JSON text.

    Whoever keeps them says how some are removed and others saved in one go; the rest follows."""

    async def load(self) -> list[tuple[str, str, str, str]]:
        """All of it: namespace, kind, path, JSON."""
        ...

    async def save(self, namespace: str, kind: str, path: str, text: str) -> None:
        """Durable when it returns; replaces what was there."""
        await self.replace([], [(namespace, kind, path, text)])

    async def save_all(self, entries: Sequence[tuple[str, str, str, str]]) -> None:
        """Several at once (namespace, kind, path, JSON), all or none."""
        await self.replace([], entries)

    async def remove(self, namespace: str, kind: str, path: str) -> None:
        """Durable when it returns; what is not there is fine."""
        await self.replace([(namespace, kind, path)], [])

    async def replace(
        self,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        """Remove some (namespace, kind, path) and save others, all or none."""
        ...

    async def close(self) -> None:
        """Flush and let go."""
        ...
