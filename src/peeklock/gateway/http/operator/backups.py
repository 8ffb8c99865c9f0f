"""Backups, asked for from outside: who manages the first namespace may have one made.

    POST /$backups/NAME     begins one; 202, or 409 while another one is under way
    GET  /$backups          how the last one is: running, done or failed

They are written by the broker, below a directory that its settings name: nobody chooses a path on
its machine from elsewhere.
"""

import asyncio
import logging
from typing import Any, Final, final

from peeklock.auth.rights import MANAGE
from peeklock.clock import Clock
from peeklock.gateway import logbook
from peeklock.gateway.http.answer import Answer, bad_request, not_allowed, not_found, refused
from peeklock.gateway.http.request import HttpRequest
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.settings import POSTGRES, Settings
from peeklock.store.backups.backup import CATALOG, Stopped, is_name, write_backup
from peeklock.store.backups.snapshot import KeepsSnapshots, Snapshot
from peeklock.store.store import Catalog, StoreError
from peeklock.store.stores import Stores
from peeklock.version import VERSION

NODE: Final = "$backups"

_NONE_IN_MEMORY: Final = "what is kept in memory has no backups"
_NONE_IN_DATABASES: Final = "what is kept in PostgreSQL has the backups of its database"

_LOG: Final = logging.getLogger("peeklock.backups")


@final
class Backups:
    """Makes backups, one at a time, on a thread."""

    def __init__(
        self,
        stores: Stores,
        catalog: Catalog,
        clock: Clock,
        settings: Settings,
        *,
        is_alone: bool = True,
    ) -> None:
        """Who is not alone is one of several nodes, which have no step of a loop in common."""
        self._stores = stores
        self._catalog = catalog
        self._clock = clock
        self._directory = settings.backups or settings.data / "backups"
        self._tls = settings.data / "tls"
        self._is_in_database = settings.store == POSTGRES
        self._is_alone = is_alone
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        # Written by the thread, a number at a time.
        self._bytes = 0
        self._told: dict[str, Any] = {"state": "none"}

    @property
    def is_running(self) -> bool:
        """Whether one is under way."""
        return self._task is not None and not self._task.done()

    def told(self) -> dict[str, Any]:
        """Tell how the last one is."""
        return self._told | ({"bytes": self._bytes} if self.is_running else {})

    def begin(self, name: str) -> None:
        """Hold everything as it is now, and begin to copy it; a StoreError says why not."""
        at = self._clock.now()
        # In one step of the loop and without waiting: this is the instant of the backup.
        snapshots = self._snapshots()
        self._bytes = 0
        self._told = {"state": "running", "name": name}
        self._task = asyncio.get_running_loop().create_task(self._copy(name, snapshots, at))

    def _snapshots(self) -> dict[str, Snapshot]:
        if not self._is_alone:
            raise StoreError(
                "several nodes have no backup while they serve: stop them and copy the data "
                "directory, or serve it with one node meanwhile"
            )
        if not isinstance(self._catalog, KeepsSnapshots):
            raise StoreError(_NONE_IN_DATABASES if self._is_in_database else _NONE_IN_MEMORY)
        snapshots = self._stores.snapshots()
        try:
            snapshots[CATALOG] = self._catalog.snapshot()
        except BaseException:
            for snapshot in snapshots.values():
                snapshot.release()
            raise
        return snapshots

    async def _copy(self, name: str, snapshots: dict[str, Snapshot], at: int) -> None:
        path = self._directory / name
        _LOG.info("%s", logbook.line("backup-begun", name=name))
        try:
            manifest = await asyncio.to_thread(
                write_backup, path, snapshots, at, VERSION, self._tls, self._advance
            )
        except Exception as error:  # noqa: BLE001 - told to whoever asks, and in the log
            self._told = {"state": "failed", "name": name, "error": str(error) or repr(error)}
            _LOG.error("%s", logbook.line("backup-failed", name=name, error=str(error)))
            return
        self._told = {
            "state": "done",
            "name": name,
            "path": str(path.absolute()),
            "at": manifest.at,
            "stores": len(manifest.stores),
            "bytes": sum(size for size, _ in manifest.files.values()),
        }
        _LOG.info("%s", logbook.line("backup-done", name=name, bytes=self._told["bytes"]))

    def _advance(self, count: int) -> None:
        self._bytes += count
        if self._is_stopping:
            raise Stopped("the broker stops")

    async def stop(self) -> None:
        """Give up what is under way, before the stores are closed."""
        self._is_stopping = True
        if self._task is not None:
            await self._task


@final
class BackupsNode:
    """Answers everything below `/$backups`."""

    def __init__(self, backups: Backups, guard: TokenGuard) -> None:
        self._backups: Final = backups
        self._guard = guard

    async def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        refusal = self._guard.check(request, "", MANAGE)
        if refusal is not None:
            return refusal
        place = request.segments()[1:]
        if not place:
            if request.method not in ("GET", "HEAD"):
                return not_allowed(request.method, ["GET", "HEAD"])
            return Answer(200, self._backups.told())
        if len(place) != 1:
            return not_found(request.path)
        if request.method != "POST":
            return not_allowed(request.method, ["POST"])
        return self._begin(place[0])

    def _begin(self, name: str) -> Answer:
        if not is_name(name):
            return bad_request(
                "The name of a backup has letters, digits, '.', '_' and '-'; it does not begin "
                "with a dot or end in .partial."
            )
        if self._backups.is_running:
            return refused(409, "Another backup is under way; GET /$backups tells how far it is.")
        try:
            self._backups.begin(name)
        except (StoreError, OSError) as error:
            return refused(409, str(error))
        return Answer(202, self._backups.told())
