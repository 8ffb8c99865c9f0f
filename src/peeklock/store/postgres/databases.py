"""The databases of a broker by their names as stores; the first one has the catalog."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, final
from uuid import UUID

from peeklock.store.figures import StoreFigures
from peeklock.store.postgres.database_catalog import PostgresCatalog
from peeklock.store.postgres.preparing import prepare
from peeklock.store.postgres.store import PostgresStore
from peeklock.store.retention import Retention

_LOG: Final = logging.getLogger("peeklock.store")


@final
class PostgresStores:
    """Opens stores by their names."""

    def __init__(
        self,
        urls: Mapping[str, str],
        retention: Retention,
        figures: Mapping[str, StoreFigures],
        commit_delay_s: float = 0.0,
    ) -> None:
        """`urls` has the database of each name, in their order."""
        self._urls = urls
        self._retention = retention
        self._figures = figures
        self._commit_delay_s = commit_delay_s
        # Whatever engine there is: nothing that was acknowledged may be missing in the next one.
        self._witnesses: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in urls}
        self._catalog_id: UUID | None = None
        # What was said already: a store comes and goes.
        self._told: set[tuple[str, str]] = set()

    async def open_catalog(self) -> PostgresCatalog:
        """See that the first database is there, made if it must be, and open its catalog."""
        name, url = next(iter(self._urls.items()))
        self._catalog_id = prepare(url, name, None, may_make=True).catalog_id
        catalog = PostgresCatalog(url)
        try:
            await catalog.load()
        except BaseException:
            await catalog.close()
            raise
        return catalog

    def find_catalog(self) -> None:
        """Learn which catalog the stores belong to that another process keeps."""
        name, url = next(iter(self._urls.items()))
        self._catalog_id = prepare(url, name, None, may_make=False).catalog_id

    def __call__(self, name: str, may_make: bool) -> PostgresStore:
        """Open the store of a name."""
        url = self._urls[name]
        prepared = prepare(url, name, self._catalog_id, may_make=may_make)
        for event, text in prepared.remarks:
            if (name, event) not in self._told:
                self._told.add((name, event))
                _LOG.warning("%s store=%s text=%r", event, name, text)
        return PostgresStore(
            url,
            prepared.identity,
            retention=self._retention,
            figures=self._figures[name],
            witness=self._witnesses[name],
            commit_delay_s=self._commit_delay_s,
        )
