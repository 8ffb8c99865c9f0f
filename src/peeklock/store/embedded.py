"""Which engine keeps an embedded store: segments, unless its directory is one of LMDB.

A store of LMDB stays one: moving it takes room and time, and there is no way back, so that somebody
chooses the moment (`--store segments`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, Unpack

from peeklock.store.access import AccessOptions
from peeklock.store.lmdb.store import FORMAT as LMDB_FORMAT
from peeklock.store.lmdb.store import LmdbStore
from peeklock.store.retention import Retention
from peeklock.store.segments.moving import engine_format
from peeklock.store.segments.store import SegmentStore
from peeklock.store.store import Store

EMBEDDED: Final = "embedded"
SEGMENTS: Final = "segments"
LMDB: Final = "lmdb"

_LOG: Final = logging.getLogger("peeklock.store")


def open_embedded(
    directory: Path,
    kind: str = EMBEDDED,
    *,
    make: bool = True,
    retention: Retention | None = None,
    **options: Unpack[AccessOptions],
) -> Store:
    """Open the store in a directory, or make one there.

    `kind` is one of the three above: what is there, and segments where nothing is; segments, moved
    over from LMDB where that is there; LMDB alone.
    """
    is_lmdb = kind == LMDB or (kind == EMBEDDED and engine_format(directory) == LMDB_FORMAT)
    if not is_lmdb:
        return SegmentStore(directory, make=make, retention=retention, **options)
    if kind == EMBEDDED:
        _LOG.info("store-of-lmdb store=%s moved_by='--store segments'", directory.name)
    return LmdbStore(directory, make=make, retention=retention, **options)
