"""A copy of what the index knows of partitions, beside the segments and apart from LMDB.

Where chunks lie can be told from the segments alone, by reading all of them. Names, epochs and
starts of replay stand in them as well, but in commits whose segments are used again some day. So
before any segment is let go, all that stands in the index's `meta` is written down once more. The
index can then be lost as a whole: the last copy and the segments say the same.

    file     magic 8 bytes, bytes of the body u64, crc of the body u32, body
    body     for each entry: bytes of the key u32, of the value u32, key, value

Two files are written in turns, in place: one of them is always whole.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import Final, final

from peeklock.store.checksum import crc32
from peeklock.store.environment import Environment, sync_directory
from peeklock.store.segments.disk import sync_data
from peeklock.store.segments.index import APPLIED, decode_applied
from peeklock.store.store import Corrupt

COPY: Final = "index-copy-"
_MAGIC: Final = b"PeekIdx1"
_head: Final = struct.Struct("<8sQI")
_entry: Final = struct.Struct("<II")


@final
class IndexCopy:
    """The two files of one store."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._paths = [environment.directory / f"{COPY}{number}" for number in (1, 2)]
        newest = [_applied(read_copy(path)) for path in self._paths]
        # The older one is written next.
        self._next = 0 if newest[0] <= newest[1] else 1

    def write(self) -> None:
        """Write down what rests in the index; OSError where that is not possible."""
        path = self._paths[self._next]
        body = b"".join(self._pieces())
        raw = _head.pack(_MAGIC, len(body), crc32(body)) + body
        is_new = not path.exists()
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(raw)
            while view:
                view = view[os.pwrite(file, view, len(raw) - len(view)) :]
            sync_data(file)
        finally:
            os.close(file)
        if is_new:
            sync_directory(path.parent)
        self._next = 1 - self._next

    def _pieces(self) -> list[bytes]:
        environment = self._environment
        pieces: list[bytes] = []
        with environment.lmdb.begin(db=environment.meta) as transaction:
            for key, value in transaction.cursor():
                pieces += (_entry.pack(len(key), len(value)), key, value)
        return pieces


def read_copy(path: Path) -> dict[bytes, bytes]:
    """Read one file; nothing where it is not there or not whole."""
    entries: dict[bytes, bytes] = {}
    with contextlib.suppress(FileNotFoundError):
        raw = path.read_bytes()
        if len(raw) < _head.size:
            return entries
        magic, size, crc = _head.unpack_from(raw)
        body = raw[_head.size : _head.size + size]
        if magic != _MAGIC or len(body) != size or crc32(body) != crc:
            return entries
        at = 0
        while at < size:
            key_bytes, value_bytes = _entry.unpack_from(body, at)
            at += _entry.size
            key = body[at : at + key_bytes]
            at += key_bytes
            entries[key] = body[at : at + value_bytes]
            at += value_bytes
    return entries


def newest_copy(directory: Path) -> dict[bytes, bytes]:
    """Return the entries of `meta` as they were last written down; none where nobody did."""
    copies = [read_copy(path) for path in directory.glob(f"{COPY}*")]
    return max(copies, key=_applied, default={})


def _applied(entries: dict[bytes, bytes]) -> tuple[int, int]:
    """Up to where in the log a copy is true."""
    try:
        return decode_applied(memoryview(entries[APPLIED]))
    except (KeyError, Corrupt):
        return -1, 0
