"""Backups: a directory with all that rested at one instant, and its way back.

    NAME/backup.json     what it is, when it was made, and each file with its size and checksum
    NAME/catalog, store, store-2, ...   as in a data directory
    NAME/tls             the development authority, where there is one

The directory gets its name last: whatever has that name is whole. Until then it is a hidden one
beside it, which is removed if anything fails.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final

import lmdb

from peeklock.store.backups.snapshot import Advance, Snapshot, copy_file, sync_file
from peeklock.store.checksum import crc32
from peeklock.store.environment import sync_directory
from peeklock.store.store import Corrupt, StoreError

MANIFEST: Final = "backup.json"
FORMAT: Final = 1
CATALOG: Final = "catalog"
TLS: Final = "tls"
_PARTIAL: Final = ".partial"
_PIECE: Final = 1 << 20


class Stopped(StoreError):
    """Somebody wants the backup to end before it is whole."""


@final
@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself."""

    version: str
    at: str
    stores: list[str]
    # Size and checksum of each file, by its path below the directory.
    files: dict[str, tuple[int, int]]


def write_backup(
    directory: Path,
    snapshots: Mapping[str, Snapshot],
    at_ms: int,
    version: str,
    tls: Path,
    advance: Advance,
) -> Manifest:
    """Copy snapshots, by their names, into a new directory; they are released whatever happens."""
    left = dict(snapshots)
    try:
        if directory.exists():
            raise StoreError(f"there is a backup '{directory}' already; choose another name")
        with _beside(directory) as partial:
            while left:
                name, snapshot = left.popitem()
                try:
                    snapshot.copy(partial / name, advance)
                finally:
                    snapshot.release()
            if tls.is_dir():
                shutil.copytree(tls, partial / TLS)
            at = datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
            stores = sorted(name for name in snapshots if name != CATALOG)
            manifest = Manifest(version, at, stores, _listed(partial, advance))
            _finish(partial, directory, manifest)
            return manifest
    except (OSError, lmdb.Error) as error:
        raise StoreError(f"the backup could not be written: {error}") from error
    finally:
        for snapshot in left.values():
            snapshot.release()


@contextmanager
def _beside(directory: Path) -> Iterator[Path]:
    """Make a directory that nobody else has, to be renamed to this one; it goes if that fails."""
    parent = directory.absolute().parent
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    prefix = f".{directory.absolute().name}."
    partial = Path(tempfile.mkdtemp(prefix=prefix, suffix=_PARTIAL, dir=parent))
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _listed(partial: Path, advance: Advance) -> dict[str, tuple[int, int]]:
    """Read each file again: what a backup is said to have can be read."""
    paths = sorted(path for path in partial.rglob("*") if path.is_file())
    return {str(p.relative_to(partial)): (p.stat().st_size, checksum_of(p, advance)) for p in paths}


def checksum_of(path: Path, advance: Advance) -> int:
    """Return the checksum of a file; nothing more is copied, but whoever watches may stop it."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            found = crc32(piece, found)
            advance(0)
    return found


def _finish(partial: Path, directory: Path, manifest: Manifest) -> None:
    document = {
        "format": FORMAT,
        "version": manifest.version,
        "at": manifest.at,
        "stores": manifest.stores,
        "files": manifest.files,
    }
    path = partial / MANIFEST
    path.write_text(json.dumps(document, indent=1) + "\n")
    path.chmod(0o600)
    for found in (path, *(partial / TLS).glob("*")):
        sync_file(found)
    for folder in sorted(found for found in partial.rglob("*") if found.is_dir()):
        sync_directory(folder)
    sync_directory(partial)
    partial.rename(directory)
    sync_directory(directory.parent)


def read_manifest(directory: Path) -> Manifest:
    """Read what a backup says of itself; Corrupt where it is none, or not whole."""
    path = directory / MANIFEST
    try:
        document: Any = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise Corrupt(f"'{directory}' is a backup of the format {document['format']}")
        files = {
            str(name): (int(size), int(crc)) for name, (size, crc) in document["files"].items()
        }
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
            raise Corrupt(f"'{directory}' names files that are elsewhere")
        names = [str(name) for name in document["stores"]]
        return Manifest(str(document["version"]), str(document["at"]), names, files)
    except FileNotFoundError:
        text = f"'{directory}' is no backup, or one that was not finished: it has no {MANIFEST}"
        raise Corrupt(text) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"'{path}' cannot be read: {error!r}") from error


def restore_backup(directory: Path, data: Path, advance: Advance) -> Manifest:
    """Make a data directory of a backup, after each file has been found whole.

    The directory must not be there, or have nothing in it: nothing is ever mixed or replaced.
    """
    manifest = read_manifest(directory)
    try:
        if data.exists() and any(data.iterdir()):
            raise StoreError(f"'{data}' has something in it; choose a directory that is not there")
        for name, (size, crc) in manifest.files.items():
            path = directory / name
            is_there = path.is_file() and path.stat().st_size == size
            if not is_there or checksum_of(path, advance) != crc:
                raise Corrupt(f"'{path}' is not what it was when the backup was made")
        with _beside(data) as partial:
            for name, (size, _) in manifest.files.items():
                target = partial / name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                copy_file(directory / name, target, size, size, advance)
            for folder in [partial, *(found for found in partial.rglob("*") if found.is_dir())]:
                sync_directory(folder)
            if data.exists():
                data.rmdir()
            partial.rename(data)
        sync_directory(data.absolute().parent)
    except OSError as error:
        raise StoreError(f"it could not be restored: {error}") from error
    return manifest


def total_bytes(manifest: Manifest) -> int:
    """Count what a backup has."""
    return sum(size for size, _ in manifest.files.values())


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a backup: one folder, and a plain one."""
    plain = all(sign.isascii() and (sign.isalnum() or sign in "._-") for sign in text)
    # What begins with a dot, or ends like this, is on its way to be one.
    is_hidden = text.startswith(".") or text.endswith(_PARTIAL)
    return 0 < len(text) <= 100 and plain and not is_hidden
