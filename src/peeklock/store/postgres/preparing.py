"""A database is made a store: its schema, whose it is, and what its owner should know of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar, final
from uuid import UUID, uuid4

import asyncpg

from peeklock.store.postgres.connection import DatabaseSession, Identity, shown
from peeklock.store.postgres.schema import STEPS, migration
from peeklock.store.store import Away, StoreError, Unavailable

# Identity columns, stored procedures and what else the schema uses are older than that; what is
# older is not maintained by anybody.
_SERVER_MIN: Final = 130_000

_STATE: Final = """
select current_setting('server_version_num')::integer as server,
    current_setting('synchronous_standby_names') as standbys,
    current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_pages,
    to_regclass('peeklock.version') is not null as is_made
"""

T = TypeVar("T")

_LOG: Final = logging.getLogger("peeklock.store")


@final
@dataclass(frozen=True, slots=True)
class Prepared:
    """A store that is there: which database, and the catalog that its partitions are named in."""

    identity: Identity
    catalog_id: UUID
    # Event and text of what its owner should know.
    remarks: tuple[tuple[str, str], ...] = ()


def prepare(url: str, name: str, catalog_id: UUID | None, *, may_make: bool) -> Prepared:
    """Make a database a store, or see that it is the one of that name; needs no event loop.

    Without `catalog_id` it is the first of its broker, and its own catalog is meant.
    """
    return _apart(_prepare(url, name, catalog_id, may_make))


def _apart(work: Coroutine[Any, Any, T]) -> T:
    """Do it on an event loop of its own: at the start the caller stands on one already."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run, name="postgres-prepare", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


async def _prepare(url: str, name: str, catalog_id: UUID | None, may_make: bool) -> Prepared:
    session = DatabaseSession(url)
    try:
        state = (await session.fetch(_STATE))[0]
        where = shown(url)
        if state["server"] < _SERVER_MIN:
            raise StoreError(f"{where} is PostgreSQL {state['server'] // 10_000}: 13 is needed")
        if not state["is_made"] and not may_make:
            raise Unavailable(f"there is no store in {where}, and there was one before")
        await _migrate(session, where, is_made=state["is_made"])
        return await _claim(session, where, name, catalog_id, state)
    finally:
        await session.close()


async def _migrate(session: DatabaseSession, where: str, *, is_made: bool) -> None:
    version = 0
    if is_made:
        version = (await session.fetch("select version from peeklock.version"))[0]["version"]
    if version > len(STEPS):
        text = f"a later release made version {version} of it, this one knows {len(STEPS)}"
        raise StoreError(f"the store in {where} is not for this release: {text}")
    if version == len(STEPS):
        return
    try:
        await session.run(migration(version))
    except Away as error:
        # Somebody else was quicker, or nobody may.
        if not isinstance(
            error.__cause__, asyncpg.DuplicateObjectError | asyncpg.DuplicateTableError
        ):
            raise StoreError(f"no store can be made in {where}: {error.__cause__}") from error
    _LOG.info("store-migrated store=%s from=%d to=%d", where, version, len(STEPS))


async def _claim(
    session: DatabaseSession,
    where: str,
    name: str,
    catalog_id: UUID | None,
    state: Any,
) -> Prepared:
    """Write down whose store it is; one that is somebody else's is refused."""
    identity = session.identity
    assert identity is not None
    await session.fetch(
        "insert into peeklock.store (name, catalog_id, system_id, timeline) "
        "values ($1, $2, $3, $4) on conflict do nothing",
        name,
        catalog_id or uuid4(),
        identity.system_id,
        identity.timeline,
    )
    row = (await session.fetch("select * from peeklock.store"))[0]
    if row["name"] != name:
        text = f"the store '{row['name']}' of its broker, and '{name}' is what was asked for"
        raise StoreError(f"{where} is {text}: name the databases in the order they had")
    if catalog_id is not None and row["catalog_id"] != catalog_id:
        raise StoreError(f"{where} belongs to a broker with another catalog")
    if (row["system_id"], row["timeline"]) != (identity.system_id, identity.timeline):
        _say_that_it_changed(name, state["standbys"])
        await session.fetch(
            "update peeklock.store set system_id = $1, timeline = $2",
            identity.system_id,
            identity.timeline,
        )
    return Prepared(identity, row["catalog_id"], tuple(_remarks(state)))


def _remarks(state: Any) -> Iterator[tuple[str, str]]:
    if not state["standbys"]:
        text = "no synchronous standby protects it: a failover can lose what was acknowledged"
        yield "store-unprotected", text
    if "off" in (state["fsync"], state["full_pages"]):
        text = "fsync or full_page_writes is off: a crash of its machine can lose everything"
        yield "store-not-durable", text


def _say_that_it_changed(name: str, standbys: str) -> None:
    text = (
        "a standby was promoted, or a copy restored, since it was last used: what was acknowledged "
        "and not on it is lost"
    )
    if standbys:
        text += ", which is nothing if the standby was synchronous"
    _LOG.warning("store-history-changed store=%s text=%r", name, text)
