"""The low-water mark: whether a disk still has the room that settlements will need."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from peeklock.store.store import StoreError

CHECK_EVERY_S: Final = 1.0

_LOG: Final = logging.getLogger("peeklock.store")


@final
class Space:
    """Watches the room that is left, cheaply: once a second, and again after much was written.

    Below `reserve` bytes the store is full. It stays so until a quarter more than that is free, so
    that senders are not let in and refused in turns.
    """

    def __init__(self, reserve: int, left: Callable[[], int], clock: Callable[[], float]) -> None:
        self._reserve = reserve
        self._left = left
        self._clock = clock
        self._due = 0.0
        self._written = 0
        self._full = False
        # What was left when it was last looked at; below nothing while nobody has.
        self.left_bytes = -1

    def wrote(self, size: int) -> None:
        """Count what was written since the last look; may be called from another thread."""
        self._written += size
        if self._written >= self._reserve // 4:
            self._due = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time for another look."""
        return self._clock() >= self._due

    @property
    def last(self) -> bool:
        """Whether it was full at the last look."""
        return self._full

    @property
    def full(self) -> bool:
        """Whether less than the reserve is left."""
        now = self._clock()
        if now >= self._due:
            self._due = now + CHECK_EVERY_S
            self._written = 0
            mark = self._reserve + self._reserve // 4 if self._full else self._reserve
            try:
                left = self._left()
            except (OSError, StoreError) as error:
                # A disk that cannot tell fails with the next commit, which has better words.
                _LOG.warning("store-space-unknown error=%r", str(error))
                return self._full
            self.left_bytes = left
            was_full, self._full = self._full, left < mark
            if self._full != was_full:
                event = "store-full" if self._full else "store-has-room"
                _LOG.warning("%s left_bytes=%d reserve_bytes=%d", event, left, self._reserve)
        return self._full


def free_space(directory: Path) -> int:
    """Count the bytes that this process may still write to the directory's file system."""
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
