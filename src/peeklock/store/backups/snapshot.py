"""What is in a store at one instant, held until it is copied, while the store goes on.

Snapshots of several stores are taken in one step of the loop, without waiting. Whatever one of them
has then and others caused was answered before that step, and so the others have its cause: a
message that was forwarded is in one of them at least, and where it is in both, its number at the
source tells the destination that it has it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, final, runtime_checkable

if TYPE_CHECKING:
    from peeklock.store.environment import Environment
    from peeklock.store.segments.files import Segment

Advance: TypeAlias = Callable[[int], None]
"""Is told how many bytes more were copied."""

_PIECE: Final = 1 << 20


class Snapshot(Protocol):
    """Something as it was at one instant."""

    def copy(self, directory: Path, advance: Advance) -> None:
        """Write it into a new directory, synced; blocks, and belongs on a thread."""
        ...

    def release(self) -> None:
        """Let it go; may be called from any thread, once."""
        ...


@runtime_checkable
class KeepsSnapshots(Protocol):
    """An engine, or a catalog, whose state can be held."""

    def snapshot(self) -> Snapshot:
        """Hold what rests now; does not wait."""
        ...


@final
class EnvironmentSnapshot:
    """An LMDB environment as of its last commit; it cannot be closed until this is released."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        environment.hold()
        try:
            self._transaction = environment.lmdb.begin()
        except BaseException:
            environment.let_go()
            raise

    def copy(self, directory: Path, advance: Advance) -> None:
        """Write the pages that are in use."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._environment.lmdb.copy(str(directory), compact=True, txn=self._transaction)
        for path in directory.iterdir():
            path.chmod(0o600)
            sync_file(path)
            advance(path.stat().st_size)

    def release(self) -> None:
        """Let the pages be used again."""
        self._transaction.abort()
        self._environment.let_go()


@final
class SegmentSnapshot:
    """The index of a segment store, and its segments up to an end in the log."""

    def __init__(
        self,
        index: Snapshot,
        segments: dict[int, Segment],
        end: tuple[int, int],
        release: Callable[[], None],
    ) -> None:
        """Segments are by the numbers of their uses; all are kept as they are until release."""
        self._index = index
        self._end = end
        # A use that began behind the end has nothing in it that belongs to this instant.
        self._segments = {use: found for use, found in segments.items() if use <= end[0]}
        self._release = release

    def copy(self, directory: Path, advance: Advance) -> None:
        """Write the index, which may know less than the segments, and then the segments."""
        self._index.copy(directory, advance)
        last, offset = self._end
        for use, segment in sorted(self._segments.items()):
            size = min(offset, segment.size) if use == last else segment.size
            copy_file(segment.path, directory / segment.path.name, size, segment.size, advance)

    def release(self) -> None:
        """Let the segments be used again."""
        # In this order: with the index the store may be closed.
        try:
            self._release()
        finally:
            self._index.release()


def copy_file(source: Path, target: Path, size: int, full_size: int, advance: Advance) -> None:
    """Copy the first bytes of a file, zeros behind them; what is zero anyway takes no time."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with source.open("rb") as read, os.fdopen(descriptor, "wb") as write:
        left = size
        while left > 0 and (piece := read.read(min(_PIECE, left))):
            if any(piece):
                write.write(piece)
            else:
                write.seek(len(piece), os.SEEK_CUR)
            left -= len(piece)
            advance(len(piece))
        write.flush()
        os.ftruncate(descriptor, full_size)
        os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Make a file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
