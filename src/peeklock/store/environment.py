"""A directory with an LMDB environment in it: one owner, a known format, created durably."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

import lmdb

from peeklock.store.damage.pages import DATA, why_too_short
from peeklock.store.store import Corrupt, StoreError, Unavailable

OWNER: Final = "owner.lock"
_FORMAT_KEY: Final = b"format"

# Formats that this release reads too, if it is told to.
_OPTIONS: Final = {"peeklock store 2": "--store embedded"}

_GIB: Final = 1 << 30
# The map is the limit of what a store can hold. Where an unused part of it costs nothing it is as
# big as anybody will need, because growing it later is unsafe while transactions are open.
_MAP_SIZE: Final = 1024 * _GIB if sys.platform in ("linux", "darwin") else 16 * _GIB
_MAP_SIZE_32_BIT: Final = _GIB // 2


@final
class Environment:
    """An open environment; `meta` holds its format and few small values, `values` the rest."""

    def __init__(
        self, directory: Path, form: str, map_size: int | None = None, *, make: bool = True
    ) -> None:
        self.directory = directory
        # How many snapshots are held, and who waits, on which loop, until there are none.
        self._held = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()
        self._data = directory / DATA
        if not make:
            _check_there(self._data)
        self._owner = _own(directory)
        try:
            self.lmdb = _open(directory, map_size)
            try:
                with translated(f"open the store in {directory}"):
                    self.meta = self.lmdb.open_db(b"meta")
                    self._check_format(form)
                    self.values = self.lmdb.open_db(b"values")
                sync_directory(directory)
                sync_directory(directory.parent)
                self._place = _place(self._data)
            except BaseException:
                self.lmdb.close()
                raise
        except BaseException:
            os.close(self._owner)
            raise

    def _check_format(self, form: str) -> None:
        with self.lmdb.begin(db=self.meta, write=True) as transaction:
            found = transaction.get(_FORMAT_KEY)
            if found is None and transaction.stat(self.meta)["entries"] == 0:
                transaction.put(_FORMAT_KEY, form.encode())
            elif found != form.encode():
                name = "nothing" if found is None else found.decode(errors="replace")
                text = f"this release reads and writes {form!r}"
                if name in _OPTIONS:
                    text = f"it is opened with `{_OPTIONS[name]}`; what was asked for is {form!r}"
                raise StoreError(f"{self.directory} was written in the format {name!r}; {text}")

    def is_in_place(self) -> bool:
        """Return whether the file that is open is the one that the next start will find."""
        try:
            return _place(self._data) == self._place
        except OSError:
            return False

    def slack(self) -> int:
        """Count the bytes that the file still has inside: pages that were given back."""
        with translated(f"look at {self.directory}"), self.lmdb.begin() as transaction:
            used = 2  # the two pages that name the last transactions
            for database in (None, self.meta, self.values):
                stat = transaction.stat(database) if database else self.lmdb.stat()
                used += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            page = self.lmdb.stat()["psize"]
            return max(self.lmdb.info()["last_pgno"] + 1 - used, 0) * page

    def room(self) -> int:
        """Count the bytes by which the file may still grow before the map is full."""
        info = self.lmdb.info()
        return info["map_size"] - (info["last_pgno"] + 1) * self.lmdb.stat()["psize"]

    def hold(self) -> None:
        """Stay open until `let_go`."""
        with self._lock:
            self._held += 1

    def let_go(self) -> None:
        """End what `hold` began; any thread may."""
        with self._lock:
            self._held -= 1
            waiting = [] if self._held else self._waiting
            if waiting:
                self._waiting = []
        for loop, let_go in waiting:
            # A loop that is closed has nobody waiting any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(let_go.set)

    async def all_let_go(self) -> None:
        """Wait, beside everything else, for whoever copies it; nobody may begin to meanwhile."""
        with self._lock:
            if not self._held:
                return
            let_go = asyncio.Event()
            self._waiting.append((asyncio.get_running_loop(), let_go))
        await let_go.wait()

    def close(self) -> None:
        """Close the environment, then let the directory go; nobody holds it any more."""
        assert not self._held, "snapshots are let go before"
        self.lmdb.close()
        os.close(self._owner)


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the engine's errors into this room's."""
    try:
        yield
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError) as error:
        raise Corrupt(f"could not {doing}: {error}") from error
    except (lmdb.Error, OSError) as error:
        raise Unavailable(f"could not {doing}: {error}") from error


def is_lasting(error: Exception) -> bool:
    """Return whether it will go on: the engine gave up, or its file does not answer any more.

    Those that the engine has a name for, like a full disk, pass; errors of the file have none.
    """
    return type(error) is lmdb.Error or isinstance(error, lmdb.PanicError)


def _check_there(data: Path) -> None:
    with translated(f"find the store in {data.parent}"):
        if not data.exists():
            raise Unavailable(f"there is no store in {data.parent}, and there was one before")
        if data.stat().st_size == 0:
            # The engine would take it for a new one.
            raise Corrupt(f"{data} is empty, and there was something in it before")


def _place(data: Path) -> tuple[int, int]:
    status = os.stat(data)
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Have a directory for oneself meanwhile, as a broker would."""
    owner = _own(directory)
    try:
        yield
    finally:
        os.close(owner)


def _own(directory: Path) -> int:
    """Take the directory for this process; the lock ends with the process, however it ends."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = os.open(directory / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(owner, 32).decode(errors="replace").strip()
        os.close(owner)
        raise StoreError(
            f"{directory} is in use by process {holder or '?'}: there can be one owner only"
        ) from error
    try:
        # In this order: on a full disk the block that the file has is enough.
        os.ftruncate(owner, os.write(owner, f"{os.getpid()}\n".encode()))
    except OSError as error:
        os.close(owner)
        raise Unavailable(f"{directory} cannot be written to: {error}") from error
    return owner


def _open(directory: Path, map_size: int | None) -> lmdb.Environment:
    data = directory / DATA
    problem = why_too_short(data) if data.exists() else None
    if problem is not None:
        raise Corrupt(problem)
    size = map_size or (_MAP_SIZE if sys.maxsize > 2**32 else _MAP_SIZE_32_BIT)
    while True:
        try:
            return lmdb.open(
                str(directory),
                map_size=size,
                sync=True,
                metasync=True,
                writemap=False,
                # A chunk's pages lie in a row: after a cold start reading ahead is worth a lot.
                readahead=True,
                mode=0o600,
                max_dbs=2,
                max_readers=64,
                max_spare_txns=2,
            )
        except lmdb.MemoryError as error:
            # Some hosts limit the address space of a process: take what there is.
            if map_size is not None or size <= _MAP_SIZE_32_BIT:
                raise Unavailable(f"{directory} cannot be mapped: {error}") from error
            size //= 4
        except (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError) as error:
            raise Corrupt(f"{directory} holds no store that can be read: {error}") from error
        except (lmdb.Error, OSError) as error:
            raise Unavailable(f"{directory} cannot be opened: {error}") from error


def sync_directory(directory: Path) -> None:
    """Make the directory's entries durable: a file that nobody finds again is lost, too."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
