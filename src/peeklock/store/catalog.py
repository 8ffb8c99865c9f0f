"""The catalog on disk: a small LMDB environment of its own, apart from every store."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from peeklock.store.backups.snapshot import EnvironmentSnapshot
from peeklock.store.checksum import crc32
from peeklock.store.environment import Environment, translated
from peeklock.store.store import Catalog, Corrupt, Unavailable

FORMAT: Final = "peeklock catalog 1"
_MAP_SIZE: Final = 1 << 30


@final
class EmbeddedCatalog(Catalog):
    """Keeps descriptions in one directory; names are compared without case."""

    def __init__(self, directory: Path) -> None:
        self._environment = Environment(directory, FORMAT, _MAP_SIZE)
        self._closed = False

    async def load(self) -> list[tuple[str, str, str, str]]:
        """Read all of it, in the order of the names."""
        self._check_open()
        environment = self._environment
        texts: list[tuple[str, str, str, str]] = []
        with (
            translated(f"read the catalog in {environment.directory}"),
            environment.lmdb.begin(db=environment.values) as transaction,
        ):
            for key, value in transaction.cursor():
                texts.append(decode_description(key, value))
        return sorted(texts, key=lambda text: (text[0].lower(), text[1], text[2].lower()))

    async def replace(
        self,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        """Durable when it returns, all or none."""
        values: dict[bytes, bytes | None] = {}
        for namespace, kind, path in removed:
            values[_key(namespace, kind, path)] = None
        for namespace, kind, path, text in entries:
            values[_key(namespace, kind, path)] = _encode(namespace, kind, path, text)
        await self._write(values)

    def snapshot(self) -> EnvironmentSnapshot:
        """Hold what rests now."""
        self._check_open()
        return EnvironmentSnapshot(self._environment)

    async def close(self) -> None:
        """Let the directory go."""
        if not self._closed:
            self._closed = True
            await self._environment.all_let_go()
            self._environment.close()

    async def _write(self, values: dict[bytes, bytes | None]) -> None:
        self._check_open()
        # Descriptions change seldom, so each change is a commit of its own, off the event loop.
        await asyncio.to_thread(self._commit, values)

    def _commit(self, values: dict[bytes, bytes | None]) -> None:
        environment = self._environment
        with (
            translated(f"write the catalog in {environment.directory}"),
            environment.lmdb.begin(db=environment.values, write=True) as transaction,
        ):
            for key, value in values.items():
                if value is None:
                    transaction.delete(key)
                else:
                    transaction.put(key, value)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"the catalog in {self._environment.directory} is closed")


def _key(namespace: str, kind: str, path: str) -> bytes:
    # Names may be longer than LMDB's keys.
    names = json.dumps([namespace.lower(), kind, path.lower()])
    return hashlib.sha256(names.encode()).digest()


def _encode(namespace: str, kind: str, path: str, text: str) -> bytes:
    raw = json.dumps([namespace, kind, path, text], ensure_ascii=False).encode()
    return crc32(raw).to_bytes(4, "big") + raw


def decode_description(key: bytes, value: bytes) -> tuple[str, str, str, str]:
    """Read one entry: namespace, kind, path, JSON."""
    raw = value[4:]
    if crc32(raw) != int.from_bytes(value[:4], "big"):
        raise Corrupt(
            "a description in the catalog does not fit its checksum: see `peeklock store check`"
        )
    namespace, kind, path, text = json.loads(raw)
    if _key(namespace, kind, path) != key:
        raise Corrupt(f"the description of {path} lies at another place")
    return namespace, kind, path, text
