"""What the segment store asks of the disk: few calls, so that a test can take its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, final

from peeklock.store.environment import sync_directory
from peeklock.store.segments.frames import Buffer

_PIECE: Final = 1 << 20
_PIECES_MAX: Final = 512


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
        """Write zeros once, so that the file system has nothing to record later."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            zeros = bytes(min(_PIECE, size))
            for offset in range(0, size, len(zeros)):
                self.write(file, [zeros[: size - offset]], offset)
            os.fsync(file)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
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
        os.fdatasync(file)
