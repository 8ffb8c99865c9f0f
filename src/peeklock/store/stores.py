"""Several stores by name: each with its own commits and its own failures.

A store is asked for by its name and is the same object for ever; behind it the engine comes and
goes. It goes when somebody takes it offline, and by itself when it breaks. Whoever opens a
partition of a store that broke makes it try again, and so it returns by itself; a store that was
taken offline returns when somebody says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.backups.snapshot import KeepsSnapshots, Snapshot
from peeklock.store.store import (
    Away,
    Broken,
    Catalog,
    JournalPage,
    Opening,
    PartitionId,
    Store,
    StoreError,
    Unavailable,
)

StoreFactory: TypeAlias = Callable[[str, bool], Store]
"""Opens the store of a name; the second argument tells whether it may be made where it is missing.

It is called from other threads, too."""

# The catalog remembers under this kind which stores were made: a name is enough.
STORE_KIND: Final = "store"

# How often a broken store is tried again, at most; its partitions ask more often than that.
RETRY_S: Final = 1.0

_LOG: Final = logging.getLogger("peeklock.store")


class UnknownStore(StoreError):
    """There is no store of this name."""


def store_names(count: int) -> list[str]:
    """Name so many stores; the first has the name that a lone one has."""
    return ["store", *(f"store-{number}" for number in range(2, count + 1))]


def spread(names: Sequence[str], count: int, used: Mapping[str, int]) -> list[str]:
    """Choose so many of these stores, beginning with those that are used least."""
    ranks = {name: rank for rank, name in enumerate(names)}
    order = sorted(names, key=lambda name: (used.get(name, 0), ranks[name]))
    return [order[number % len(order)] for number in range(count)]


@final
@dataclass(frozen=True, slots=True)
class StoreState:
    """How a store is at the moment; the text says why it is offline."""

    name: str
    is_online: bool
    text: str


@final
class Stores:
    """All stores of a broker, by their names and in their order."""

    def __init__(self, stores: Iterable[SwitchedStore]) -> None:
        self._stores = {store.name: store for store in stores}
        # Stores that partitions rest in and that nobody configured.
        self._unknown_stores: dict[str, SwitchedStore] = {}

    @classmethod
    def of(
        cls,
        factory: StoreFactory,
        names: Sequence[str],
        made: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> Stores:
        """Open the stores; those in `made` must be there, the others are made where missing.

        One that cannot be opened starts offline, unless none can: that is an error.
        """
        stores = [SwitchedStore(name, factory, clock) for name in names]
        errors = [store.start(may_make=store.name not in made) for store in stores]
        first = errors[0]
        if first is not None and not any(store.is_online for store in stores):
            raise first
        return cls(stores)

    @classmethod
    async def open(cls, factory: StoreFactory, names: Sequence[str], catalog: Catalog) -> Stores:
        """Open the stores; the catalog knows which were made before, and is told of new ones.

        Where a disk is missing, an empty store in its place would be taken for the real one.
        """
        made = {path for _, kind, path, _ in await catalog.load() if kind == STORE_KIND}
        stores = cls.of(factory, names, made)
        for state in stores.states():
            if state.is_online and state.name not in made:
                await catalog.save("", STORE_KIND, state.name, "{}")
        return stores

    def get(self, name: str) -> SwitchedStore:
        """Give the store of a name; one that is not configured is never available."""
        store = self._stores.get(name) or self._unknown_stores.get(name)
        if store is None:
            store = self._unknown_stores[name] = SwitchedStore(name, None)
        return store

    def states(self) -> list[StoreState]:
        """Tell how each store is, also of those that are needed and not configured."""
        unknown = sorted(self._unknown_stores.items())
        return [store.state() for store in (*self._stores.values(), *(s for _, s in unknown))]

    async def offline(self, name: str) -> None:
        """Close a store and let its directory go; what is asked of it fails until it returns."""
        await self._configured(name).switch_off()

    async def online(self, name: str, may_make: bool = False) -> None:
        """Open a store anew; a StoreError says why that failed, and it stays offline.

        Its files may have been replaced meanwhile. Only with `may_make` may they be missing: it
        then starts empty.
        """
        await self._configured(name).switch_on(may_make)

    def place(self, count: int, used: Mapping[str, int]) -> list[str]:
        """Choose stores for the partitions of a new entity; `used` counts those that rest there.

        They are spread over all stores that are online, and begin where the fewest are.
        """
        names = [name for name, store in self._stores.items() if store.is_online]
        names = names or list(self._stores)
        return spread(names, count, used)

    async def drop(self, name: str, partition: PartitionId) -> None:
        """Remove all of a partition from a store durably."""
        await self.get(name).drop(partition)

    async def all_states(self) -> list[StoreState]:
        """Tell how each store is: in a cluster, those of other nodes as well."""
        return self.states()

    def snapshots(self) -> dict[str, Snapshot]:
        """Hold all of them as they are at this instant; a StoreError says why that cannot be."""
        held: dict[str, Snapshot] = {}
        try:
            for name, store in self._stores.items():
                held[name] = store.snapshot()
        except BaseException:
            for snapshot in held.values():
                snapshot.release()
            raise
        return held

    async def close(self) -> None:
        """Close all of them; the first error is told when that is done."""
        closed = await asyncio.gather(
            *(store.close() for store in self._stores.values()), return_exceptions=True
        )
        for error in closed:
            if isinstance(error, BaseException):
                raise error

    def _configured(self, name: str) -> SwitchedStore:
        store = self._stores.get(name)
        if store is None:
            raise UnknownStore(_not_configured(name))
        return store


@final
class SwitchedStore:
    """A store whose engine can be taken away and brought back while it is in use.

    Partitions must be opened anew on each engine: its files may be others than before.
    """

    def __init__(
        self,
        name: str,
        factory: StoreFactory | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name: Final = name
        # Called whenever the store goes or comes, with whether it is there.
        self.on_switched: Callable[[bool], None] | None = None
        self._factory = factory
        self._clock = clock
        self._engine: Store | None = None
        self._text = _not_configured(name)
        # Whether it should be there: it then tries to return by itself.
        self._is_wanted = False
        self._retry_at = 0.0
        # Partitions that were opened on this engine; None while there was no other before it.
        self._opened: set[str] | None = None
        self._switching = asyncio.Lock()

    # Switching.

    def start(self, may_make: bool) -> StoreError | OSError | None:
        """Open the engine for the first time; answers what went wrong."""
        assert self._factory is not None
        self._is_wanted = True
        try:
            self._engine = self._factory(self.name, may_make)
        except (StoreError, OSError) as error:
            self._failed(error)
            return error
        self._text = ""
        return None

    @property
    def is_online(self) -> bool:
        """Whether there is an engine."""
        return self._engine is not None

    def state(self) -> StoreState:
        """Tell how it is."""
        return StoreState(self.name, self._engine is not None, self._text)

    async def switch_off(self) -> None:
        """Let the engine go and stay without one."""
        async with self._switching:
            self._is_wanted = False
            if self._engine is not None:
                _LOG.warning("store-offline store=%s", self.name)
            await self._let_go(f"the store '{self.name}' was taken offline")

    async def switch_on(self, may_make: bool) -> None:
        """Open the engine anew, unless it is there."""
        async with self._switching:
            if self._engine is None:
                # Not before it worked: somebody may still be putting its files in place.
                self._is_wanted = False
                await self._bring_back(may_make)
                self._is_wanted = True

    async def close(self) -> None:
        """Let the engine go for good."""
        async with self._switching:
            self._is_wanted = False
            await self._let_go(f"the store '{self.name}' is closed")

    async def _let_go(self, text: str) -> None:
        """From here on everything is refused; what was handed over is still carried out."""
        self._text = text
        engine, self._engine = self._engine, None
        if engine is None:
            return
        self._opened = set()
        try:
            await engine.close()
        finally:
            self._tell(False)

    async def _bring_back(self, may_make: bool) -> None:
        assert self._factory is not None
        try:
            # Off the event loop: a disk that is in trouble takes its time.
            engine = await asyncio.to_thread(self._factory, self.name, may_make)
        except (StoreError, OSError) as error:
            self._failed(error)
            raise Unavailable(self._text) from error
        self._engine = engine
        self._opened = set()
        self._text = ""
        _LOG.warning("store-online store=%s", self.name)
        self._tell(True)

    async def _revive(self) -> None:
        """Try to open an engine that broke, but not all the time."""
        async with self._switching:
            if self._engine is None and self._is_wanted and self._clock() >= self._retry_at:
                await self._bring_back(may_make=False)

    async def _renew(self, engine: Store) -> None:
        """Exchange an engine that is broken; who else finds it broken has nothing left to do."""
        async with self._switching:
            if self._engine is engine:
                _LOG.error("store-broken store=%s", self.name)
                await self._let_go(f"the store '{self.name}' failed and is opened anew")
                await self._bring_back(may_make=False)

    def _failed(self, error: Exception) -> None:
        text = f"the store '{self.name}' cannot be opened: {error}"
        if text != self._text:
            _LOG.error("store-failed store=%s error=%r", self.name, str(error))
        self._text = text
        self._retry_at = self._clock() + RETRY_S

    def _tell(self, is_online: bool) -> None:
        if self.on_switched is not None:
            self.on_switched(is_online)

    # The store.

    @property
    def full(self) -> bool:
        """Whether sends are to be refused for want of room; a store that is offline has its own
        way to refuse them."""
        return self._engine is not None and self._engine.full

    async def open(self, partition: PartitionId, epoch: int | None = None) -> Opening:
        """Open a partition; a store that broke is tried again."""
        if self._engine is None and self._is_wanted:
            await self._revive()
        engine = self._living()
        try:
            opening = await engine.open(partition, epoch)
        except Broken:
            await self._renew(engine)
            raise
        if self._opened is not None:
            if self._engine is not engine:
                raise Unavailable(f"the store '{self.name}' went offline meanwhile")
            self._opened.add(partition.key)
        return opening

    def append(
        self,
        partition: PartitionId,
        epoch: int,
        first_position: int,
        records: Sequence[Record],
        replay_from: int | None = None,
    ) -> Awaitable[int]:
        """Append to the engine that is there."""
        engine = self._engine_of(partition)
        return engine.append(partition, epoch, first_position, records, replay_from)

    async def payloads(self, partition: PartitionId, positions: Sequence[int]) -> list[Message]:
        """Read bodies from the engine that is there."""
        return await self._engine_of(partition).payloads(partition, positions)

    async def journal(self, partition: PartitionId, after: int, limit_bytes: int) -> JournalPage:
        """Read the journal of the engine that is there."""
        return await self._living().journal(partition, after, limit_bytes)

    async def trim(
        self, partition: PartitionId, upto: int, keep_blocks: Collection[int], now: int
    ) -> int:
        """Trim on the engine that is there."""
        return await self._engine_of(partition).trim(partition, upto, keep_blocks, now)

    async def drop(self, partition: PartitionId) -> None:
        """Drop from the engine that is there; a store that broke is tried again."""
        if self._engine is None and self._is_wanted:
            await self._revive()
        await self._living().drop(partition)

    def snapshot(self) -> Snapshot:
        """Hold the engine that is there as it is."""
        engine = self._living()
        if not isinstance(engine, KeepsSnapshots):
            raise StoreError(f"the store '{self.name}' is of a kind that has no backups")
        return engine.snapshot()

    def _living(self) -> Store:
        if self._engine is None:
            raise Away(self._text)
        return self._engine

    def _engine_of(self, partition: PartitionId) -> Store:
        engine = self._living()
        if self._opened is not None and partition.key not in self._opened:
            raise Away(f"{partition.key} is to be opened anew: its store was away")
        return engine


def _not_configured(name: str) -> str:
    return f"the store '{name}' is not configured"
