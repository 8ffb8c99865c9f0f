"""What an entity needs of one of its partitions, wherever that lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import Command
from peeklock.store.store import JournalPage, PartitionId


class PartitionDoor:
    """The way to one partition: `PartitionWorker` owns one that lives here, `RemotePartition` asks
    the node that owns it. A class and not a protocol: compiled, its methods are called directly."""

    __slots__ = ("damage", "id", "on_opened")

    def __init__(self, partition_id: PartitionId) -> None:
        self.id: PartitionId = partition_id
        # What clients are told while what is on disk keeps the partition closed.
        self.damage: str = ""
        # Told each time that the partition has opened.
        self.on_opened: Callable[[PartitionDoor], None] | None = None

    def submit(self, command: Command) -> None:
        """Ask for something; the reply goes to the command's origin."""
        raise NotImplementedError

    def configure(self, blueprint: Blueprint) -> None:
        """The description changed."""
        raise NotImplementedError

    def set_on_unsent(self, on_unsent: Callable[[Command], bool]) -> None:
        """Say who is asked before a send is refused of which nothing was stored: whether it goes
        elsewhere."""
        raise NotImplementedError

    def trim_soon(self) -> None:
        """Look after the journal soon."""
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        """Whether the partition lives in memory."""
        raise NotImplementedError

    @property
    def is_asleep(self) -> bool:
        """Whether nobody has asked anything yet, so that it is neither open nor being opened."""
        raise NotImplementedError

    def depths(self) -> Iterable[tuple[int, list[int]]]:
        """How many messages are in which state, as far as this process knows."""
        raise NotImplementedError

    @property
    def memory_bytes(self) -> int:
        """What they take in the memory of this process beside their bodies, about."""
        raise NotImplementedError

    @property
    def has_written(self) -> bool:
        """Whether anything was stored since the journal was last looked after."""
        raise NotImplementedError

    async def has_journal(self) -> bool:
        """Whether anything was ever stored; StoreError where nobody can know."""
        return len((await self.journal(0, 1)).chunks) > 0

    async def journal(self, after: int, limit_bytes: int) -> JournalPage:
        """Raw chunks of what is stored, read beside the partition, which need not be open."""
        raise NotImplementedError

    @property
    def is_available(self) -> bool:
        """Whether the partition was within reach when it was last needed."""
        raise NotImplementedError

    @property
    def can_be_asked(self) -> bool:
        """Whether a command has a chance."""
        raise NotImplementedError

    def store_lost(self) -> None:
        """The store was taken away."""
        raise NotImplementedError

    def store_back(self) -> None:
        """The store may be back."""
        raise NotImplementedError

    async def close(self) -> None:
        """Carry out what was asked, store it, and stop."""
        raise NotImplementedError
