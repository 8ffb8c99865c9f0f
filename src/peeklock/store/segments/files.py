"""The segment files of a store: which are in use, which are spare, and how they are read.

A file is made once, full of zeros, and used again and again. What nothing lives in any more is
spare; beyond the reserve, files are given back to the file system. Whoever reads is counted, so
that no file is written to while somebody may still be reading what lay in it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

from peeklock.store.environment import sync_directory
from peeklock.store.segments.disk import Disk
from peeklock.store.segments.frames import HEADER_BYTES, PAGE, Use, decode_header, paged
from peeklock.store.store import Corrupt

_LOG: Final = logging.getLogger("peeklock.store")

SEGMENT_BYTES: Final = 64 << 20
# Where the disk is nearly full, smaller files still take settlements.
SEGMENT_BYTES_MIN: Final = 1 << 20

# Files without anything alive in them that are kept, beside the one being written.
SPARE_MAX: Final = 3

PREFIX: Final = "segment-"
ASIDE: Final = "aside-"
_HANDLES_MAX: Final = 32
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@final
class Segment:
    """A file, and what it is used for at the moment."""

    def __init__(self, path: Path, size: int, use: Use | None, is_known: bool = True) -> None:
        self.path: Path = path
        self.number: int = int(path.name.removeprefix(PREFIX))
        self.size: int = size
        self.use: Use | None = use
        # Whether it has a header or was never used.
        self.is_known: bool = is_known


@final
class _Handle:
    """A file that is open for reading until nobody uses it any more."""

    def __init__(self, path: str) -> None:
        self.file: int = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        # One that could not be opened has no file.
        if hasattr(self, "file"):
            os.close(self.file)


@final
class Segments:
    """All segment files of one directory."""

    def __init__(self, directory: Path, disk: Disk, segment_bytes: int) -> None:
        self._directory = directory
        self.disk = disk
        self.segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self.used: dict[int, Segment] = {}
        self._spare: list[Segment] = []
        self._handles: OrderedDict[str, _Handle] = OrderedDict()
        # Readers by the time they began at; what was let go earlier than all of them is spare.
        self._time = 0
        self._readers: dict[int, int] = {}
        self._leaving: list[tuple[int, Segment]] = []
        self._name = 0

    # ---- which there are

    def find(self) -> list[Segment]:
        """Read the headers of all files; nobody else knows yet what is in them."""
        found: list[Segment] = []
        for path in sorted(self._directory.glob(f"{PREFIX}*")):
            number = path.name.removeprefix(PREFIX)
            if not number.isdigit():
                continue
            self._name = max(self._name, int(number))
            with path.open("rb") as file:
                begin = file.read(HEADER_BYTES + PAGE)  # with the first commit
            use = decode_header(begin)
            is_known = use is not None or not any(begin)
            found.append(Segment(path, path.stat().st_size, use, is_known))
        return found

    def adopt(self, found: list[Segment], in_use: set[int]) -> None:
        """Take the files that were found: those in use, all others as spare ones."""
        for segment in found:
            use = segment.use
            if use is not None and use.number in in_use and use.number not in self.used:
                self.used[use.number] = segment
            elif not segment.is_known:
                self._set_aside(segment)
            elif segment.size == self.segment_bytes and len(self._spare) < SPARE_MAX:
                segment.use = None
                self._spare.append(segment)
            else:
                segment.path.unlink(missing_ok=True)

    def _set_aside(self, segment: Segment) -> None:
        """Nobody can tell what is in it, so that it is kept where nobody uses it."""
        number = 1
        while (path := self._directory / f"{ASIDE}{segment.number:08d}-{number}").exists():
            number += 1
        segment.path.rename(path)
        _LOG.error("store-segment-unknown file=%s kept=%s", segment.path.name, path)

    @property
    def used_bytes(self) -> int:
        """How much of the disk the files in use take."""
        with self._lock:
            return sum([segment.size for segment in self.used.values()])

    @property
    def spare_bytes(self) -> int:
        """How much can be written without asking the file system for more."""
        with self._lock:
            return sum([segment.size for segment in self._spare])

    @property
    def has_spare(self) -> bool:
        """Whether the next segment is ready."""
        with self._lock:
            return any(each.size == self.segment_bytes for each in self._spare)

    # ---- taking and leaving

    def take(self, number: int, before_end: int, need: int) -> Segment:
        """Begin the use of a file that has so much room; OSError where there is none."""
        segment: Segment | None = None
        with self._lock:
            for index, spare in enumerate(self._spare):
                if spare.size >= need:
                    segment = self._spare.pop(index)
                    break
        if segment is None:
            segment = self._make(need)
        segment.use = Use(number, secrets.randbits(64), before_end)
        with self._lock:
            self.used[number] = segment
        return segment

    def put_back(self, segment: Segment) -> None:
        """Nothing was written to it after all."""
        with self._lock:
            if segment.use is not None:
                self.used.pop(segment.use.number, None)
            segment.use = None
            self._spare.append(segment)

    def discard(self, segment: Segment) -> None:
        """Take a file away for good: what was written to it must never pass for a use."""
        with self._lock:
            if segment.use is not None:
                self.used.pop(segment.use.number, None)
            self._handles.pop(str(segment.path), None)
        segment.path.unlink(missing_ok=True)
        sync_directory(self._directory)

    def prepare(self) -> None:
        """Make the next file before it is needed."""
        if not self.has_spare:
            path = self._next_path()
            self.disk.make(path, self.segment_bytes)
            with self._lock:
                self._spare.append(Segment(path, self.segment_bytes, None))

    def let_go(self, numbers: list[int]) -> None:
        """Nothing lives in these any more, and that rests."""
        with self._lock:
            for number in numbers:
                segment = self.used.get(number)
                if segment is not None:
                    # In this order: whoever reads looks at both without the lock.
                    self._leaving.append((self._time, segment))
                    del self.used[number]
            if numbers:
                self._time += 1
            self._sort_out()

    def _sort_out(self) -> None:
        """Make spare what nobody can be reading any more; give back what is too much."""
        oldest = min(self._readers, default=self._time)
        staying: list[tuple[int, Segment]] = []
        for time, segment in self._leaving:
            if time >= oldest:
                staying.append((time, segment))
            elif segment.size == self.segment_bytes and len(self._spare) < SPARE_MAX:
                segment.use = None
                self._spare.append(segment)
            else:
                self._handles.pop(str(segment.path), None)
                segment.path.unlink(missing_ok=True)
        self._leaving = staying

    def _make(self, need: int) -> Segment:
        need = paged(max(need, min(SEGMENT_BYTES_MIN, self.segment_bytes)))
        size = max(self.segment_bytes, need)
        path = self._next_path()
        while True:
            try:
                self.disk.make(path, size)
            except OSError as error:
                if error.errno not in _FULL or size <= need:
                    raise
                size = max(paged(size // 4), need)
            else:
                return Segment(path, size, None)

    def _next_path(self) -> Path:
        with self._lock:
            self._name += 1
            return self._directory / f"{PREFIX}{self._name:08d}"

    # ---- reading

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keep files as they are meanwhile, from before it is looked up what lies where."""
        with self._lock:
            time = self._time
            self._readers[time] = self._readers.get(time, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._readers[time] -= 1
                if not self._readers[time]:
                    del self._readers[time]
                if self._leaving:
                    self._sort_out()

    def pin(self) -> Callable[[], None]:
        """Keep files as they are until what is answered is called."""
        reading = contextlib.ExitStack()
        reading.enter_context(self.reading())
        return reading.close

    def in_use(self) -> dict[int, Segment]:
        """Return the files in use, by the numbers of their uses."""
        with self._lock:
            return dict(self.used)

    def read(self, number: int, offset: int, target: bytearray | memoryview) -> None:
        """Fill a buffer from a segment; Corrupt where there is nothing to fill it from.

        What the system refuses (OSError) says nothing of what lies there: another time it may do.
        """
        segment = self._segment(number)
        handle = self._handle(str(segment.path))
        if os.preadv(handle.file, [target], offset) != len(target):
            raise Corrupt(f"{segment.path} ends before {offset + len(target)}")

    def piece(self, segment: Segment, offset: int, size: int) -> bytes:
        """Read so many bytes of a segment, less at its end; errors are those of the system."""
        handle = self._handle(str(segment.path))  # kept: it ends with whoever uses it
        return os.pread(handle.file, size, offset)

    def _segment(self, number: int) -> Segment:
        segment = self.used.get(number)
        if segment is not None:
            return segment
        # A reader that began before may still look for it.
        for _, leaving in self._leaving:
            use = leaving.use
            if use is not None and use.number == number:
                return leaving
        raise Corrupt(f"segment {number} is missing in {self._directory}")

    def _handle(self, path: str) -> _Handle:
        with self._lock:
            handle = self._handles.get(path)
            if handle is None:
                handle = self._handles[path] = _Handle(path)
                if len(self._handles) > _HANDLES_MAX:
                    # It is closed by the last one that uses it.
                    self._handles.popitem(last=False)
            else:
                self._handles.move_to_end(path)
            return handle

    def close(self) -> None:
        """Let all files go."""
        with self._lock:
            self._handles.clear()
