"""A segment store read without its engine: its chunks, wherever they lie, damaged or not.

`inspection.py` judges what they mean. Nothing is changed here.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias, final

from peeklock.store.entries import (
    CHUNK_KEY,
    DROPPED,
    ENTRY_KEY,
    EPOCHS,
    PARTITION,
    PartitionEntry,
    decode_epoch,
    encode_epoch,
)
from peeklock.store.segments import frames
from peeklock.store.segments.disk import RealDisk
from peeklock.store.segments.files import SEGMENT_BYTES, Segment, Segments
from peeklock.store.segments.frames import FRAME_BYTES, Doubtful, FramePart
from peeklock.store.segments.index import (
    APPLIED,
    SEGMENT,
    SEGMENT_KEY,
    Living,
    decode_applied,
    decode_living,
    decode_place,
)
from peeklock.store.segments.opening import uses_behind
from peeklock.store.segments.scan import Scan, held
from peeklock.store.store import Corrupt

Chunks: TypeAlias = dict[int, list[tuple[int, memoryview]]]

_NOTHING: Final = memoryview(b"")


@final
class Contents:
    """What the index and the log together say. `entries` is the index's `meta`, brought to the end
    of the log; `problems` are told while it is read.

    Without an index (`places` is None), `entries` is its last copy, and the segments say the rest.
    """

    def __init__(
        self,
        directory: Path,
        entries: dict[bytes, bytes],
        places: Iterable[tuple[bytes, memoryview]] | None,
    ) -> None:
        self.entries = entries
        self.problems: list[str] = []
        # Whether a value of the index does not fit its checksum.
        self.is_index_damaged = any(_is_damaged(*each) for each in entries.items())
        self._chunks: dict[tuple[int, int], memoryview] = {}
        self._partitions: dict[int, PartitionEntry] = {}
        use, offset = decode_applied(memoryview(entries[APPLIED])) if APPLIED in entries else (0, 0)
        living = self._living()
        found = Segments(directory, RealDisk(), SEGMENT_BYTES).find()
        behind = uses_behind(use, living, found)
        for unknown in found:
            if not unknown.is_known and unknown.use is None:
                self.problems.append(f"nobody can tell what is in {unknown.path.name}")
        contents = {each.use.number: _mapped(each) for each in found if each.use is not None}
        if places is None:
            self._find_places(found, contents, use, offset)
        else:
            for key, value in places:
                if len(key) == CHUNK_KEY.size:
                    self._place(key, value, contents)
        for at, (segment, each) in enumerate(behind):
            end = behind[at + 1][1].before_end if at + 1 < len(behind) else None
            begin = offset if each.number == use else each.begin
            content = contents[each.number]
            self._scan(segment, content, Scan(held(content), each, begin), end)
        for number, partition in self._partitions.items():
            entries[PARTITION + ENTRY_KEY.pack(number)] = partition.encoded()

    def _find_places(
        self, found: list[Segment], contents: dict[int, memoryview], last: int, offset: int
    ) -> None:
        """Look for the chunks of all partitions in what the index had known, oldest first."""
        uses = {segment.use.number: segment for segment in found if segment.use is not None}
        for number in sorted(uses):
            segment = uses[number]
            if number > last or segment.use is None:
                continue
            following = uses.get(number + 1)
            end = offset if number == last else None
            if number < last and following is not None and following.use is not None:
                end = following.use.before_end
            scan = Scan(held(contents[number]), segment.use, segment.use.begin)
            self._scan(segment, contents[number], scan, end, is_known=True)

    @property
    def chunks(self) -> Chunks:
        """All chunks by partition and in their order."""
        chunks: Chunks = {}
        for number, first in sorted(self._chunks):
            chunks.setdefault(number, []).append((first, self._chunks[number, first]))
        return chunks

    def _living(self) -> dict[int, Living]:
        living: dict[int, Living] = {}
        for key, value in self.entries.items():
            if key[:1] == SEGMENT and len(key) == 1 + SEGMENT_KEY.size:
                number = SEGMENT_KEY.unpack(key[1:])[0]
                living[number] = decode_living(memoryview(value))
        return living

    def _place(self, key: bytes, value: memoryview, contents: dict[int, memoryview]) -> None:
        number, first = CHUNK_KEY.unpack(key)
        chunk = _NOTHING
        try:
            place = decode_place(first, value)
        except Corrupt as error:
            self.problems.append(str(error))
            self.is_index_damaged = True
        else:
            content = contents.get(place.use)
            if content is None:
                self._tell(f"segment {place.use} is missing")
            else:
                chunk = content[place.offset : place.offset + place.size]
        self._chunks[number, first] = chunk

    def _scan(
        self,
        segment: Segment,
        content: memoryview,
        scan: Scan,
        end: int | None,
        *,
        is_known: bool = False,
    ) -> None:
        """Take in frames; of those that the index had known, the chunks of who is still there."""
        while end is None or scan.offset < end:
            offset = scan.offset
            found = scan.next()
            if found is None or (end is None and isinstance(found, Doubtful)):
                later = scan.later(offset + FRAME_BYTES)
                if later is None and end is None:
                    return  # it was never answered
                if found is None:
                    behind = f"{later}" if later is not None else "its end"
                    text = f"{segment.path.name} cannot be read from {offset} to {behind}"
                    self.problems.append(f"{text}: nobody can tell whose commits were there")
                    if later is None:
                        return
                    scan.offset = later
                    continue
            frame = found.frame if isinstance(found, Doubtful) else found
            for part in frame.parts:
                if not is_known:
                    self._take_in(part, content)
                elif part.kind in (frames.APPENDED, frames.MOVED) and self._is_there(part.number):
                    self._chunks[part.number, part.first] = _data(part, content)

    def _is_there(self, number: int) -> bool:
        return PARTITION + ENTRY_KEY.pack(number) in self.entries

    def _take_in(self, part: FramePart, content: memoryview) -> None:
        number = part.number
        if part.kind == frames.OPENED:
            partition = self._partition(number)
            if partition is None:
                partition = PartitionEntry(number, bytes(part.data).decode(errors="replace"))
                self._partitions[number] = partition
            partition.epoch = part.value
        elif part.kind == frames.APPENDED:
            self._chunks[number, part.first] = _data(part, content)
            partition = self._partition(number)
            if partition is not None:
                if partition.end == 0:
                    partition.replay_from = partition.extent.first = part.first
                if part.value:
                    partition.replay_from = part.value - 1
                partition.end = part.end
                partition.extent.size += part.size
        elif part.kind == frames.MOVED and (number, part.first) in self._chunks:
            self._chunks[number, part.first] = _data(part, content)
        elif part.kind == frames.DROPPED:
            name = self._partitions.pop(number, PartitionEntry(number, "")).name
            self.entries.pop(PARTITION + ENTRY_KEY.pack(number), None)
            self.entries[DROPPED + ENTRY_KEY.pack(number)] = name.encode()
            spent = decode_epoch(self.entries.get(EPOCHS, bytes(8)))
            self.entries[EPOCHS] = encode_epoch(max(spent, part.value))

    def _partition(self, number: int) -> PartitionEntry | None:
        """What is known of a partition, whole; nothing where it is damaged or not there."""
        raw = self.entries.get(PARTITION + ENTRY_KEY.pack(number))
        if number not in self._partitions and raw is not None:
            partition = PartitionEntry(number, "")
            try:
                partition.decode(memoryview(raw))
            except Corrupt:
                return None  # who judges it says so
            self._partitions[number] = partition
        return self._partitions.get(number)

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _is_damaged(key: bytes, value: bytes) -> bool:
    if key[:1] == PARTITION and len(key) == 1 + ENTRY_KEY.size:
        try:
            PartitionEntry(0, "").decode(memoryview(value))
        except Corrupt:
            return True
    return False


def _mapped(segment: Segment) -> memoryview:
    with segment.path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _data(part: FramePart, content: memoryview) -> memoryview:
    return content[part.offset : part.offset + part.size]
