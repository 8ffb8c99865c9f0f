"""What is asked of a partition's owner, whichever engine keeps the partition.

Records are encoded on the caller's thread, unless they are large: those are written down by the
thread that commits them. Nobody changes them before their commit is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from peeklock.entity.records import Record, width
from peeklock.store.codec.large import encode_large
from peeklock.store.codec.records import bodies_size, encode_chunk
from peeklock.store.store import Fenced, Unavailable

# Records whose messages have more bytes, or are more, are encoded late: a transaction, a large
# message, a long batch.
ENCODED_AT_ONCE: Final = 2 << 20
POSITIONS_AT_ONCE: Final = 8_192


@final
class NewChunk:
    """Records that are to rest as one chunk: positions `first` up to `end`, which is excluded."""

    __slots__ = ("data", "end", "epoch", "first", "records", "replay_from", "size")

    def __init__(
        self, epoch: int, first: int, records: Sequence[Record], replay_from: int | None
    ) -> None:
        end = first
        for record in records:
            end += width(record)
        size = bodies_size(records)
        data: bytes | bytearray = b""
        if size <= ENCODED_AT_ONCE and end - first <= POSITIONS_AT_ONCE:
            data = encode_chunk(first, records)
            size = len(data)
            records = ()
        self.epoch: int = epoch
        self.first: int = first
        self.end: int = end
        self.data: bytes | bytearray = data
        # Those that are to be encoded late; until then `size` is what their messages have.
        self.records: Sequence[Record] = records
        self.size: int = size
        self.replay_from: int | None = replay_from

    def check(self, name: str, epoch: int, end: int) -> None:
        """Refuse it unless its epoch is in force and it follows what rests."""
        if self.epoch != epoch or self.epoch < 1:
            raise Fenced(f"{name} is owned with epoch {epoch}, not {self.epoch}")
        if end and self.first != end:
            # An append before this one failed, or this one rests already.
            raise Unavailable(f"{name} ends at position {end}: {self.first} does not follow")

    def encode(self, name: str) -> bytes | bytearray:
        """Return the chunk's bytes."""
        if self.records:
            try:
                self.data = encode_large(self.first, self.records)
            except ValueError as error:
                raise Unavailable(f"{name} cannot be written: {error}") from error
            self.records = ()
            self.size = len(self.data)
        return self.data


def epoch_for(name: str, asked: int | None, in_force: int, spent: int) -> int:
    """Return the epoch of a new owner; one that is not above all others is Fenced.

    `spent` is the highest one that a dropped partition had.
    """
    # One that was never opened has no epoch yet; somebody before it may have had one.
    least = in_force or spent + 1
    epoch = max(in_force + 1, least) if asked is None else asked
    if epoch < least:
        raise Fenced(f"{name} is owned with epoch {in_force}, not {epoch}")
    return epoch
