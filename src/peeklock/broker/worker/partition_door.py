"""What an entity needs of one of its partitions, wherever that lives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from peeklock.entity.blueprint import Blueprint
from peeklock.entity.commands import Command
from peeklock.store.store import JournalPage, PartitionId


class PartitionDoor(ABC):
    """The way to one partition: `PartitionWorker` owns one that lives here, `RemotePartition` asks
    the node that owns it. A class and not a protocol: compiled, its methods are called directly."""

    __slots__ = ("damage", "id", "on_opened")

    def __init__(self, partition_id: PartitionId) -> None:
        self.id: PartitionId = partition_id
        # What clients are told while what is on disk keeps the partition closed.
        self.damage: str = ""
        # Told each time that the partition has opened.
        self.on_opened: Callable[[PartitionDoor], None] | None = None

    @abstractmethod
    def submit(self, command: Command) -> None:
        """Ask for something; the reply goes to the command's origin."""

    @abstractmethod
    def configure(self, blueprint: Blueprint) -> None:
        """The description changed."""
        ...

    @abstractmethod
    def set_on_unsent(self, on_unsent: Callable[[Command], bool]) -> None:
        """Say who is asked before a send is refused of which nothing was stored: whether it goes
        elsewhere."""
        ...

    @abstractmethod
    def trim_soon(self) -> None:
        """Look after the journal soon."""
        ...

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether the partition lives in memory."""
        ...

    @property
    @abstractmethod
    def is_asleep(self) -> bool:
        """Whether nobody has asked anything yet, so that it is neither open nor being opened."""
        ...

    @abstractmethod
    def depths(self) -> Iterable[tuple[int, list[int]]]:
        """How many messages are in which state, as far as this process knows."""
        ...

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """What they take in the memory of this process beside their bodies, about."""
        ...

    @property
    @abstractmethod
    def has_written(self) -> bool:
        """Whether anything was stored since the journal was last looked after."""
        ...

    async def has_journal(self) -> bool:
        """Whether anything was ever stored; StoreError where nobody can know."""
        return len((await self.journal(0, 1)).chunks) > 0

    @abstractmethod
    async def journal(self, after: int, limit_bytes: int) -> JournalPage:
        """Raw chunks of what is stored, read beside the partition, which need not be open."""

    @property
    @abstractmethod
    def is_available(self) -> bool:
        """Whether the partition was within reach when it was last needed."""
        ...

    @property
    @abstractmethod
    def can_be_asked(self) -> bool:
        """Whether a command has a chance."""
        ...

    @abstractmethod
    def store_lost(self) -> None:
        """The store was taken away."""
        ...

    @abstractmethod
    def store_back(self) -> None:
        """The store may be back."""
        ...

    @abstractmethod
    async def close(self) -> None:
        """Carry out what was asked, store it, and stop."""
        ...
