"""What can still be read of a damaged chunk, record by record, and the chunk made whole again."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, final

from peeklock.entity.records import Lost, Record
from peeklock.store.checksum import crc32
from peeklock.store.codec.facts import encode_fact
from peeklock.store.codec.records import (
    HEADER,
    HEADER_BYTES,
    VERSION,
    chunk_header,
    decode_chunk,
    encode_chunk,
    head_size,
    table_width,
)
from peeklock.store.store import Corrupt

WHOLE: Final = 0
BODY: Final = 1  # its body is damaged, which only its own reader needs
LOST: Final = 2

_WORD: Final = 0xFFFFFFFF
_word: Final = struct.Struct("<I")


@final
class Salvage:
    """A chunk, and which of its records fit their own checksums whatever its head says."""

    def __init__(self, chunk: memoryview, first: int) -> None:
        """Corrupt where not even its head can be made sense of."""
        try:
            version, count, begins, self.at = HEADER.unpack_from(chunk)
            width = table_width(version)
            table = struct.unpack_from(f"<{width * count}I", chunk, HEADER_BYTES)
        except struct.error as error:
            raise Corrupt(f"a chunk of {len(chunk)} bytes is cut off") from error
        if begins != first or count == 0:
            raise Corrupt(f"a chunk at position {first} says that it is another's")
        self.first = first
        self.end: int = first + count
        self.states: list[int] = []
        self._records: list[memoryview] = []
        self._crcs: list[tuple[int, int]] = []
        base = HEADER_BYTES + 4 * width * count
        start = 0
        for index in range(count):
            words = table[width * index : width * (index + 1)]
            record = chunk[base + start : base + words[0]]
            self._look_at(record, words, (first + index) & _WORD)
            start = words[0]
        self.is_whole: bool = _is_whole(chunk) and LOST not in self.states

    def _look_at(self, record: memoryview, words: Sequence[int], seed: int) -> None:
        size = head_size(record)
        head_crc = crc32(record[:size], seed)
        crc = crc32(record[size:], head_crc)
        state = WHOLE
        if crc != words[-1]:
            is_body = len(words) > 2 and size < len(record) and head_crc == words[1]
            state = BODY if is_body else LOST
        self.states.append(state)
        self._records.append(record)
        self._crcs.append((head_crc, words[-1]))

    def positions(self, state: int) -> list[int]:
        """Return where records of a state stand."""
        return [self.first + at for at, each in enumerate(self.states) if each == state]

    def healed(self, next_sequence: int) -> bytes:
        """Return the chunk with what is lost given up, each position by itself."""
        while True:
            chunk = self._assembled(next_sequence)
            try:
                decode_chunk(chunk, bodies=False)
            except Corrupt:
                # One that cannot be read without the lost one before it is lost, too.
                self.states[self._senseless(chunk)] = LOST
            else:
                return chunk

    def _assembled(self, next_sequence: int) -> bytes:
        table: list[int] = []
        parts: list[bytes] = []
        end = 0
        for at, record in enumerate(self._records):
            head_crc, crc = self._crcs[at]
            raw = bytes(record)
            if self.states[at] == LOST:
                raw = encode_fact(Lost(self.at, next_sequence))
                head_crc = crc = crc32(raw, (self.first + at) & _WORD)
            end += len(raw)
            parts.append(raw)
            table += [end, head_crc, crc]
        header = HEADER.pack(VERSION, len(parts), self.first, self.at)
        words = struct.pack(f"<{len(table)}I", *table)
        return b"".join([header, _word.pack(crc32(words, crc32(header))), words, *parts])

    def _senseless(self, chunk: bytes) -> int:
        """Find the first record that cannot be read behind those before it."""
        for at in range(len(self.states)):
            if self.states[at] == LOST:
                continue
            rest = Salvage(memoryview(chunk), self.first)
            rest.states[at + 1 :] = [LOST] * (len(self.states) - at - 1)
            try:
                decode_chunk(rest._assembled(0), bodies=False)
            except Corrupt:
                return at
        raise AssertionError("a chunk that cannot be read has a record that cannot")


def lost_chunk(first: int, end: int, at: int, next_sequence: int) -> bytes:
    """Return a chunk in place of one of which nothing is left."""
    records: list[Record] = [Lost(at, next_sequence) for _ in range(first, end)]
    return encode_chunk(first, records)


def _is_whole(chunk: memoryview) -> bool:
    try:
        chunk_header(chunk)
    except Corrupt:
        return False
    return True
