"""Reads the frames of one use of a segment, one after another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias, final

from peeklock.store.segments.disk import sync_data
from peeklock.store.segments.frames import (
    FRAME_BYTES,
    FRAME_MARK_AT,
    PAGE,
    Buffer,
    Doubtful,
    Frame,
    Use,
    aligned,
    decode_frame,
    frame_bytes,
    frame_mark,
)

Read: TypeAlias = Callable[[int, int], Buffer]
"""Gives so many bytes at an offset, less at the end."""

_PIECE: Final = 1 << 20


@final
class Scan:
    """The frames of one use of a segment, from an offset on."""

    def __init__(self, read: Read, use: Use, offset: int) -> None:
        self._read = read
        self._use = use
        self.offset = offset

    def next(self) -> Frame | Doubtful | None:
        """Return the commit that begins here; nothing where none does."""
        found = self._frame(self.offset)
        if found is not None:
            frame = found.frame if isinstance(found, Doubtful) else found
            self.offset = frame.next
        return found

    def later(self, offset: int) -> int | None:
        """Return where the next frame begins whose head is whole, at or behind an offset."""
        mark = frame_mark(self._use)
        offset += FRAME_MARK_AT
        while True:
            piece = bytes(self._read(offset, _PIECE))
            at = piece.find(mark)
            while at >= 0:
                begin = offset + at - FRAME_MARK_AT
                if begin == aligned(begin) and self._frame(begin) is not None:
                    return begin
                at = piece.find(mark, at + 1)
            if len(piece) < _PIECE:
                return None
            offset += _PIECE - len(mark)

    def _frame(self, offset: int) -> Frame | Doubtful | None:
        size = frame_bytes(self._read(offset, FRAME_BYTES), self._use, offset)
        return decode_frame(self._read(offset, size), self._use, offset) if size else None


@final
class ReadAhead:
    """Reads ahead, so that small frames cost no call each."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        """It is asked for so many bytes at an offset, and gives less at the end."""
        self._read = read
        self._begin = 0
        self._piece = b""

    def read(self, offset: int, size: int) -> Buffer:
        """Give so many bytes, less at the end."""
        begin = offset - self._begin
        if begin < 0 or begin + size > len(self._piece):
            self._begin, begin = offset, 0
            self._piece = self._read(offset, max(size, _PIECE))
        return memoryview(self._piece)[begin : begin + size]


@contextlib.contextmanager
def durable(path: Path, begin: int) -> Iterator[Read]:
    """Read a segment file from an offset on, as it is on the disk; what is not yet is synced."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        sync_data(file)
        if hasattr(os, "posix_fadvise"):
            # What the system only remembers is no proof that it rests.
            begin = begin // PAGE * PAGE
            os.posix_fadvise(file, begin, 0, os.POSIX_FADV_DONTNEED)
        yield ReadAhead(lambda offset, size: os.pread(file, size, offset)).read
    finally:
        os.close(file)


def held(content: Buffer) -> Read:
    """Read what is in memory as a whole."""
    view = memoryview(content)
    return lambda offset, size: view[offset : offset + size]
