"""A store for one partition in a few lists, through the real codec: what the records become."""

from collections.abc import Iterator

from peeklock.entity.decision import NO_REPLAY, Decision
from peeklock.entity.message import Message
from peeklock.entity.records import Record, width
from peeklock.store.codec.records import chunk_header, decode_chunk, decode_message, encode_chunk
from peeklock.store.replay import records_from
from peeklock.store.store import BLOCK


class Journal:
    """Chunks in order. Trimmed ones are out of reach for bodies, but a full replay has them."""

    def __init__(self, first_position: int = 0) -> None:
        self.chunks: list[bytes] = []
        self.trimmed: list[bytes] = []
        self.replay_from = first_position
        self.next_position = first_position

    def add(self, decision: Decision) -> int:
        """Store a decision's records; positions must join without a gap. Answers the bytes."""
        assert decision.first_position == self.next_position, "positions leave no gap"
        if decision.records:
            self.chunks.append(encode_chunk(decision.first_position, decision.records))
            self.next_position += sum(width(record) for record in decision.records)
        if decision.replay_from != NO_REPLAY:
            self.replay_from = decision.replay_from
        return len(self.chunks[-1]) if decision.records else 0

    def body(self, position: int) -> Message:
        """The message at a position, if it was not trimmed away."""
        for chunk in self.chunks:
            header = chunk_header(chunk)
            if header.first <= position < header.end:
                return decode_message(chunk, position)
        raise AssertionError(f"the body at {position} is not there any more")

    def trim(self, keep_blocks: list[int]) -> None:
        """Drop what neither an opening nor a live body needs."""
        kept: list[bytes] = []
        for chunk in self.chunks:
            header = chunk_header(chunk)
            blocks = range(header.first // BLOCK, (header.end - 1) // BLOCK + 1)
            needed = header.end > self.replay_from or not set(blocks).isdisjoint(keep_blocks)
            (kept if needed else self.trimmed).append(chunk)
        self.chunks = kept

    def replay(self, first_position: int) -> Iterator[tuple[int, list[Record]]]:
        """Everything from a position on, without bodies, as an opening reads it."""
        chunks = sorted([*self.trimmed, *self.chunks], key=lambda chunk: chunk_header(chunk).first)
        for chunk in chunks:
            if chunk_header(chunk).end > first_position:
                yield records_from(first_position, *decode_chunk(chunk, bodies=False))
