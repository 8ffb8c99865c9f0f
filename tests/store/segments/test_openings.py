"""What an opening makes of files that a bad disk left: nothing answered is lost without a word."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from peeklock.store.checksum import crc32
from peeklock.store.codec.records import encode_chunk
from peeklock.store.segments.frames import (
    APPENDED,
    HEADER_BYTES,
    OPENED,
    PAGE,
    Buffer,
    FramePart,
    Use,
    decode_header,
    encode_frame,
)
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import Corrupt, Unavailable
from tests.store.builders import enqueued
from tests.store.segments.disks import SEGMENT, Faulty, copied, expect, opened, run
from tests.store.stores import ORDERS

# ---- a segment that could not be begun


class Partly(Faulty):
    """A disk that is full when a segment begins, after so many bytes of it."""

    taken: int | None = None

    def write(self, file: int, pieces: Sequence[Buffer], offset: int) -> None:
        if self.taken is not None and offset == 0:
            os.pwrite(file, b"".join(pieces)[: self.taken], 0)
            os.fsync(file)
            raise OSError(errno.ENOSPC, "full")
        super().write(file, pieces, offset)


@pytest.mark.parametrize("taken", [0, PAGE, HEADER_BYTES, HEADER_BYTES + 400, SEGMENT])
def test_a_segment_that_could_not_be_begun_leaves_no_trace(tmp_path: Path, taken: int) -> None:
    """The next one has the same number: an opening must not take this one for it."""
    directory = tmp_path / "store"
    disk = Partly()

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        position = 1
        store._segments.prepare()
        while store._log.left_bytes > 9000:
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1, 4000)])
            position += 1
        disk.taken = taken
        with pytest.raises(Unavailable, match="full"):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 2, 4000)])
        disk.taken = None
        for _ in range(10):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 2, 4000)])
            position += 2
        copied(directory, "left")
        ends.append(position)

    ends: list[int] = []
    run(opened(directory, disk=disk, lag_s=1000), scenario)
    run(opened(tmp_path / "left"), lambda store: expect(store, ORDERS, ends[0], 4000))
    run(opened(tmp_path / "left"), lambda store: expect(store, ORDERS, ends[0], 4000))


def test_a_use_that_is_there_twice_is_damage(tmp_path: Path) -> None:
    """Nobody can tell which of them was answered."""
    left, _ = filled(tmp_path)
    path = newest(left)
    shutil.copy(path, path.with_name("segment-00000099"))
    with pytest.raises(Corrupt, match=r"segment \d is there more than once, in .*-00000099"):
        opened(left)


def test_a_segment_whose_first_commit_is_damaged_was_begun_all_the_same(tmp_path: Path) -> None:
    left, _ = filled(tmp_path)
    with newest(left).open("r+b") as file:
        file.seek(HEADER_BYTES + 20)
        file.write(b"damage")
    with pytest.raises(Corrupt, match=r"is damaged at .*, and commits lie behind that"):
        opened(left)


def filled(tmp_path: Path) -> tuple[Path, int]:
    """A store of several segments whose index knows nothing yet, and where its journal ends."""
    directory = tmp_path / "store"
    end = 85

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        for position in range(1, end):
            await store.append(ORDERS, 1, position, [enqueued(5, position, 1, 4000)])
        copied(directory, "left")

    run(opened(directory, lag_s=1000), scenario)
    return tmp_path / "left", end


def newest(directory: Path) -> Path:
    """The segment that was begun last."""
    uses: dict[int, Path] = {}
    for path in directory.glob("segment-*"):
        use = decode_header(path.read_bytes())
        if use is not None:
            uses[use.number] = path
    assert len(uses) > 2
    return uses[max(uses)]


# ---- pages that were lost


def test_a_lost_page_is_noticed_however_far_the_next_commit_lies(tmp_path: Path) -> None:
    """It reads as zeros, as if nothing had ever been written there."""
    directory = tmp_path / "store"
    begins: list[int] = []

    async def scenario(store: SegmentStore) -> None:
        await store.open(ORDERS)
        await store.append(ORDERS, 1, 1, [enqueued(5, 1, 1)])
        begins.append(store._log.offset)
        await store.append(ORDERS, 1, 2, [enqueued(5, 2, 5, 1 << 20)])
        await store.append(ORDERS, 1, 7, [enqueued(5, 7, 1)])
        copied(directory, "left")

    large = 8 << 20
    run(SegmentStore(directory, segment_bytes=large, commit="inline", lag_s=1000), scenario)
    (path,) = (
        each for each in (tmp_path / "left").glob("segment-*") if decode_header(each.read_bytes())
    )
    with path.open("r+b") as file:
        file.seek(begins[0])
        file.write(bytes(-begins[0] % PAGE))
    with pytest.raises(Corrupt, match=r"is damaged at .*, and commits lie behind that"):
        SegmentStore(tmp_path / "left", segment_bytes=large)


@pytest.mark.parametrize("page", [0, 1])
@pytest.mark.parametrize("filler", [b"\0", b"x"])
def test_a_lost_page_of_a_header_costs_nothing(tmp_path: Path, page: int, filler: bytes) -> None:
    left, end = filled(tmp_path)
    for path in left.glob("segment-*"):
        if decode_header(path.read_bytes()) is not None:
            with path.open("r+b") as file:
                file.seek(page * PAGE)
                file.write(filler * PAGE)
    run(opened(left), lambda store: expect(store, ORDERS, end, 4000))


def test_a_file_that_nobody_knows_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is neither used again nor removed, however often the store is opened."""
    left, _ = filled(tmp_path)
    unknown = newest(left)
    with unknown.open("r+b") as file:
        file.write(bytes(HEADER_BYTES))
    raw = unknown.read_bytes()
    with caplog.at_level(logging.ERROR, "peeklock.store"):
        run(opened(left), write_much)
    run(opened(left), write_much)
    assert "store-segment-unknown" in caplog.text
    (kept,) = left.glob("aside-*")
    assert kept.read_bytes() == raw


async def write_much(store: SegmentStore) -> None:
    opening = await store.open(ORDERS)
    position = store._tails[ORDERS.key].end
    for _ in range(40):
        await store.append(ORDERS, opening.epoch, position, [enqueued(5, position, 1, 4000)])
        position += 1


def test_segments_of_the_first_form_are_read(tmp_path: Path) -> None:
    """They had both copies of the header in one page."""
    run(opened(tmp_path), nothing)
    use = Use(1, 4711, 0, PAGE)
    head = struct.pack("<8sQQQ", b"PeekSeg1", use.number, use.salt, 0)
    header = (head + struct.pack("<I", crc32(head))).ljust(PAGE // 2, b"\0") * 2
    parts = [
        FramePart(OPENED, 1, 0, 0, 1, 0, ORDERS.key.encode()),
        FramePart(APPENDED, 1, 1, 21, 0, 5, encode_chunk(1, [enqueued(5, 1, 20)])),
    ]
    raw = header + b"".join(encode_frame(use, PAGE, parts))
    (tmp_path / "segment-00000001").write_bytes(raw.ljust(SEGMENT, b"\0"))
    run(opened(tmp_path), lambda store: expect(store, ORDERS, 21))
    run(opened(tmp_path), lambda store: expect(store, ORDERS, 21))


async def nothing(store: SegmentStore) -> None:
    pass
