"""The writing side of the segment store: all that is ready is one frame, one write, one sync.

A write covers whole pages, filled up with zeros, so that the system never has to read one before it
is written. After an error that leaves open what rests, nothing is written any more: what was not
answered is found or not found when the store is opened anew.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Final, final

from peeklock.store.segments.files import Segment, Segments
from peeklock.store.segments.frames import (
    APPENDED,
    DROPPED,
    HEADER_BYTES,
    PAGE,
    Buffer,
    FramePart,
    aligned,
    encode_frame,
    encode_header,
    frame_size,
    paged,
)
from peeklock.store.segments.tail import ChunkPlace, LogRequest, Tail
from peeklock.store.store import Broken, StoreError, Unavailable

# Nothing was changed by them: the disk is full.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# When a segment is written up to this part of it, the next one is made ready.
_READY_AT: Final = 4

# So many commits are no longer kept from the index.
PENDING_MAX: Final = 4096

_ZEROS: Final = bytes(PAGE)


@final
class LogCommit:
    """What the index has to learn of one commit, and where it ends."""

    __slots__ = ("end", "parts", "use")

    def __init__(self, use: int, end: int, parts: list[FramePart]) -> None:
        self.use: int = use
        self.end: int = end
        self.parts: list[FramePart] = parts


@final
class Log:
    """Appends frames to the segment in use, and goes on in the next one."""

    def __init__(
        self, segments: Segments, tails: dict[int, Tail], on_commit: Callable[[], None]
    ) -> None:
        self._segments = segments
        # By their numbers, also those that were dropped and still have chunks somewhere.
        self.tails = tails
        self._on_commit = on_commit
        # Commits that the index does not know yet; it takes them from the front.
        self.pending: list[LogCommit] = []
        # No epoch up to this one is given again: partitions that are gone had them.
        self.spent = 0
        self.failure: str | None = None
        self._segment: Segment | None = None
        self._file = -1
        self._is_early = True  # nobody was asked for the next segment
        self.use = 0
        self.offset = 0
        # Both at once, for who looks from another thread: behind the last commit that rests.
        self.end = (0, 0)

    def go_on(self, use: int, offset: int, segment: Segment | None) -> None:
        """Write behind what was found there; without a segment, in a new one."""
        self.use = use
        self.offset = offset
        self._segment = segment
        self.end = (use, offset)
        if segment is not None:
            self._file = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)

    @property
    def left_bytes(self) -> int:
        """How much room the segment in use still has."""
        segment = self._segment
        return 0 if segment is None else segment.size - self.offset

    @property
    def wants_next(self) -> bool:
        """Whether it is time to make the next segment ready."""
        segment = self._segment
        return segment is not None and self.offset > segment.size // _READY_AT

    def commit(self, requests: Sequence[LogRequest]) -> list[int | StoreError]:
        """Do all of it durably with one write; answers each request's result or error."""
        if self.failure is not None:
            return [Broken(self.failure) for _ in requests]
        results: list[int | StoreError] = []
        parts: list[FramePart] = []
        before = [(request.tail, request.tail.kept()) for request in requests]
        try:
            for request in requests:
                try:
                    results.append(request.apply(self.spent, parts))
                except StoreError as refused:
                    results.append(refused)
            if parts:
                self._write(parts)
        except Exception as error:  # noqa: BLE001 - the thread that commits must outlive anything
            for tail, kept in reversed(before):
                tail.bring_back(kept)
            return self._failed(error, results, len(requests))
        if parts:
            self._settle(parts)
        return results

    def _failed(
        self, error: Exception, results: list[int | StoreError], count: int
    ) -> list[int | StoreError]:
        text = f"the commit failed: {error!r}"
        kind = Broken if self.failure is not None else Unavailable
        failed: list[int | StoreError] = []
        # Who was refused before the commit failed is refused all the same.
        for index in range(count):
            result = results[index] if index < len(results) else 0
            if isinstance(result, StoreError):
                failed.append(result)
            else:
                failure = kind(text)
                failure.__cause__ = error
                failed.append(failure)
        return failed

    def _write(self, parts: list[FramePart]) -> None:
        size = frame_size(parts)
        segment = self._segment
        if segment is None or paged(self.offset + size) > segment.size:
            self._begin_segment(size, parts)
            return
        assert segment.use is not None
        pieces = encode_frame(segment.use, self.offset, parts)
        self._put(self._file, pieces, self.offset, self.offset + size)
        self.offset = aligned(self.offset + size)

    def _begin_segment(self, size: int, parts: list[FramePart]) -> None:
        """Write header and frame at once: a use without a commit is none."""
        segments = self._segments
        segment = segments.take(self.use + 1, self.offset, paged(HEADER_BYTES + size))
        assert segment.use is not None
        file = -1
        is_begun = False
        try:
            file = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
            pieces = [encode_header(segment.use), *encode_frame(segment.use, HEADER_BYTES, parts)]
            is_begun = True
            self._put(file, pieces, 0, HEADER_BYTES + size)
        except BaseException:
            if file >= 0:
                os.close(file)
            if self.failure is None:
                self._take_back(segment, is_begun)
            raise
        self.close()
        self._file = file
        self._segment = segment
        self.use += 1
        self._is_early = True
        self.offset = aligned(HEADER_BYTES + size)

    def _take_back(self, segment: Segment, is_begun: bool) -> None:
        """The use did not begin. Its number is given again, so that no trace of it may stay."""
        if not is_begun:
            self._segments.put_back(segment)
            return
        try:
            self._segments.discard(segment)
        except OSError as error:
            self.failure = f"a segment that was not begun cannot be removed: {error}"
            raise

    def _put(self, file: int, pieces: list[Buffer], offset: int, end: int) -> None:
        """Write up to the end of the last page, and sync."""
        if end % PAGE:
            pieces.append(_ZEROS[: paged(end) - end])
        disk = self._segments.disk
        try:
            disk.write(file, pieces, offset)
        except OSError as error:
            if error.errno not in _FULL:
                self.failure = f"a segment cannot be written: {error}"
            raise
        try:
            disk.sync(file)
        except BaseException as error:
            # The system may have thrown away what it could not write: asking again proves nothing.
            self.failure = f"a segment cannot be synced: {error}"
            raise

    def _settle(self, parts: list[FramePart]) -> None:
        """It rests: tell the readers at once and the index by and by."""
        use = self.use
        self.end = (use, self.offset)
        tails = self.tails
        for part in parts:
            part.data = b""
            if part.kind == APPENDED:
                place = ChunkPlace(part.first, part.end, part.at, use, part.offset, part.size)
                tails[part.number].recent.append(place)
            elif part.kind == DROPPED:
                self.spent = max(self.spent, part.value)
        self.pending.append(LogCommit(use, self.offset, parts))
        # Looked at afterwards: the index may take away from the front at any moment.
        count = len(self.pending)
        if count == 1 or count % PENDING_MAX == 0 or (self._is_early and self.wants_next):
            self._is_early = not self.wants_next
            self._on_commit()

    def close(self) -> None:
        """Let the file go."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
