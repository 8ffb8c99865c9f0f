"""A store that LMDB has kept becomes a segment store, when it is opened as one.

The segments and the new index are written beside the old file, which stays as it was. One rename
puts the new index in its place; whatever lies there before that was never used and goes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lmdb

from peeklock.store.codec.records import chunk_header
from peeklock.store.damage.pages import DATA, why_too_short
from peeklock.store.entries import CHUNK_KEY
from peeklock.store.environment import Environment, sync_directory, translated
from peeklock.store.lmdb.store import FORMAT as LMDB_FORMAT
from peeklock.store.lmdb.writer import LmdbWriter
from peeklock.store.retention import Retention
from peeklock.store.segments.disk import Disk
from peeklock.store.segments.files import PREFIX, Segments
from peeklock.store.segments.frames import MOVED, FramePart
from peeklock.store.segments.index import FORMAT, Index
from peeklock.store.segments.log import Log
from peeklock.store.segments.tail import ChunkPlace, LogMove
from peeklock.store.store import Corrupt, StoreError

MOVING: Final = "moving"
# Stands in `meta` of a store of LMDB that a repair has made of segments.
SEGMENTED: Final = b"segmented"
_COMMIT_BYTES: Final = 4 << 20
_INDEX_HINT: Final = (
    "restore it, or let `peeklock store repair` write the store anew from its segments "
    "(`peeklock store check` says what is lost)"
)

_LOG: Final = logging.getLogger("peeklock.store")


def make_way(directory: Path, disk: Disk, segment_bytes: int) -> None:
    """Move an old store over, if there is one; refuse what nobody can make sense of."""
    data = directory / DATA
    if not data.exists():
        if any(directory.glob(f"{PREFIX}*")):
            raise Corrupt(
                f"{directory} has segments, but the index {data} is missing: {_INDEX_HINT}"
            )
        return
    form, _ = _look(directory)
    if form == FORMAT:
        shutil.rmtree(directory / MOVING, ignore_errors=True)
    elif form == LMDB_FORMAT:
        _LOG.warning("store-moving store=%s", directory.name)
        _move(directory, disk, segment_bytes)
        _LOG.warning("store-moved store=%s", directory.name)


def has_segments(directory: Path) -> bool:
    """Return whether the segments of a store are there, and not those of a move that never
    ended."""
    return any(directory.glob(f"{PREFIX}*")) and not (directory / MOVING).exists()


@contextlib.contextmanager
def index_told_of(directory: Path) -> Iterator[None]:
    """Say what to do about an index that cannot be read."""
    try:
        yield
    except Corrupt as error:
        if not has_segments(directory):
            raise
        raise Corrupt(f"the index of {directory} is damaged: {error}; {_INDEX_HINT}") from error


def engine_format(directory: Path) -> str:
    """Return the format that a directory is to be opened with; nothing where nothing is there, or
    where whoever opens it has better words for it. What was repaired becomes again what it was."""
    form, is_segmented = _look(directory)
    return FORMAT if is_segmented else form


def _look(directory: Path) -> tuple[str, bool]:
    """Return the format of what is there, and whether a repair found segments."""
    data = directory / DATA
    if not data.exists() or why_too_short(data) is not None:
        return "", False  # the engine would end the process
    try:
        with lmdb.open(
            str(directory), readonly=True, lock=False, max_dbs=2, create=False
        ) as environment:
            meta = environment.open_db(b"meta", create=False)
            with environment.begin(db=meta) as transaction:
                form = transaction.get(b"format") or b""
                return form.decode(errors="replace"), transaction.get(SEGMENTED) is not None
    except lmdb.Error:
        return "", False


def _move(directory: Path, disk: Disk, segment_bytes: int) -> None:
    fresh = directory / MOVING
    old = Environment(directory, LMDB_FORMAT)
    try:
        _clear(directory)
        try:
            _write_anew(old, fresh, Segments(directory, disk, segment_bytes))
        except BaseException as error:
            # What is of no use must not keep a full disk full.
            with contextlib.suppress(OSError):
                _clear(directory)
            if not isinstance(error, Corrupt):
                raise
            raise Corrupt(
                f"{directory} cannot be moved to segments, because it is damaged: {error}; "
                "`peeklock store check` says what is lost, `peeklock store repair` gives it up"
            ) from error
        os.replace(fresh / DATA, directory / DATA)
        sync_directory(directory)
        (directory / "lock.mdb").unlink(missing_ok=True)
        shutil.rmtree(fresh, ignore_errors=True)
    finally:
        old.close()


def _write_anew(old: Environment, fresh: Path, segments: Segments) -> None:
    writer = LmdbWriter(old, Retention())
    for problem in writer.table.damaged.values():
        raise Corrupt(problem)
    new = Environment(fresh, FORMAT)
    try:
        with translated(f"move {old.directory} over"):
            _copy(writer, Index(new, Retention()), segments)
    finally:
        new.close()


def _clear(directory: Path) -> None:
    """Remove what a move has written that did not come to its end."""
    shutil.rmtree(directory / MOVING, ignore_errors=True)
    for path in directory.glob(f"{PREFIX}*"):
        path.unlink()


def _copy(writer: LmdbWriter, index: Index, segments: Segments) -> None:
    """Write all chunks to segments, and what is known of partitions to the index."""
    old = writer.environment
    log = Log(segments, {}, lambda: None)
    gone = set(writer.table.dropped)
    parts: list[FramePart] = []
    size = 0
    with contextlib.closing(log), old.lmdb.begin(buffers=True) as transaction:
        for partition in writer.partitions.values():
            writer.refresh(transaction, partition)
        index.take_over(writer.table)
        with transaction.cursor(old.values) as cursor:
            for key, value in cursor:
                number, first = CHUNK_KEY.unpack(key)
                if number in gone:
                    continue
                header = chunk_header(value)
                if header.first != first:
                    raise Corrupt(f"a chunk of partition {number} lies at another place")
                place = ChunkPlace(first, header.end, header.at, 0, 0, len(value))
                parts.append(FramePart(MOVED, number, first, place.end, 0, place.at, bytes(value)))
                size += len(value)
                if size >= min(_COMMIT_BYTES, segments.segment_bytes // 4):
                    _write(log, index, segments, parts)
                    parts, size = [], 0
        if parts:
            _write(log, index, segments, parts)


def _write(log: Log, index: Index, segments: Segments, parts: list[FramePart]) -> None:
    result = log.commit([LogMove(parts)])[0]
    if isinstance(result, StoreError):
        raise result
    index.learn(log.pending, segments.used)
    log.pending.clear()
