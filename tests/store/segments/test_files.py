"""The segment files by themselves: taken, left and read at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from peeklock.store.segments.disk import RealDisk
from peeklock.store.segments.files import Segment, Segments
from peeklock.store.segments.frames import PAGE
from peeklock.store.store import Corrupt

SIZE = 4 * PAGE


def test_a_segment_can_be_read_at_each_moment_of_its_leaving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads takes no lock: a healthy chunk is never told as missing."""
    segments = Segments(tmp_path, RealDisk(), SIZE)
    reads = 0

    class Watched(dict[int, Segment]):
        def pop(self, number: int, *rest: object) -> Segment:
            segment = super().pop(number)
            look()
            return segment

        def __delitem__(self, number: int) -> None:
            super().__delitem__(number)
            look()

    def look() -> None:
        nonlocal reads
        segments.read(1, PAGE, bytearray(PAGE))
        reads += 1

    segments.take(1, 0, PAGE)
    segments.used = Watched(segments.used)
    segments._handle(str(segments.used[1].path))
    # The lock is held while it leaves, by this very thread: the file is open, nobody waits.
    with segments.reading():
        handles = segments._handles
        monkeypatch.setattr(segments, "_handle", lambda path: handles[path])
        segments.let_go([1])
        look()
    assert reads == 2
    with pytest.raises(Corrupt, match="segment 1 is missing"):
        look()
