"""The composition root: builds every part from the settings, serves, and takes all down again."""

import asyncio
import gc
import importlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, final

from peeklock.amqp.limits import ConnectionLimits as EngineLimits
from peeklock.assembly.all_nodes import AllFigures, AllReload
from peeklock.assembly.listening_ports import bind_ports, inherited_ports, listen
from peeklock.assembly.open_stores import open_stores
from peeklock.auth.namespaces import Namespace
from peeklock.broker.broker import Broker, NamespaceLimits
from peeklock.broker.partition_factory import StoresByName
from peeklock.broker.random_source import SystemRandom
from peeklock.broker.timers import LoopTimers
from peeklock.broker.worker.memory_mark import NAME as MEMORY_MARK
from peeklock.broker.worker.memory_mark import MemoryMark, default_mark
from peeklock.budgets import Budgets
from peeklock.clock import Clock, SystemClock
from peeklock.cluster.node import ClusterNode
from peeklock.cluster.stores import ClusterStores
from peeklock.configuration.content import (
    Configuration,
    ConfigurationError,
    ConfiguredNamespace,
)
from peeklock.configuration.start import configuration_for, refuse_exposure
from peeklock.entity.rules.filter import SqlFilter
from peeklock.gateway import logbook
from peeklock.gateway.amqp.messages.wording import AmqpWording
from peeklock.gateway.amqp.namespace_context import (
    Entities,
    GatewayLimits,
    NamespaceContext,
    NamespaceContexts,
)
from peeklock.gateway.amqp.unsent import DELIVERY_BYTES_MAX, UnsentBudget
from peeklock.gateway.amqp.unsent import NAME as UNSENT
from peeklock.gateway.http.admin.node import AdminNode
from peeklock.gateway.http.figures import Overview
from peeklock.gateway.http.health import READY, ReadyNode
from peeklock.gateway.http.hosts import Hosts, make_namespaces
from peeklock.gateway.http.http_connection_quota import HttpConnectionQuota
from peeklock.gateway.http.journal import JournalNode
from peeklock.gateway.http.messages.node import MessagesNode
from peeklock.gateway.http.metrics import METRICS, Gather, MetricsNode
from peeklock.gateway.http.namespaces import Bounding, BoundsPerNamespace, PerNamespace
from peeklock.gateway.http.operator.backups import Backups
from peeklock.gateway.http.operator.operator_nodes import operator_nodes
from peeklock.gateway.http.reload import Reloading
from peeklock.gateway.http.router import ENTITIES, JOURNALS, MESSAGES, Node
from peeklock.gateway.http.token_guard import TokenGuard
from peeklock.gateway.identifiers import hex_digits
from peeklock.gateway.listening.certificates import server_names
from peeklock.gateway.listening.connections import AmqpConnections, HttpConnections
from peeklock.gateway.listening.listener import Listener
from peeklock.gateway.listening.tls import Tls
from peeklock.gateway.quotas.connection_quota import ConnectionQuota, budget_name
from peeklock.gateway.quotas.shared_limits import SharedLimits
from peeklock.gateway.refusals import RefusalWriter
from peeklock.gateway.tokens.issuers import Issuers, KeysError
from peeklock.hangup import Hangup
from peeklock.provisioning import Reload, put_entities
from peeklock.ready_text import endpoint_place, say_ready
from peeklock.settings import Settings
from peeklock.store.figures import StoreFigures
from peeklock.store.store import Catalog
from peeklock.store.stores import Stores, StoreState, store_names
from peeklock.watchdog import Watchdog

if TYPE_CHECKING:
    from peeklock.testbed.controls import Controls

_LOG: Final = logging.getLogger("peeklock.server")

# Messages and locks are garbage by reference count; cycles are few, and looking for them among a
# million entries costs. A look takes 0.1 us for each object that is new since the one before, and
# is part of a step of the loop: 8,000 of the youngest, 24,000 of the middle ones. All of them are
# looked at only once in 128 million that came and stayed. One round of sends makes thousands.
_GC_THRESHOLDS: Final = (8_000, 1, 8_000)
# Enough for all connections of several namespaces, and for the stores.
_DESCRIPTORS: Final = 65_536


def serve(settings: Settings, at_end: Callable[[], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; returns when everything is closed and flushed.

    `at_end` is called then, before the memory of what was there is given back, piece by piece.
    """
    # All that can be wrong with the configuration is found before anything is opened.
    configuration = configuration_for(settings)
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    _allow_many_descriptors()
    watchdog = Watchdog()
    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(_serve(settings, configuration, watchdog, at_end))


def end_process() -> NoReturn:
    """End at once and well, once everything rests: the system takes the memory back as a whole,
    while the interpreter would take apart millions of messages one by one."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def end_orphan() -> NoReturn:
    """End as a killed process does: the parent was killed, and whoever takes its place opens the
    stores anew."""
    logging.shutdown()
    os._exit(1)


def _allow_many_descriptors() -> None:
    """Use what the system allows: each connection needs one, and shells begin with few."""
    few, many = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if many == resource.RLIM_INFINITY else min(many, _DESCRIPTORS)
    if few != resource.RLIM_INFINITY and few < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, many))


async def _serve(
    settings: Settings,
    configuration: Configuration,
    watchdog: Watchdog,
    at_end: Callable[[], None] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    hangup = Hangup(stop)
    node = None if settings.node is None else ClusterNode(settings.node)
    if node is not None:
        node.on_orphaned = end_orphan
    parts = await assemble(settings, configuration, watchdog, node)
    try:
        ports = await parts.start()
        _tune_the_collector()
        watchdog.begin()
        if node is None:
            say_ready(settings, configuration, ports)
        else:
            node.say_serving()
        if parts.controls is not None:
            _LOG.warning("testing: whoever reaches /$testing moves the clock and lets things fail")
        parts.broker.awaken()
        loop.run_in_executor(None, _import_the_rest)
        hangup.reload = parts.reload
        await stop.wait()
        _LOG.info("%s", logbook.line("stopping", connections=parts.amqp.count))
    finally:
        parts.overview.health.is_serving = False
        watchdog.end()
        await parts.stop()
    _LOG.info("stopped")
    if at_end is not None:
        at_end()


@final
@dataclass(frozen=True, slots=True)
class BrokerParts:
    """All parts of one broker, put together and not listening yet."""

    settings: Settings
    configuration: Configuration
    overview: Overview
    broker: Broker
    amqp: AmqpConnections
    http: HttpConnections
    listener: Listener
    issuers: dict[str, Issuers]
    reload: Reloading
    backups: Backups
    node: ClusterNode | None
    # None unless it is to be tested with.
    controls: "Controls | None"

    async def start(self) -> dict[str, int]:
        """Find what is kept, add what is configured, and listen; answers the ports."""
        await self.broker.start()
        if self.node is not None:
            await self.node.start(self.broker)
        _say_what_is_kept(self.broker)
        await put_entities(self.broker, self.settings, self.configuration)
        # Entities that were kept from earlier bring rules that the file does not show.
        rules = (rule for entity in self.broker.entities() for rule in entity.keys)
        refuse_exposure(self.settings, rules)
        if self.settings.node is None:
            ports = listen(self.listener, await bind_ports(self.settings))
        else:
            ports = listen(self.listener, inherited_ports(self.settings.node.listening))
        self.overview.health.is_serving = True
        if self.controls is not None:
            self.controls.place = endpoint_place(self.settings, ports["AMQP"])
        return ports

    async def stop(self) -> None:
        """Let every client go, and let everything rest."""
        self.overview.health.is_serving = False
        self.listener.stop()
        await self.amqp.stop()
        self.http.stop()
        for each in self.issuers.values():
            each.end()
        # Its snapshots are of stores that are open.
        await self.backups.stop()
        if self.node is not None:
            await self.node.wait_quiet()
        await self.broker.close()
        if self.node is not None:
            await self.node.close()


async def assemble(
    settings: Settings,
    configuration: Configuration,
    watchdog: Watchdog,
    node: ClusterNode | None = None,
) -> BrokerParts:
    """Make all parts of a broker, on the running loop; `node` is its place among others."""
    controls = _controls(settings)
    clock: Clock = SystemClock() if controls is None else controls.clock
    timers = LoopTimers(clock, asyncio.get_running_loop()) if controls is None else controls.timers
    budgets = Budgets()
    random_source = SystemRandom().number
    tls = server_tls(settings, configuration, clock)
    figures = {name: StoreFigures() for name in store_names(settings.stores)}
    overview = Overview(watchdog, budgets, figures)
    own_stores, catalog = await open_stores(settings, figures, node)
    stores = own_stores if node is None else node.stores(own_stores)
    resting: StoresByName = stores if controls is None else controls.stores(own_stores)
    broker, hosts = _broker(
        settings, configuration, resting, catalog, clock, timers, random_source, budgets, node
    )
    _introduce(broker, own_stores, overview)
    entities: Entities = broker if controls is None else controls.entities(broker)
    refusal_writers = partial(_refusal_writer, clock, random_source, overview)
    shared_limits = SharedLimits(budgets, unauthenticated_max=settings.connections_max)
    contexts = _contexts(settings, broker, entities, clock, random_source, refusal_writers, budgets)
    amqp = AmqpConnections(contexts, shared_limits=shared_limits)
    http_quota = HttpConnectionQuota(budgets, connections_max=settings.http_connections_max)
    issuers = await _issuers(settings, configuration, broker)
    reload: Reloading = Reload(settings, broker, tls, issuers)
    reload = reload if node is None else AllReload(node, reload)
    gather = overview.gather if node is None else AllFigures(node, overview.gather)
    backups = Backups(own_stores, catalog, clock, settings, is_alone=node is None)
    http = _http(
        settings,
        overview,
        broker,
        entities,
        stores,
        amqp,
        clock,
        random_source,
        refusal_writers,
        hosts,
        http_quota,
        reload,
        backups,
        controls,
        gather,
        own_stores.states,
    )
    overview.connections.update(amqp=lambda: amqp.count, http=lambda: http.count)
    listener = _listener(settings, amqp, http, tls, budgets)
    if controls is not None:
        controls.join(broker, amqp, budgets, overview)
    served = (broker, amqp, http, listener, issuers, reload, backups, node, controls)
    return BrokerParts(settings, configuration, overview, *served)


def _controls(settings: Settings) -> "Controls | None":
    if not settings.is_testing:
        return None
    # Imported here, because a broker that is not tested with has none of it.
    from peeklock.testbed.controls import Controls

    return Controls(settings)


def _memory_max(settings: Settings) -> int:
    """What backlogs may take in the memory of this process: nodes share what there is."""
    return (settings.memory_max or default_mark()) // settings.nodes


def _introduce(broker: Broker, stores: Stores, overview: Overview) -> None:
    """Let the broker hear when a store comes or goes, and let both be looked at."""
    overview.store_states = stores.states
    overview.entities = broker.entities
    for state in stores.states():
        stores.get(state.name).on_switched = partial(broker.store_switched, state.name)


def _broker(
    settings: Settings,
    configuration: Configuration,
    stores: StoresByName,
    catalog: Catalog,
    clock: Clock,
    timers: LoopTimers,
    random_source: Callable[[], int],
    budgets: Budgets,
    node: ClusterNode | None,
) -> tuple[Broker, Hosts]:
    """Make what owns the entities, and the names by which it is called, which keys tell from
    entities."""
    namespaces, hosts = make_namespaces(
        {each.name: each.rules for each in configuration.namespaces},
        lambda namespace, path: broker.find(namespace, path),
        names=(*settings.allowed_hosts, *settings.tls_names, settings.host),
        origins=settings.allowed_origins,
        is_loopback=settings.is_loopback(),
    )
    broker = Broker(
        namespaces,
        stores,
        catalog,
        clock,
        timers,
        random_source,
        AmqpWording(random_source),
        NamespaceLimits(
            entities_max=settings.entities_max,
            partitioned_max=settings.partitioned_entities_max,
        ),
        memory=MemoryMark(budgets.register(MEMORY_MARK, _memory_max(settings))),
        cluster=node,
    )
    return broker, hosts


async def _issuers(
    settings: Settings, configuration: Configuration, broker: Broker
) -> dict[str, Issuers]:
    """Make what checks JSON web tokens, for each namespace."""
    directory = Path() if settings.config is None else settings.config.parent
    made = {
        each.name.lower(): Issuers(directory, broker.namespaces.get(each.name).keys.issuers_changed)
        for each in configuration.namespaces
    }

    async def believe(namespace: ConfiguredNamespace) -> None:
        issuers = made[namespace.name.lower()]
        issuers.hold(namespace.issuers, await asyncio.to_thread(issuers.load, namespace.issuers))
        issuers.begin()
        broker.namespaces.get(namespace.name).keys.believe(issuers)

    try:
        await asyncio.gather(*(believe(each) for each in configuration.namespaces if each.issuers))
    except KeysError as error:
        raise ConfigurationError(str(settings.config), [str(error)]) from error
    return made


def _listener(
    settings: Settings,
    amqp: AmqpConnections,
    http: HttpConnections,
    tls: Tls | None,
    budgets: Budgets,
) -> Listener:
    return Listener(
        amqp.protocol,
        http.protocol,
        tls,
        budgets=budgets,
        make_room=lambda: (
            http.connection_quota.make_room() or amqp.shared_limits.unauthenticated.let_one_go()
        ),
        write_s_max=settings.write_timeout_ms / 1000,
        is_shared=settings.node is not None,
    )


def _tune_the_collector() -> None:
    """Look for garbage as a process does that is nothing but a broker."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _import_the_rest() -> None:
    """Import what the first request by HTTP, the first WebSocket and the first SQL filter need,
    beside the loop: it must neither make the start longer nor be a long step of the loop later."""
    for name in ("peeklock.gateway.http.protocol", "peeklock.gateway.listening.websocket"):
        importlib.import_module(name)
    SqlFilter("1 = 1")  # makes the parser of the rule language


def _refusal_writer(
    clock: Clock, random_source: Callable[[], int], overview: Overview, namespace: Namespace
) -> RefusalWriter:
    """Make what words the refusals of a namespace; all of them are counted together."""
    return RefusalWriter(
        clock=clock, random_source=random_source, namespace=namespace.name, counts=overview.refusals
    )


def _contexts(
    settings: Settings,
    broker: Broker,
    entities: Entities,
    clock: Clock,
    random_source: Callable[[], int],
    refusal_writers: Callable[[Namespace], RefusalWriter],
    budgets: Budgets,
) -> NamespaceContexts:
    """Make what AMQP connections share, for each namespace."""
    container_id = hex_digits(random_source)
    engine_limits = EngineLimits()
    limits = GatewayLimits()
    unsent_budget = UnsentBudget(
        budgets.register(UNSENT, DELIVERY_BYTES_MAX), asyncio.get_running_loop().call_soon
    )

    def context(namespace: Namespace) -> NamespaceContext:
        return NamespaceContext(
            entities=entities,
            keys=namespace.keys,
            refusal_writer=refusal_writers(namespace),
            clock=clock,
            random_source=random_source,
            namespace=namespace.name,
            container_id=container_id,
            engine_limits=engine_limits,
            limits=limits,
            connection_quota=ConnectionQuota(
                budgets.register(budget_name(namespace.name), settings.connections_max)
            ),
            unsent_budget=unsent_budget,
        )

    return NamespaceContexts(broker.namespaces, context)


def _http(
    settings: Settings,
    overview: Overview,
    broker: Broker,
    entities: Entities,
    stores: Stores | ClusterStores,
    amqp: AmqpConnections,
    clock: Clock,
    random_source: Callable[[], int],
    refusal_writers: Callable[[Namespace], RefusalWriter],
    hosts: Hosts,
    http_quota: HttpConnectionQuota,
    reload: Reloading,
    backups: Backups,
    controls: "Controls | None",
    gather: Gather,
    store_states: Callable[[], Sequence[StoreState]],
) -> HttpConnections:
    """Make what HTTP connections come to: nodes for each namespace, one for the stores, pages."""

    def guard(namespace: Namespace) -> TokenGuard:
        return TokenGuard(namespace.keys, clock, refusal_writers(namespace))

    def message_node(namespace: Namespace) -> Bounding:
        told = refusal_writers(namespace)
        return MessagesNode(entities, guard(namespace), told, clock, random_source, namespace.name)

    def admin_node(namespace: Namespace) -> AdminNode:
        told = refusal_writers(namespace)
        return AdminNode(broker, namespace.keys, told, clock, random_source, namespace.name)

    def journal_node(namespace: Namespace) -> JournalNode:
        return JournalNode(broker, guard(namespace), namespace.name)

    messages = PerNamespace(broker.namespaces, message_node)
    nodes: dict[str, Node] = {
        **operator_nodes(guard(broker.namespaces.first), stores, amqp, reload, backups),
        MESSAGES: messages,
        JOURNALS: PerNamespace(broker.namespaces, journal_node),
        ENTITIES: PerNamespace(broker.namespaces, admin_node),
    }
    if controls is not None:
        from peeklock.testbed import controls_node

        first = broker.namespaces.first.name
        nodes[controls_node.NODE] = controls_node.ControlsNode(controls, first)
    pages: dict[str, Node] = {
        READY: ReadyNode(overview.health, store_states),
        # Who can reach a listener of this machine alone could read its files, too.
        METRICS: MetricsNode(
            gather, None if settings.is_loopback() else guard(broker.namespaces.first)
        ),
    }
    return HttpConnections(
        overview.health,
        nodes,
        amqp=amqp,
        bounds=BoundsPerNamespace(messages),
        pages=pages,
        hosts=hosts,
        connection_quota=http_quota,
    )


def server_tls(settings: Settings, configuration: Configuration, clock: Clock) -> Tls | None:
    """Make what shows the certificate; a development one is made where there is none."""
    if not settings.is_tls:
        return None
    if settings.tls_certificate is not None and settings.tls_key is not None:
        return Tls.of_files(clock, settings.tls_certificate, settings.tls_key)
    names = list(settings.tls_names)
    if len(configuration.namespaces) > 1:
        names += [f"{namespace.name}.localhost" for namespace in configuration.namespaces]
    return Tls.of_authority(clock, settings.data, server_names(settings.host, names))


def _say_what_is_kept(broker: Broker) -> None:
    """Name the namespaces that are only in the catalog, because nobody can manage them."""
    for namespace in broker.namespaces.all():
        if not namespace.is_configured:
            count = len(broker.entities(namespace.name))
            text = "It is not configured: only the keys of its entities open it."
            line = logbook.line(
                "namespace-kept", namespace=namespace.name, entities=count, text=text
            )
            _LOG.warning("%s", line)
