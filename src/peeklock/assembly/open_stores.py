"""The stores and the catalog that were asked for, opened."""

from typing import TYPE_CHECKING

from peeklock.cluster.node import ClusterNode
from peeklock.settings import MEMORY, POSTGRES, Settings
from peeklock.store.figures import StoreFigures
from peeklock.store.memory import MemoryCatalog, MemoryStores
from peeklock.store.retention import Retention
from peeklock.store.store import Catalog, Store, StoreError
from peeklock.store.stores import StoreFactory, Stores, store_names

if TYPE_CHECKING:
    from peeklock.store.postgres.databases import PostgresStores


async def open_stores(
    settings: Settings, figures: dict[str, StoreFigures], node: ClusterNode | None
) -> tuple[Stores, Catalog]:
    """Open the stores of this process, and the catalog: a node's is kept by its parent."""
    names = store_names(settings.stores) if node is None else node.own_stores()
    if settings.store == MEMORY or settings.is_testing:
        made: Catalog = MemoryCatalog() if node is None else await node.join()
        return Stores.of(MemoryStores(_retention(settings)), names), made
    factory: StoreFactory
    if settings.store == POSTGRES:
        databases = _databases(settings, figures)
        if node is None:
            _make_directory(settings)
            catalog: Catalog = await databases.open_catalog()
        else:
            catalog = await node.join()
            databases.find_catalog()
        factory = databases
    else:
        catalog = await open_catalog(settings) if node is None else await node.join()
        factory = _embedded(settings, figures)
    try:
        return await Stores.open(factory, names, catalog), catalog
    except BaseException:
        await catalog.close()
        raise


async def open_catalog(settings: Settings) -> Catalog:
    """Open what keeps the descriptions; the directory is made where it is missing."""
    if settings.store == MEMORY or settings.is_testing:
        return MemoryCatalog()
    _make_directory(settings)
    if settings.store == POSTGRES:
        return await _databases(settings, {}).open_catalog()
    # Imported here, because a broker in memory needs no LMDB.
    from peeklock.store.catalog import EmbeddedCatalog

    return EmbeddedCatalog(settings.data / "catalog")


def _make_directory(settings: Settings) -> None:
    # Messages, keys and certificates are in clear text there.
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)


def _retention(settings: Settings) -> Retention:
    return Retention(settings.journal_retention_ms, settings.journal_retention_bytes)


def _embedded(settings: Settings, figures: dict[str, StoreFigures]) -> StoreFactory:
    from peeklock.store.embedded import open_embedded

    def open_store(name: str, may_make: bool) -> Store:
        return open_embedded(
            settings.data / name,
            settings.store,
            make=may_make,
            retention=_retention(settings),
            reserve_bytes=settings.free_bytes_min,
            off_loop=settings.stores > 1,
            commit_delay_s=settings.commit_delay_ms / 1000,
            figures=figures[name],
        )

    return open_store


def _databases(settings: Settings, figures: dict[str, StoreFigures]) -> "PostgresStores":
    try:
        from peeklock.store.postgres.databases import PostgresStores
    except ModuleNotFoundError as missing:
        if missing.name != "asyncpg":
            raise
        text = "pip install 'peeklock[postgres]' brings it"
        raise StoreError(f"PostgreSQL needs asyncpg, which is not installed: {text}") from missing
    urls = dict(zip(store_names(settings.stores), settings.databases, strict=True))
    return PostgresStores(urls, _retention(settings), figures, settings.commit_delay_ms / 1000)
