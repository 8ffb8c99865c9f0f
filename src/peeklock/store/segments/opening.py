"""Opening a segment store: the index, and behind it what the log tells that the index missed.

Whatever was found there is synced before anybody relies on it, and it is read from the disk: after
a failed sync the system may still show what it never wrote.

A frame that is cut off at the very end of the log was never answered and is left out. One that is
damaged with others behind it is damage: nobody knows whose commits were in it, so that the store
stays closed until it is repaired.
"""

from __future__ import annotations

from typing import Final

from peeklock.store.environment import translated
from peeklock.store.segments.files import Segment, Segments
from peeklock.store.segments.frames import (
    APPENDED,
    DROPPED,
    FRAME_BYTES,
    OPENED,
    Doubtful,
    Frame,
    Use,
)
from peeklock.store.segments.index import Index, Living
from peeklock.store.segments.log import Log, LogCommit
from peeklock.store.segments.scan import Scan, durable
from peeklock.store.segments.tail import ChunkPlace, Tail
from peeklock.store.store import Corrupt

_HINT: Final = "restore it, or ask `peeklock store check` what is lost"


def open_log(index: Index, segments: Segments, log: Log) -> None:
    """Bring everything to where the last commit left it."""
    with translated("read the segments"):
        found = segments.find()
        uses = uses_behind(index.use, index.living, found)
        segments.adopt(found, {use.number for _, use in uses} | set(index.living))
    for partition in index.partitions.values():
        tail = log.tails[partition.number] = Tail(partition.number, partition.name)
        tail.epoch = partition.epoch
        tail.end = partition.end
        tail.replay_from = partition.replay_from
    log.spent = index.table.spent
    for number in index.living:
        if number not in segments.used and number == index.use:
            raise Corrupt(f"segment {number}, which was written to last, is missing: {_HINT}")
    log.go_on(index.use, index.offset, None)
    for at, (segment, use) in enumerate(uses):
        following = uses[at + 1][1] if at + 1 < len(uses) else None
        offset = index.offset if use.number == index.use else use.begin
        with translated(f"read {segment.path}"), durable(segment.path, offset) as read:
            end = _scan(log, Scan(read, use, offset), use, following)
        log.go_on(use.number, end, segment if following is None else None)


def uses_behind(
    last: int, living: dict[int, Living], found: list[Segment]
) -> list[tuple[Segment, Use]]:
    """Return the uses that the index does not know to their ends, in their order.

    What the index knows of a file does not depend on the file's own header.
    """
    files = {each.file: (number, each.salt) for number, each in living.items()}
    candidates: dict[int, list[Segment]] = {}
    for segment in found:
        known = files.get(segment.number)
        if known is not None:
            own = segment.use or Use(0, 0, 0)
            segment.use = Use(known[0], known[1], own.before_end, own.begin)
        elif segment.use is not None and segment.use.number in living:
            segment.use = None  # a header that never had a commit behind it
        if segment.use is not None and segment.use.number >= last:
            candidates.setdefault(segment.use.number, []).append(segment)
    uses: list[tuple[Segment, Use]] = []
    number = last if last in living else last + 1
    while True:
        begun: list[tuple[Segment, Use]] = []
        doubtful: list[tuple[Segment, Use]] = []
        for segment in candidates.get(number, ()):
            use = segment.use
            assert use is not None
            if number in living or _has_commit(segment, use):
                begun.append((segment, use))
            else:
                doubtful.append((segment, use))
                segment.use = None
        if not begun and len(doubtful) == 1 and max(candidates) > number:
            # The log went on behind it: its one commit was answered, and is damaged.
            begun = doubtful
            begun[0][0].use = begun[0][1]
        if not begun:
            break
        if len(begun) > 1:
            names = " and ".join([segment.path.name for segment, _ in begun])
            raise Corrupt(f"segment {number} is there more than once, in {names}: {_HINT}")
        uses += begun
        number += 1
    later = [each for each in candidates if each > number]
    if later:
        raise Corrupt(f"segment {number} is missing, and {min(later)} is there: {_HINT}")
    return uses


def _has_commit(segment: Segment, use: Use) -> bool:
    """Return whether a use ever began: a header without a commit behind it means nothing.

    One that is not whole counts where others lie behind it: then it is damage.
    """
    with durable(segment.path, use.begin) as read:
        scan = Scan(read, use, use.begin)
        return isinstance(scan.next(), Frame) or scan.later(use.begin + FRAME_BYTES) is not None


def _scan(log: Log, scan: Scan, use: Use, following: Use | None) -> int:
    """Go through the frames of one use; return where they end."""
    end = following.before_end if following is not None else None
    while end is None or scan.offset < end:
        offset = scan.offset
        found = scan.next()
        is_end = end is None and not isinstance(found, Frame)
        # To the end of the segment: a page that was lost looks like one never written.
        if is_end and scan.later(offset + FRAME_BYTES) is None:
            return offset  # it was never answered
        if found is None:
            raise Corrupt(
                f"segment {use.number} is damaged at {offset}, and commits lie behind that: {_HINT}"
            )
        # Data that are damaged are noticed chunk by chunk, by those who need them.
        frame = found.frame if isinstance(found, Doubtful) else found
        _take_in(log, use.number, frame)
    return scan.offset


def _take_in(log: Log, use: int, frame: Frame) -> None:
    for part in frame.parts:
        tail = log.tails.get(part.number)
        if part.kind == OPENED:
            if tail is None:
                name = bytes(part.data).decode(errors="replace")
                tail = log.tails[part.number] = Tail(part.number, name)
            tail.epoch = part.value
        elif tail is None:
            continue
        elif part.kind == APPENDED:
            if tail.end and part.first != tail.end:
                raise Corrupt(f"{tail.name} goes on at {part.first} where {tail.end} is due")
            if tail.end == 0:
                tail.replay_from = part.first
            if part.value:
                tail.replay_from = part.value - 1
            tail.end = part.end
            tail.recent.append(
                ChunkPlace(part.first, part.end, part.at, use, part.offset, part.size)
            )
        elif part.kind == DROPPED:
            tail.dropped = True
            tail.epoch = 0
            log.spent = max(log.spent, part.value)
        part.data = b""
    log.pending.append(LogCommit(use, frame.next, frame.parts))
