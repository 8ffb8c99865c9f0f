"""The catalog in the first database: descriptions as rows, each change one statement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, final

from peeklock.store.postgres.connection import PATIENCE_S, DatabaseSession
from peeklock.store.store import Catalog, StoreError, Unavailable

# How often the session is used at least: with one that was lost the place of the only broker is.
KEEP_S: Final = 10.0

_LOG: Final = logging.getLogger("peeklock.store")

_LOAD: Final = """
select namespace, kind, path, description from peeklock.catalog
"""
_REPLACE: Final = """
with removed as (
    delete from peeklock.catalog c using unnest($1::text[], $2::text[], $3::text[])
        as r (namespace_key, kind, path_key)
    where (c.namespace_key, c.kind, c.path_key) = (r.namespace_key, r.kind, r.path_key)
)
insert into peeklock.catalog (namespace_key, kind, path_key, namespace, path, description)
select * from unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
on conflict (namespace_key, kind, path_key) do update
set namespace = excluded.namespace, path = excluded.path, description = excluded.description
"""


@final
class PostgresCatalog(Catalog):
    """Keeps descriptions in a database; names are compared without case.

    As long as it has a session, no other broker can begin with the same catalog.
    """

    def __init__(self, url: str, *, patience_s: float = PATIENCE_S, keep_s: float = KEEP_S) -> None:
        """It waits so long for a broker that was killed a moment ago."""
        self._session = DatabaseSession(url, alone_within_s=patience_s)
        self._keep_s = keep_s
        self._keeping: asyncio.Task[None] | None = None
        self._closed = False

    async def load(self) -> list[tuple[str, str, str, str]]:
        """Read all of it, in the order of the names."""
        self._check_open()
        texts = [tuple(row) for row in await self._session.fetch(_LOAD)]
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())
        return sorted(texts, key=lambda text: (text[0].lower(), text[1], text[2].lower()))

    async def replace(
        self,
        removed: Sequence[tuple[str, str, str]],
        entries: Sequence[tuple[str, str, str, str]],
    ) -> None:
        """Durable when it returns, all or none."""
        self._check_open()
        kept = {(n.lower(), k, p.lower()): (n, p, text) for n, k, p, text in entries}
        # What is saved again is not removed: one statement changes a row once.
        gone = {(n.lower(), k, p.lower()) for n, k, p in removed}.difference(kept)
        keys, values = list(kept), list(kept.values())
        await self._session.fetch(
            _REPLACE,
            *([key[part] for key in gone] for part in range(3)),
            *([key[part] for key in keys] for part in range(3)),
            *([value[part] for value in values] for part in range(3)),
        )

    async def close(self) -> None:
        """End the session."""
        if not self._closed:
            self._closed = True
            if self._keeping is not None:
                self._keeping.cancel()
                await asyncio.wait([self._keeping])
            await self._session.close()

    async def _keep(self) -> None:
        """Have a session again soon after a database was away, though nobody changes anything."""
        is_failing = False
        while True:
            await asyncio.sleep(self._keep_s)
            try:
                await self._session.fetch("select 1")
                is_failing = False
            except StoreError as error:
                if not is_failing:  # said once, however often it is tried
                    _LOG.error("catalog-away error=%r", str(error))
                is_failing = True
            except Exception:  # noqa: BLE001 - whatever it was, the place is wanted again
                _LOG.exception("catalog-failed")

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the catalog is closed")
