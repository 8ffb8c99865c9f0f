"""How the log rests: segments, in them one frame for each commit, in that the parts of it.

    segment    header (two pages), frames, each at a multiple of 64 bytes
    header     in each page: magic 8 bytes, use u64, salt u64, end of the segment before u64,
               crc u32; its first form had both copies in one page, and frames behind that
    frame      magic u32, parts u32, salt u64, use u64, offset u64, bytes u64, crc of all that
               stands before the data u32, crc of the data u32; then the parts, then their data
    part       kind u8, 3 zero bytes, number of the partition u32, first position u64, end u64,
               value u64, instant i64, bytes of data u64

All numbers are little-endian. A segment is used many times, and each use has a number that no other
has. The salt of a use is random: whatever a message carries, its bytes never pass for a frame. What
an earlier use has left behind does not fit, because use and offset stand in each frame and are
covered by its crc.

    kind       value                          data
    APPENDED   start of replay + 1, or 0      a chunk
    OPENED     the epoch                      the partition's name
    DROPPED    the last epoch                 -
    MOVED      -                              a chunk that lay in an older segment
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias, cast, final

from peeklock.store import checksum

Buffer: TypeAlias = bytes | bytearray | memoryview

PAGE: Final = 4096
ALIGNED: Final = 64

APPENDED: Final = 1
OPENED: Final = 2
DROPPED: Final = 3
MOVED: Final = 4

_crc32: Final = checksum.crc32
HEADER_BYTES: Final = 2 * PAGE  # a page for each copy: no single fault hits both
_MAGIC: Final = b"PeekSeg2"
_FIRST_MAGIC: Final = b"PeekSeg1"
_FIRST_COPY_AT: Final = PAGE // 2
_header: Final = struct.Struct("<8sQQQ")
FRAME_MAGIC: Final = 0x6D617246
_frame: Final = struct.Struct("<IIQQQQ")
_crcs: Final = struct.Struct("<II")
_crc: Final = struct.Struct("<I")
_part: Final = struct.Struct("<B3xIQQQqQ")
FRAME_BYTES: Final = 48
PART_BYTES: Final = 48
_PARTS_MAX: Final = 1 << 20


@final
class FramePart:
    """What one commit tells of one partition; `offset` is where its data lie in the segment."""

    __slots__ = ("at", "data", "end", "first", "kind", "number", "offset", "size", "value")

    def __init__(
        self,
        kind: int,
        number: int,
        first: int,
        end: int,
        value: int,
        at: int,
        data: Buffer,
    ) -> None:
        self.kind: int = kind
        self.number: int = number
        self.first: int = first
        self.end: int = end
        self.value: int = value
        self.at: int = at
        self.data: Buffer = data
        self.size: int = len(data)
        self.offset: int = 0


@final
class Use:
    """One use of a segment, as its header tells of it."""

    __slots__ = ("before_end", "begin", "number", "salt")

    def __init__(self, number: int, salt: int, before_end: int, begin: int = HEADER_BYTES) -> None:
        self.number: int = number
        self.salt: int = salt
        # Where the frames of the use before this one end.
        self.before_end: int = before_end
        # Where its own begin.
        self.begin: int = begin


@final
class Frame:
    """One commit as it was read, whole."""

    __slots__ = ("next", "offset", "parts")

    def __init__(self, offset: int, end: int, parts: list[FramePart]) -> None:
        self.offset: int = offset
        self.next: int = end  # where the next one begins
        self.parts: list[FramePart] = parts


@final
class Doubtful:
    """A commit whose data do not fit their checksum, while its head does: torn, or damaged."""

    __slots__ = ("frame",)

    def __init__(self, frame: Frame) -> None:
        self.frame: Frame = frame


def encode_header(use: Use) -> bytes:
    """Return the first pages of a segment in use."""
    raw: bytes = _header.pack(_MAGIC, use.number, use.salt, use.before_end)
    return (raw + _crc.pack(_crc32(raw))).ljust(PAGE, b"\0") * 2


def decode_header(raw: Buffer) -> Use | None:
    """Read the first pages of a segment; nothing where it was never used, or where all is damaged.

    Where a copy was not written, an older use stands in its place: the newest one counts.
    """
    newest: Use | None = None
    for at in (0, PAGE, _FIRST_COPY_AT):
        use = _decode_copy(raw, at)
        if use is not None and (newest is None or use.number > newest.number):
            newest = use
    return newest


def _decode_copy(raw: Buffer, at: int) -> Use | None:
    if len(raw) < at + _header.size + _crc.size:
        return None
    magic, number, salt, before_end = cast(
        tuple[bytes, int, int, int], _header.unpack_from(raw, at)
    )
    crc: int = _crc.unpack_from(raw, at + _header.size)[0]
    if _crc32(raw[at : at + _header.size]) != crc:
        return None
    if magic == _MAGIC and at != _FIRST_COPY_AT:
        return Use(number, salt, before_end)
    if magic == _FIRST_MAGIC and at != PAGE:
        return Use(number, salt, before_end, PAGE)
    return None


def frame_size(parts: list[FramePart]) -> int:
    """Return how many bytes a frame of these parts has."""
    size = FRAME_BYTES + PART_BYTES * len(parts)
    for part in parts:
        size += part.size
    return size


def encode_frame(use: Use, offset: int, parts: list[FramePart]) -> list[Buffer]:
    """A frame as it is written at an offset, in pieces; the parts are told where their data lie."""
    size = frame_size(parts)
    head: bytes = _frame.pack(FRAME_MAGIC, len(parts), use.salt, use.number, offset, size)
    table: list[bytes] = []
    pieces: list[Buffer] = [b""]
    at = offset + FRAME_BYTES + PART_BYTES * len(parts)
    crc = 0
    for part in parts:
        table.append(
            _part.pack(part.kind, part.number, part.first, part.end, part.value, part.at, part.size)
        )
        part.offset = at
        if part.size:
            pieces.append(part.data)
            crc = _crc32(part.data, crc)
            at += part.size
    directory = b"".join(table)
    crcs: bytes = _crcs.pack(_crc32(directory, _crc32(head)), crc)
    pieces[0] = head + crcs + directory
    return pieces


def frame_bytes(raw: Buffer, use: Use, offset: int) -> int:
    """Return how long the frame is that begins with these bytes; 0 where none does."""
    if len(raw) < _frame.size:
        return 0
    magic, count, salt, number, own, size = cast(
        tuple[int, int, int, int, int, int], _frame.unpack_from(raw)
    )
    if magic != FRAME_MAGIC or salt != use.salt or number != use.number or own != offset:
        return 0
    if count == 0 or count > _PARTS_MAX or size < FRAME_BYTES + PART_BYTES * count:
        return 0
    return size


def decode_frame(raw: Buffer, use: Use, offset: int) -> Frame | Doubtful | None:
    """Read the frame that begins here, if one does; its parts refer to their data, not copied."""
    size = frame_bytes(raw, use, offset)
    count: int = _frame.unpack_from(raw)[1] if size else 0
    base = FRAME_BYTES + PART_BYTES * count
    if not size or len(raw) < base:
        return None
    view = memoryview(raw)
    head_crc, data_crc = cast(tuple[int, int], _crcs.unpack_from(view, _frame.size))
    if _crc32(view[FRAME_BYTES:base], _crc32(view[: _frame.size])) != head_crc:
        return None
    parts: list[FramePart] = []
    at = base
    for index in range(count):
        kind, number, first, end, value, instant, length = _part.unpack_from(
            view, FRAME_BYTES + PART_BYTES * index
        )
        part = FramePart(kind, number, first, end, value, instant, view[at : at + length])
        part.size = length
        part.offset = offset + at
        parts.append(part)
        at += length
    frame = Frame(offset, aligned(offset + size), parts)
    is_whole = at == size and len(view) >= size and _crc32(view[base:size]) == data_crc
    return frame if is_whole else Doubtful(frame)


def frame_mark(use: Use) -> bytes:
    """Bytes that stand in each frame of a use, from its 9th on, and nowhere else."""
    return struct.pack("<QQ", use.salt, use.number)


FRAME_MARK_AT: Final = 8


def aligned(offset: int) -> int:
    """Return the next place where a frame may begin."""
    return (offset + ALIGNED - 1) // ALIGNED * ALIGNED


def paged(offset: int) -> int:
    """Return the end of the page that ends there or later."""
    return (offset + PAGE - 1) // PAGE * PAGE
