"""What pins a segment: partitions share segments, so that one old chunk keeps all of one.

Where less than half of what the segments take is alive, the emptiest ones are read through, and
what still lives in them is written again at the end of the log.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, final

from peeklock.store.entries import CHUNK_KEY
from peeklock.store.environment import translated
from peeklock.store.segments.files import Segments
from peeklock.store.segments.frames import APPENDED, HEADER_BYTES, MOVED, Doubtful, FramePart, Use
from peeklock.store.segments.index import Index, decode_place
from peeklock.store.segments.scan import ReadAhead, Scan
from peeklock.store.segments.tail import moved
from peeklock.store.store import Corrupt

_LOG: Final = logging.getLogger("peeklock.store")

# What one commit moves, at most, beside one chunk.
MOVED_BYTES: Final = 1 << 20

# What one look reads, about: others want to read, too.
_LOOK_BYTES: Final = 8 << 20


@final
class Relocation:
    """Looks for what pins segments; each look gives a bounded part of it."""

    def __init__(self, index: Index, segments: Segments, reserve_bytes: int) -> None:
        self._index = index
        self._segments = segments
        self._reserve_bytes = reserve_bytes
        self._use = 0
        self._scan: Scan | None = None
        # Uses whose frames cannot be read to their ends; they stay until all in them is gone.
        self._unreadable: set[int] = set()
        # Uses that the system would not read; they are tried again after all others.
        self._put_off: set[int] = set()

    @property
    def is_due(self) -> bool:
        """Whether the segments take more than twice of what lives, beyond the reserve."""
        living = self._index.living_bytes
        return self._segments.used_bytes > 2 * living + self._reserve_bytes

    def next(self) -> list[FramePart] | None:
        """Return some chunks that pin the emptiest segment; None when there is none to be freed.

        What was given and could not be moved is found again after `start_over`.
        """
        with translated("read what pins a segment"), self._segments.reading():
            if self._scan is None or self._use not in self._index.living:
                self._scan = self._begin()
            if self._scan is None:
                self._put_off.clear()
                return None
            begin = self._scan.offset
            try:
                pinning = self._pinning(self._scan)
            except Corrupt as error:
                _LOG.error("store-segment-damaged use=%d error=%r", self._use, str(error))
                pinning = []
                self._leave(self._unreadable)
            except OSError as error:
                if not self._put_off:
                    _LOG.warning("store-segment-unread use=%d error=%r", self._use, str(error))
                pinning = []
                self._leave(self._put_off)
            else:
                if self._scan.offset == begin:
                    # All that can be found was moved; what a damaged frame hides stays.
                    self._leave(self._unreadable)
            return pinning

    def start_over(self) -> None:
        """What was given last was not moved: look through that segment once more."""
        self._scan = None

    def _leave(self, uses: set[int]) -> None:
        uses.add(self._use)
        self._scan = None

    def _begin(self) -> Scan | None:
        self._use = self._emptiest()
        living = self._index.living.get(self._use)
        segment = self._segments.used.get(self._use)
        if living is None or segment is None:
            return None
        pieces = ReadAhead(partial(self._segments.piece, segment))
        begin = segment.use.begin if segment.use is not None else HEADER_BYTES
        return Scan(pieces.read, Use(self._use, living.salt, 0), begin)

    def _emptiest(self) -> int:
        found, least = 0, 1.0
        passed = self._unreadable | self._put_off
        for number, living in list(self._index.living.items()):
            segment = self._segments.used.get(number)
            if segment is None or number >= self._index.use or number in passed:
                continue
            share = living.size / segment.size
            if share < least:
                found, least = number, share
        return found

    def _pinning(self, scan: Scan) -> list[FramePart]:
        pinning: list[FramePart] = []
        size = 0
        end = scan.offset + _LOOK_BYTES
        environment = self._index.environment
        with environment.lmdb.begin(db=environment.values, buffers=True) as transaction:
            while size < MOVED_BYTES and scan.offset < end:
                found = scan.next()
                if found is None:
                    break
                # Chunks have checksums of their own: damaged or not, they go where others are.
                frame = found.frame if isinstance(found, Doubtful) else found
                for part in frame.parts:
                    if part.kind not in (APPENDED, MOVED):
                        continue
                    raw = transaction.get(CHUNK_KEY.pack(part.number, part.first))
                    if raw is None:
                        continue
                    place = decode_place(part.first, raw)
                    here = place.use == self._use and place.offset == part.offset
                    if here and len(part.data) == place.size:
                        pinning.append(moved(part.number, place, bytes(part.data)))
                        size += place.size
        return pinning
