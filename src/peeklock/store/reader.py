"""The reading side of an engine on disk: from chunk to chunk, as they are at one moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Generic, Protocol, TypeVar, final

from peeklock.entity.message import Message
from peeklock.entity.records import Record
from peeklock.store.codec.records import decode_chunk
from peeklock.store.environment import translated
from peeklock.store.replay import records_from
from peeklock.store.store import Corrupt, Damaged, JournalPage, Replay

# How much of a replay is read at once, without the event loop getting a turn.
_PAGE_BYTES: Final = 1 << 20
_PAGE_CHUNKS: Final = 256


class OwnedPartition(Protocol):
    """A partition as its engine knows it."""

    name: str
    epoch: int
    replay_from: int
    end: int


class ChunkWalk(Protocol):
    """Stands on a chunk of one partition, `end` excluded; before the first step on none (-1)."""

    first: int
    end: int
    size: int

    def begin(self) -> int | None:
        """Return where the journal begins; nothing where there is none."""
        ...

    def seek(self, position: int) -> None:
        """Go to the last chunk that begins at or before the position; Corrupt where none does."""
        ...

    def step(self) -> bool:
        """Go to the next chunk; return whether there is one."""
        ...

    def chunk(self) -> bytes | memoryview:
        """Return the chunk, whose head is whole; Corrupt where it is not."""
        ...

    def messages(self, positions: Sequence[int]) -> list[Message]:
        """Read messages of the chunk, whatever else of it is damaged."""
        ...


Owned = TypeVar("Owned", bound=OwnedPartition)


@final
class ChunkReader(Generic[Owned]):
    """Reads what was committed; whatever leaves it is a copy."""

    def __init__(self, walking: Callable[[Owned], AbstractContextManager[ChunkWalk]]) -> None:
        self._walking = walking

    def payloads(self, partition: Owned, positions: Sequence[int]) -> list[Message]:
        """Read the messages at these positions; neighbours cost less than those far apart."""
        messages: list[Message] = []
        damaged: list[int] = []
        problem: Corrupt | None = None
        with translated(f"read bodies of {partition.name}"), self._walking(partition) as walk:
            index = 0
            while index < len(positions):
                taken = index + 1
                try:
                    _stand_on(walk, positions[index])
                    while taken < len(positions) and walk.first <= positions[taken] < walk.end:
                        taken += 1
                    messages += walk.messages(positions[index:taken])
                except Corrupt as error:
                    problem = error
                    # Each by itself: what fits its own checksum is whole, whatever else of its
                    # chunk is damaged.
                    for position in positions[index:taken]:
                        try:
                            walk.seek(position)
                            messages += walk.messages([position])
                        except Corrupt:
                            damaged.append(position)
                index = taken
        if damaged:
            text = f"bodies of {partition.name} are damaged: {problem}"
            raise Damaged(text, damaged) from problem
        return messages

    def journal(self, partition: Owned, after: int, limit_bytes: int) -> JournalPage:
        """Copy chunks from the one that holds `after` on."""
        with translated(f"read the journal of {partition.name}"), self._walking(partition) as walk:
            first = walk.begin()
            if first is None:
                return JournalPage(0, 0, [])
            position = max(after, first)
            walk.seek(position)
            chunks: list[bytes] = []
            is_there = True
            while is_there:
                if walk.end > position:
                    _check_follows(partition.name, walk, position, begins=not chunks)
                    if chunks and walk.size > limit_bytes:
                        break
                    chunks.append(bytes(walk.chunk()))
                    limit_bytes -= walk.size
                    position = walk.end
                is_there = walk.step()
            return JournalPage(first, position if chunks else min(position, walk.end), chunks)

    def replay(self, partition: Owned, position: int) -> tuple[Replay | None, int]:
        """Read the records of some chunks from a position on; return the position after them."""
        size = 0
        count = 0
        replay_first = position
        records: list[Record] = []
        with translated(f"replay {partition.name}"), self._walking(partition) as walk:
            walk.seek(position)
            is_there = True
            while is_there and size < _PAGE_BYTES and count < _PAGE_CHUNKS:
                _check_follows(partition.name, walk, position, begins=not records)
                first, decoded = decode_chunk(walk.chunk(), bodies=False)
                if not records:
                    replay_first, decoded = records_from(position, first, decoded)
                records += decoded
                position = walk.end
                size += walk.size
                count += 1
                is_there = walk.step()
        return (Replay(replay_first, records, size) if records else None), position


def _stand_on(walk: ChunkWalk, position: int) -> None:
    if walk.first <= position < walk.end:
        return
    if position != walk.end or not walk.step() or walk.first != position:
        walk.seek(position)


def _check_follows(name: str, walk: ChunkWalk, position: int, begins: bool) -> None:
    """Refuse a gap: only the first chunk of a walk may begin before the position."""
    if walk.first > position or (walk.first < position and not begins):
        raise Corrupt(f"{name} goes on at {walk.first} where {position} is due")
