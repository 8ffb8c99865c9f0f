"""Segment stores for tests: a disk that fails on command, copies as a kill leaves them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from peeklock.store.segments.disk import RealDisk
from peeklock.store.segments.frames import Buffer
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import PartitionId
from tests.store.builders import enqueued, message_of, shown, told
from tests.store.stores import replayed

SEGMENT = 64 << 10
SIZE = 100


class Faulty:
    """A disk that fails on command and remembers what was asked of it; the rest is real."""

    def __init__(self) -> None:
        self.real = RealDisk()
        self.sync_error: OSError | None = None
        self.write_error: OSError | None = None
        self.make_error: OSError | None = None
        self.writes: list[tuple[str, int, bytes]] = []
        self.before: list[bytes] = []  # what lay there
        self.syncs = 0

    def make(self, path: Path, size: int) -> None:
        if self.make_error is not None:
            raise self.make_error
        self.real.make(path, size)

    def write(self, file: int, pieces: Sequence[Buffer], offset: int) -> None:
        if self.write_error is not None:
            raise self.write_error
        raw = b"".join(pieces)
        self.before.append(os.pread(file, len(raw), offset))
        self.writes.append((os.readlink(f"/proc/self/fd/{file}"), offset, raw))
        self.real.write(file, pieces, offset)

    def sync(self, file: int) -> None:
        self.syncs += 1
        if self.sync_error is not None:
            raise self.sync_error
        self.real.sync(file)


def opened(directory: Path, **options: Any) -> SegmentStore:
    options.setdefault("commit", "inline")
    return SegmentStore(directory, segment_bytes=SEGMENT, **options)


def run(store: SegmentStore, scenario: Callable[[SegmentStore], Awaitable[None]]) -> None:
    async def living() -> None:
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(living())


def copied(directory: Path, name: str) -> Path:
    """A copy of a store as a kill would leave it now: all files of one instant."""
    copy = directory.with_name(name)
    for _ in range(200):
        shutil.rmtree(copy, ignore_errors=True)
        before = _stamps(directory)
        shutil.copytree(directory, copy)
        # Its thread may write meanwhile; a kill leaves no file newer than another.
        if _stamps(directory) == before:
            return copy
    raise AssertionError("the store is never quiet")


def _stamps(directory: Path) -> dict[str, tuple[int, int]]:
    found = {path.name: path.stat() for path in directory.iterdir()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


async def expect(store: SegmentStore, partition: PartitionId, end: int, size: int = SIZE) -> None:
    """All messages from 1 up to `end` (excluded) are there, with their bodies."""
    _, first, records = await replayed(store, partition)
    assert (first, told(records, False)) == (1, told([enqueued(5, 1, end - 1, size)], False))
    positions = list(range(1, end))
    bodies = await store.payloads(partition, positions)
    assert [shown(m) for m in bodies] == [shown(message_of(p, size)) for p in positions]
