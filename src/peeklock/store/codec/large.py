"""Chunks that are too large to be written on the event loop.

The thread that commits writes them, and it lets the loop's thread run in between: copying many
bytes in one call would hold the interpreter as long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from peeklock.entity.records import Record
from peeklock.store.codec.records import chunk_parts

# Bytes that are copied before others have the interpreter.
_PIECE: Final = 1 << 20


def encode_large(first_position: int, records: Sequence[Record]) -> bytearray:
    """Write the records of one commit, as `encode_chunk` does."""
    chunk = bytearray()
    copied = 0
    for part in chunk_parts(first_position, records):
        if len(part) <= _PIECE:
            chunk += part
        else:
            view = memoryview(part)
            for begin in range(0, len(part), _PIECE):
                chunk += view[begin : begin + _PIECE]
                time.sleep(0)
        copied += len(part)
        if copied >= _PIECE:
            copied = 0
            time.sleep(0)
    return chunk
