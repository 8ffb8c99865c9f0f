"""The composition root: builds every room from the settings, serves, and takes all down again."""

import asyncio
import gc
import logging
import signal
import sys
from typing import Final

from peeklock.amqp.limits import Limits
from peeklock.auth.keyring import KeyRing
from peeklock.auth.rights import DEVELOPMENT_KEY, AuthorizationRule
from peeklock.broker.alarm import LoopAlarms
from peeklock.broker.broker import Broker
from peeklock.broker.chance import SystemChance
from peeklock.clock import SystemClock
from peeklock.configuration.content import Configuration
from peeklock.configuration.start import configuration_for, refuse_exposure
from peeklock.gateway import logbook
from peeklock.gateway.amqp.door import Door, DoorLimits
from peeklock.gateway.http.health import Health
from peeklock.gateway.identifiers import hex_digits
from peeklock.gateway.listener import AmqpListener, HttpListener
from peeklock.gateway.refusals import RefusalDesk
from peeklock.settings import AMQP_PORT, MEMORY, Settings
from peeklock.store.memory import MemoryCatalog, MemoryStore
from peeklock.store.retention import Retention
from peeklock.store.store import Catalog, Store
from peeklock.version import VERSION, is_compiled

_LOG: Final = logging.getLogger("peeklock.server")

# Messages and locks are garbage by reference count; cycles are few, and looking for them among a
# million entries costs.
_GC_THRESHOLDS: Final = (50_000, 20, 100)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; returns when everything is closed and flushed."""
    # All that can be wrong with the configuration is found before anything is opened.
    configuration = configuration_for(settings)
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    asyncio.run(_serve(settings, configuration))


async def _serve(settings: Settings, configuration: Configuration) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = SystemClock()
    chance = SystemChance().number
    keys = KeyRing(configuration.rules)
    store, catalog = _open_stores(settings)
    broker = Broker(
        configuration.namespace, keys, store, catalog, clock, LoopAlarms(clock, loop), chance
    )
    health = Health()
    http = HttpListener(health)
    amqp = AmqpListener(
        Door(
            entities=broker,
            keys=keys,
            desk=RefusalDesk(clock=clock, chance=chance, namespace=configuration.namespace),
            clock=clock,
            chance=chance,
            namespace=configuration.namespace,
            container_id=hex_digits(chance),
            engine_limits=Limits(),
            limits=DoorLimits(),
        ),
        clock,
    )
    try:
        await broker.start()
        for queue in configuration.queues:
            await broker.put_queue(queue.definition, queue.rules)
        # Queues that were kept from earlier bring rules that the file does not show.
        refuse_exposure(settings, (rule for queue in broker.queues() for rule in queue.rules))
        amqp_port = await amqp.start(settings.host, settings.amqp_port)
        http_port = await http.start(settings.host, settings.http_port)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        health.is_serving = True
        _say_ready(settings, configuration, amqp_port, http_port)
        await stop.wait()
        _LOG.info("%s", logbook.line("stopping", connections=amqp.connection_count))
    finally:
        health.is_serving = False
        await amqp.stop()
        await http.stop()
        await broker.close()
    _LOG.info("stopped")


def _open_stores(settings: Settings) -> tuple[Store, Catalog]:
    retention = Retention(settings.journal_retention_ms, settings.journal_retention_bytes)
    if settings.store == MEMORY:
        return MemoryStore(retention), MemoryCatalog()
    # Imported here, because a broker in memory needs no LMDB.
    from peeklock.store.catalog import EmbeddedCatalog
    from peeklock.store.embedded import EmbeddedStore

    catalog = EmbeddedCatalog(settings.data / "catalog")
    store = EmbeddedStore(
        settings.data / "store",
        retention=retention,
        reserve_bytes=settings.free_bytes_min,
        commit_delay_s=settings.commit_delay_ms / 1000,
    )
    return store, catalog


def _say_ready(
    settings: Settings, configuration: Configuration, amqp_port: int, http_port: int
) -> None:
    form = "compiled" if is_compiled() else "plain"
    sys.stdout.write(
        f"Peeklock is ready: {VERSION} ({form}), {len(configuration.queues)} queues configured, "
        f"AMQP on {settings.host}:{amqp_port}, HTTP on {settings.host}:{http_port}\n"
        f"{connection_string(settings, configuration.rules, amqp_port)}\n"
    )
    sys.stdout.flush()


def connection_string(
    settings: Settings, rules: tuple[AuthorizationRule, ...], amqp_port: int
) -> str:
    """Say how clients connect; a key that is a secret is not said."""
    host = "localhost" if settings.is_loopback() else settings.host
    place = host if amqp_port == AMQP_PORT else f"{host}:{amqp_port}"
    name, key = "<name of a rule>", "<its key>"
    for rule in rules:
        name = rule.name
        if DEVELOPMENT_KEY in rule.signing_keys():
            key = DEVELOPMENT_KEY
            break
    return (
        f"Endpoint=sb://{place};SharedAccessKeyName={name};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )
