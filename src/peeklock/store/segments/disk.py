"""What the segment store asks of the disk: few calls, so that a test can take its place."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, final

from peeklock.store.environment import sync_directory
from peeklock.store.segments.frames import Buffer

_PIECE: Final = 1 << 20
_PIECES_MAX: Final = 512

# Not every system can sync the data of a file alone.
sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class Disk(Protocol):
    """Makes, writes and syncs files; errors are those of the system."""

    def make(self, path: Path, size: int) -> None:
        """Make a file of zeros that rests with its size, or leave nothing."""
        ...

    def write(self, file: int, pieces: Sequence[Buffer], offset: int) -> None:
        """Write all pieces in a row."""
        ...

    def sync(self, file: int) -> None:
        """Wait until what was written rests."""
        ...


@final
class RealDisk:
    """The file system."""

    def make(self, path: Path, size: int) -> None:
        """Write zeros once, so that the file system has nothing to record later.

        They go past the system's cache where that is possible: nobody will ever read them, and
        copying them costs as much as what is written there later.
        """
        try:
            try:
                _fill(path, size, getattr(os, "O_DIRECT", 0))
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                _fill(path, size, 0)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)

    def write(self, file: int, pieces: Sequence[Buffer], offset: int) -> None:
        """Write with one call, unless the system takes less."""
        if len(pieces) > _PIECES_MAX:
            pieces = [b"".join(pieces)]
        size = sum([len(piece) for piece in pieces])
        written = os.pwritev(file, pieces, offset)
        while written < size:
            rest = memoryview(b"".join(pieces))[written:]
            more = os.pwrite(file, rest, offset + written)
            if more == 0:
                raise OSError("nothing was written")
            written += more

    def sync(self, file: int) -> None:
        """Size and place of the file do not change: its data are enough."""
        sync_data(file)


def _fill(path: Path, size: int, flags: int) -> None:
    flags |= os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            # A disk without so much room says so at once.
            os.posix_fallocate(file, 0, size)
        with mmap.mmap(-1, _PIECE) as zeros:  # begins with a page, as direct writes must
            offset = 0
            while offset < size:
                with memoryview(zeros)[: size - offset] as piece:
                    offset += os.pwrite(file, piece, offset)
        os.fsync(file)
    finally:
        os.close(file)
